"""CEL as Kubernetes extends it: functions, optionals, costs at writing and at running, and rules that cannot be right."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcontainer.kubeapi.cel import cost
from matrixcontainer.kubeapi.cel.checker import validate_rules
from matrixcontainer.kubeapi.cel.environment import check, evaluate
from matrixcontainer.kubeapi.cel.preprocess import rewrite_syntax
from matrixcontainer.kubeapi.schema.structural import Schema

TEXT = {"type": "string", "maxLength": 60}
TEXTS = {"type": "array", "items": TEXT}
PAIR = {
    "type": "object",
    "properties": {"a": TEXT, "n": {"type": "integer"}, "m": {"type": "object", "properties": {"b": TEXT}}},
}
PATH = "spec.validation.openAPIV3Schema"


@pytest.mark.parametrize(
    "expression",
    [
        "'%s is %d of %.2f, %x'.format(['a', 3, 1.5, 255]) == 'a is 3 of 1.50, ff'",
        "'%s %s'.format([[1, 2], true]) == '[1, 2] true'",
        "sets.contains([1, 2], [2]) && !sets.contains([1], [2])",
        "sets.equivalent([1, 2], [2, 1, 1]) && sets.intersects([1], [1, 5]) && !sets.intersects([1], [5])",
        "!format.dns1123Label().validate('abc').hasValue()",
        "format.dns1123Label().validate('A_').hasValue() && format.uuid().validate('1').value().size() == 1",
        "format.named('labelValue').hasValue() && !format.named('none').hasValue()",
        "self.?a.orValue('x') == 'here' && self.?z.orValue('x') == 'x'",
        "self.?m.b.orValue('x') == 'deep' && self.?z.b.c.hasValue() == false",
        "self.?m.?c.or(self.?a).orValue('x') == 'here'",
        "self.l[?1].orValue(9) == 5 && self.l[?7].orValue(9) == 9",
        "optional.of(3).value() == 3 && !optional.none().hasValue() && !optional.ofNonZeroValue('').hasValue()",
        "self.a == 'here' ? true : 'a.?b sets.contains(' == ''",
        "quantity('1Gi').add(quantity('1Gi')).compareTo(quantity('2Gi')) == 0",
        "url('https://x.test:8/p?q=1').getPort() == '8' && ip('::1').family() == 6",
        "[3, 1, 2].max() == 3 && ['a', 'b'].isSorted() && 'aXbX'.findAll('[A-Z]').size() == 2",
    ],
)
def test_functions(expression: str) -> None:
    assert evaluate(expression, {"self": {"a": "here", "m": {"b": "deep"}, "l": [4, 5]}})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("true", "true"),
        ("1.0", "1"),
        ("-2.5", "-2.5"),
        ("0.00001", "1e-05"),
        ("1000000.0", "1e+06"),
        ("0.0", "0"),
        ("1.0 / 0.0", "+Inf"),
        ("b'abc'", "abc"),
        ("duration('90s')", "90s"),
        ("duration('1.5s')", "1.5s"),
        ("timestamp('2026-01-02T03:04:05Z')", "2026-01-02T03:04:05Z"),
        ("timestamp('2026-01-02T03:04:05.25+01:00')", "2026-01-02T02:04:05.25Z"),
        ("cidr('10.1.0.0/8')", "10.1.0.0/8"),
    ],
)
def test_values_as_texts(value: str, text: str) -> None:
    assert evaluate(f"string({value}) == self", {"self": text})


def test_values_in_formats() -> None:
    assert evaluate("'%s %s %s'.format([1.0, 1000000.0, duration('1.5s')]) == '1 1000000 1.5s'", {})


def test_quoted_text_is_not_respelled() -> None:
    assert rewrite_syntax("self.a == '.?b' && self.?c.d == \"x[?1]\"") == (
        """self.a == '.?b' && self.optSelect("c").optSelect("d") == "x[?1]\""""
    )
    assert rewrite_syntax("self.?a.orValue(1)") == 'self.optSelect("a").orValue(1)'


@pytest.mark.parametrize(
    "expression",
    [
        "[1, 2, ] == [1, 2]",
        "{'a': [1,], 'b': '2',} == {'a': [1], 'b': '2'}",
        "['a,]',] == ['a,' + ']']",
        "self.?z.orValue(1) == 1 // don't\n && self.?z.orValue(2) == 2 // isn't",
    ],
)
def test_commas_at_the_end_and_comments(expression: str) -> None:
    assert evaluate(expression, {"self": {}})


@pytest.mark.parametrize("expression", ["[,] == []", "{,} == {}", "[1,,] == [1]", "size([1],) == 1"])
def test_commas_after_nothing(expression: str) -> None:
    with pytest.raises(ValueError, match="Syntax error"):
        evaluate(expression, {})


def rules(base: dict[str, Any], *found: dict[str, Any] | str) -> dict[str, Any]:
    listed = [one if isinstance(one, dict) else {"rule": one} for one in found]
    return base | {"x-kubernetes-validations": listed}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (rules(PAIR, "self.zzz == 'x'"), "compilation failed: ERROR: <input>:1:5: undefined field 'zzz'\n | self.zzz == 'x'\n | ....^"),
        (rules(PAIR, "self.a"), "must evaluate to a bool"),
        (rules(PAIR, "self.a == 5"), "found no matching overload for '_==_' applied to '(string, int)'"),
        (rules(PAIR, {"rule": "true", "messageExpression": "self.n"}), "messageExpression must evaluate to a string"),
        (rules(PAIR, {"rule": "true", "fieldPath": ".q"}), "fieldPath must be a valid path"),
        (rules(PAIR, {"rule": "true", "reason": "Because"}), 'Unsupported value: "Because"'),
        (rules(PAIR, "self.a =="), "Syntax error"),
        ({"type": "array", "items": rules(TEXT, "self == oldSelf")}, f"uncorrelatable portion of the schema within {PATH}"),
        (rules(TEXTS, "self.all(x, self.all(y, self.all(z, x == y)))"), "estimated rule cost exceeds budget by factor of more than 100x"),
        ({"type": "array", "items": rules(TEXTS | {"maxItems": 100}, "self.all(x, self.all(y, x == y))")}, "exceeds budget by factor"),
    ],
)  # fmt: skip
def test_invalid_rules(schema: dict[str, Any], text: str) -> None:
    assert any(text in cause.message for cause in validate_rules(schema, PATH)), validate_rules(schema, PATH)


@pytest.mark.parametrize(
    "schema",
    [
        rules(PAIR, "has(self.a) || self.n > 3", {"rule": "self.n < 5", "messageExpression": "'n is ' + string(self.n)"}),
        rules(TEXTS | {"maxItems": 50}, "self.all(x, self.exists_one(y, x == y))"),
        rules(TEXTS, "self.all(x, x.startsWith('a'))"),
        rules(PAIR, {"rule": "self.n == 1", "fieldPath": ".m.b"}, "!has(self.m) || self.m.b != ''"),
        {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"], "items": rules(PAIR, "self.n == oldSelf.n")},
        {"type": "array", "items": rules(PAIR, {"rule": "!oldSelf.hasValue()", "optionalOldSelf": True})},
        rules({"x-kubernetes-int-or-string": True}, "type(self) == int ? self < 5 : self == '50%'"),
    ],
)  # fmt: skip
def test_valid_rules(schema: dict[str, Any]) -> None:
    assert validate_rules(schema, PATH) == []


def test_cost_limits_of_a_call_and_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "CALL_MAX", 1000)
    monkeypatch.setattr(cost, "REQUEST_MAX", 2000)
    pairs = Schema(rules(TEXTS, {"rule": "self.all(x, self.exists(y, x == y))", "message": "odd"}))
    assert check(pairs, ["a"] * 5, None) == []  # type: ignore[arg-type]
    reported = check(pairs, ["a"] * 2000, None)  # type: ignore[arg-type]
    assert [cause.message for cause in reported] == [
        'Invalid value: "array": call cost exceeds limit for rule: odd, no further validation rules will be run'
    ]
    many = Schema({"type": "array", "items": rules(TEXTS, "self.all(x, self.exists(y, x == y))")})
    reported = check(many, [["a"] * 8] * 400, None)  # type: ignore[arg-type]
    assert "running out of cost budget, no further validation rules will be run" in reported[-1].message
    assert len(reported) == 1


def test_failed_rule_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "REQUEST_MAX", 2000)
    failing = Schema({"type": "array", "items": rules(TEXTS, "self.all(x, x != '') && 1 / 0 == 1")})
    reported = check(failing, [["a"] * 100] * 400, None)  # type: ignore[arg-type]
    assert "running out of cost budget, no further validation rules will be run" in reported[-1].message
    assert len(reported) < 40


@pytest.mark.parametrize(
    ("rule", "value", "text"),
    [
        ("self.m.b == 'x'", {"a": "1"}, "no such key: m evaluating rule: self.m.b == 'x'"),
        ("self.n / 0 == 1", {"n": 1}, "division by zero evaluating rule: self.n / 0 == 1"),
        ("self.n == 2", {"n": 1}, "failed rule: self.n == 2"),
    ],
)
def test_failure_messages(rule: str, value: Any, text: str) -> None:
    causes = check(Schema(rules(PAIR, rule)), value, None)
    assert [cause.message for cause in causes] == [f'Invalid value: "object": {text}']
