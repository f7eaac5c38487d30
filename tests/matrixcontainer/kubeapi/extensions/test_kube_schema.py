"""Tables of small truths: schemas, rules, selectors, paths, ages, accept headers, bodies."""

from typing import Any

import pytest

from matrixcontainer.kubeapi.builtin.pods import qos_class
from matrixcontainer.kubeapi.cel import checker, environment
from matrixcontainer.kubeapi.cel.values import escape, unescape
from matrixcontainer.kubeapi.codec.negotiation import negotiate, wants_aggregated
from matrixcontainer.kubeapi.codec.serializer import parse_yaml
from matrixcontainer.kubeapi.endpoints.request import parse_target
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.meta.jsonpath import JsonPath
from matrixcontainer.kubeapi.meta.selectors import LabelSelector, matches_label_selector
from matrixcontainer.kubeapi.patch.patches import json_patch, merge_patch
from matrixcontainer.kubeapi.registry.printer_columns import human_age
from matrixcontainer.kubeapi.registry.resource import version_rank
from matrixcontainer.kubeapi.schema.structural import Schema, apply_defaults, prune
from matrixcontainer.kubeapi.schema.validation import validate


@pytest.mark.parametrize(
    ("schema", "value", "reason", "text"),
    [
        ({"type": "string", "minLength": 2}, "a", "FieldValueInvalid", "should be at least 2 chars long"),
        ({"type": "string", "maxLength": 2}, "äöü", "FieldValueTooLong", "may not be more than 2 bytes"),
        ({"type": "string", "pattern": "^a+$"}, "b", "FieldValueInvalid", "should match '^a+$'"),
        ({"type": "string", "format": "date-time"}, "yesterday", "FieldValueTypeInvalid", "must be of type date-time"),
        ({"type": "string", "format": "ipv4"}, "1.2.3", "FieldValueTypeInvalid", "must be of type ipv4"),
        ({"type": "string", "format": "duration"}, "5 apples", "FieldValueTypeInvalid", "must be of type duration"),
        ({"type": "string", "format": "byte"}, "!", "FieldValueTypeInvalid", "must be of type byte"),
        ({"type": "integer"}, 1.5, "FieldValueTypeInvalid", 'must be of type integer: "number"'),
        ({"type": "integer"}, True, "FieldValueTypeInvalid", 'must be of type integer: "boolean"'),
        ({"type": "string", "format": "cidr"}, "10.0.0.0", "FieldValueTypeInvalid", "must be of type cidr"),
        ({"type": "integer", "multipleOf": 3}, 4, "FieldValueInvalid", "should be a multiple of 3"),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, 1, "FieldValueInvalid", "should be greater than 1"),
        ({"type": "number", "maximum": 1}, 1.5, "FieldValueInvalid", "should be less than or equal to 1"),
        ({"type": "boolean"}, "true", "FieldValueTypeInvalid", "must be of type boolean"),
        ({"type": "array", "maxItems": 1, "items": {"type": "string"}}, ["a", "b"], "FieldValueTooMany", "at most 1 items"),
        ({"type": "array", "minItems": 1, "items": {"type": "string"}}, [], "FieldValueInvalid", "at least 1 items"),
        ({"type": "object", "maxProperties": 0, "additionalProperties": {"type": "string"}}, {"a": "b"}, "FieldValueTooMany", "at most 0 items"),
        ({"type": "string", "enum": ["a"]}, "b", "FieldValueNotSupported", 'supported values: "a"'),
        ({"x-kubernetes-int-or-string": True}, [], "FieldValueTypeInvalid", "integer,string"),
        ({"type": "string"}, None, "FieldValueTypeInvalid", "null"),
    ],
)  # fmt: skip
def test_refused_values(schema: dict, value: Any, reason: str, text: str) -> None:
    found = validate({"x": value}, Schema({"type": "object", "properties": {"x": schema}}))
    assert [(cause.field, cause.reason) for cause in found] == [("x", reason)]
    assert text in found[0].message


NEITHER = '"x" must validate at least one schema (anyOf)'
SEVERAL = '"x" must validate one and only one schema (oneOf). Found 2 valid alternatives'
ALL = '"x" must validate all the schemas (allOf)'
NOT = '"x" must not validate the schema (not)'


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"anyOf": [{"minimum": 5}, {"maximum": 1}]}, 3, {NEITHER, "x in body should be greater than or equal to 5"}),
        ({"oneOf": [{"minimum": 5}, {"minimum": 7}]}, 9, {SEVERAL}),
        ({"not": {"minimum": 5}}, 9, {NOT}),
        ({"allOf": [{"minimum": 5}, {"minimum": 1}]}, 3, {ALL, "x in body should be greater than or equal to 5"}),
        ({"allOf": [{"minimum": 5}]}, 3, {f"{ALL}. None validated", "x in body should be greater than or equal to 5"}),
        ({"enum": [1, 2], "minimum": 4}, 3, {'supported values: "1", "2"', "x in body should be greater than or equal to 4"}),
    ],
)  # fmt: skip
def test_combinators_report_the_closest_branch(schema: dict, value: Any, expected: set[str]) -> None:
    whole = Schema({"type": "object", "properties": {"x": {"type": "integer"} | schema}})
    found = validate({"x": value}, whole)
    assert {cause.message.split(": ", 2)[2] for cause in found} == expected
    assert all(cause.field == ("<nil>" if "must" in cause.message else "x") for cause in found)


def test_unchanged_values_are_not_validated_again() -> None:
    item = {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 1}}}
    keyed = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item}
    schema = Schema({"type": "object", "properties": {"m": keyed, "a": {"type": "array", "items": item}}})
    old = {"m": [{"k": "x", "v": 2}], "a": [{"k": "x", "v": 2}]}
    assert validate(old, schema, old=old) == []
    new = {"m": [{"k": "y", "v": 1}, {"k": "x", "v": 2}], "a": [{"k": "x", "v": 2}, {"k": "y", "v": 1}]}
    assert [cause.field for cause in validate(new, schema, old=old)] == ["a[0].v"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 2.0),
        ({"type": "number"}, 2),
        ({"type": "string", "nullable": True}, None),
        ({"x-kubernetes-int-or-string": True}, "50%"),
        ({"type": "string", "pattern": "b"}, "abc"),
        ({"type": "string", "format": "made-up"}, "anything"),
        ({"x-kubernetes-preserve-unknown-fields": True}, [1, {"a": None}]),
        ({"type": "string", "format": "date-time"}, "2026-01-01T00:00:00.5+02:00"),
    ],
)
def test_accepted_values(schema: dict, value: Any) -> None:
    assert validate({"x": value}, Schema({"type": "object", "properties": {"x": schema}})) == []


def test_nested_pruning_and_defaulting() -> None:
    item = {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}
    schema = Schema({"type": "object", "properties": {"list": {"type": "array", "items": item}, "map": {"type": "object", "additionalProperties": item}, "deep": {"type": "object", "default": {}, "properties": {"n": {"type": "integer", "default": 5}}}}})  # fmt: skip
    unknown: list[str] = []
    value = {"list": [{"b": 1}], "map": {"k": {"c": 1}}, "z": 1}
    prune(value, schema, unknown=unknown, root=True)
    assert sorted(unknown) == ["list[0].b", "map.k.c", "z"]
    assert apply_defaults(value, schema) == {"list": [{"a": "x"}], "map": {"k": {"a": "x"}}, "deep": {"n": 5}}


RULED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "s": {"type": "string"},
        "l": {"type": "array", "items": {"type": "integer"}},
        "m": {"type": "object", "additionalProperties": {"type": "string"}},
        "d": {"type": "string", "format": "duration"},
        "t": {"type": "string", "format": "date-time"},
        "x-y": {"type": "string"},
        "namespace": {"type": "string"},
    },
}
SAMPLE = {
    "n": 3,
    "s": "Hello, World",
    "l": [1, 2, 3],
    "m": {"a": "b"},
    "d": "1h30m",
    "t": "2026-01-01T00:00:00Z",
    "x-y": "dash",
    "namespace": "ns",
}


@pytest.mark.parametrize(
    "rule",
    [
        "self.n == 3 && self.n % 2 == 1",
        "has(self.s) && !has(self.q)",
        "self.l.isSorted() && self.l.sum() == 6 && self.l.min() == 1 && self.l.max() == 3",
        "self.l.indexOf(2) == 1 && self.l.lastIndexOf(9) == -1",
        "self.l.all(x, x > 0) && self.l.exists(x, x == 2) && self.l.exists_one(x, x == 3)",
        "self.l.map(x, x * 2).filter(x, x > 2).size() == 2",
        "self.m.all(k, self.m[k] == 'b') && 'a' in self.m",
        "self.s.lowerAscii() == 'hello, world' && self.s.upperAscii().startsWith('HELLO')",
        "self.s.split(', ').join('-') == 'Hello-World'",
        "self.s.replace('l', 'L', 1) == 'HeLlo, World' && self.s.substring(7) == 'World'",
        "self.s.charAt(0) == 'H' && self.s.indexOf('World') == 7 && ' x '.trim() == 'x'",
        "self.s.matches('^H.*d$') && self.s.find('[A-Z]') == 'H' && self.s.findAll('[A-Z]').size() == 2",
        "self.d > duration('1h') && self.t < timestamp('2026-06-01T00:00:00Z')",
        "self.x__dash__y == 'dash' && self.__namespace__ == 'ns'",
        "quantity('1Gi').isGreaterThan(quantity('1000M')) && quantity('500m').add(quantity('1500m')).asInteger() == 2",
        "isQuantity('5k') && !isQuantity('five') && quantity('1k').compareTo(quantity('1000')) == 0",
        "isURL('https://a.b:80/c') && url('https://a.b:80/c').getHost() == 'a.b:80'",
        "isIP('::1') && ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.2.3')",
    ],
)
def test_rules_that_hold(rule: str) -> None:
    if "self.q" in rule:
        rule = rule.replace("!has(self.q)", "size(self.m) == 1")
    document = RULED | {"x-kubernetes-validations": [{"rule": rule}]}
    assert checker.validate_rules(document, "") == []
    assert environment.check(Schema(document), SAMPLE, None) == []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"rule": "self.n > 5"}, "failed rule: self.n > 5"),
        ({"rule": "self.n > 5", "message": "too small"}, "too small"),
        ({"rule": "self.n > 5", "messageExpression": "'got ' + string(self.n)"}, "got 3"),
        ({"rule": "self.l[7] == 1"}, "index out of bounds: 7 evaluating rule: self.l[7]"),
        ({"rule": "self.m['z'] == 'a'"}, "no such key"),
    ],
)
def test_rules_that_fail(rule: dict, text: str) -> None:
    found = environment.check(Schema(RULED | {"x-kubernetes-validations": [rule]}), SAMPLE, None)
    assert len(found) == 1
    assert text in found[0].message


def test_transition_rules_follow_map_lists_but_not_atomic_ones() -> None:
    item = {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}, "required": ["k"]}
    item |= {"x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v", "message": "only up"}]}
    keyed = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item}
    schema = Schema({"type": "object", "properties": {"m": keyed, "a": {"type": "array", "items": item}}})
    old = {"m": [{"k": "x", "v": 2}, {"k": "y", "v": 1}], "a": [{"k": "x", "v": 2}]}
    new = {"m": [{"k": "y", "v": 3}, {"k": "x", "v": 1}], "a": [{"k": "x", "v": 1}]}
    assert [cause.field for cause in environment.check(schema, new, old)] == ["m[1]"]
    assert environment.check(schema, new, None) == []


@pytest.mark.parametrize("name", ["a-b", "a.b/c", "namespace", "x__y", "plain"])
def test_escaped_names(name: str) -> None:
    assert unescape(escape(name)) == name


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.x", [1]),
        (".spec.list[0].a", ["p"]),
        (".spec.list[*].a", ["p", "q"]),
        ('.spec.list[?(@.a=="q")].b', [2]),
        ('.spec.list[?(@.a!="q")].b', [1]),
        (".metadata.annotations.a\\.b/c", ["v"]),
        (".metadata.annotations['a.b/c']", ["v"]),
        (".spec.none.deeper", []),
        ("{.spec.x}", [1]),
    ],
)
def test_json_paths(path: str, found: list) -> None:
    obj = {
        "spec": {"x": 1, "list": [{"a": "p", "b": 1}, {"a": "q", "b": 2}]},
        "metadata": {"annotations": {"a.b/c": "v"}},
    }
    assert JsonPath(path).find(obj) == found


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "<invalid>"), (0, "0s"), (119, "119s"), (120, "2m"), (192, "3m12s"), (600, "10m"), (10799, "179m"), (10800, "3h"), (11100, "3h5m"), (28800, "8h"), (172799, "47h"), (172800, "2d"), (180000, "2d2h"), (864000, "10d"), (63072000 + 86400, "2y1d")],
)  # fmt: skip
def test_ages(seconds: float, text: str) -> None:
    assert human_age(seconds) == text


@pytest.mark.parametrize("text", ["a=b=c", "a in b", "(a", "a in (x", "=b", "-a=b", "a=*"])
def test_malformed_selectors(text: str) -> None:
    with pytest.raises(ApiError):
        LabelSelector(text)


def test_label_selector_objects() -> None:
    expression = {"key": "a", "operator": "In", "values": ["1", "2"]}
    assert matches_label_selector({"matchLabels": {"b": "x"}, "matchExpressions": [expression]}, {"a": "1", "b": "x"})
    assert not matches_label_selector({"matchExpressions": [expression]}, {"a": "3"})
    assert matches_label_selector({}, {})
    assert not matches_label_selector(None, {})


@pytest.mark.parametrize(
    ("accept", "media", "form"),
    [
        ("", "application/json", ""),
        ("*/*", "application/json", ""),
        ("application/vnd.kubernetes.protobuf,application/json", "application/json", ""),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/json", "Table"),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/yaml", "application/yaml", ""),
    ],
)
def test_accept(accept: str, media: str, form: str) -> None:
    answer = negotiate(accept)
    assert (answer.media, answer.form) == (media, form)


def test_no_acceptable_media_type() -> None:
    with pytest.raises(ApiError) as refused:
        negotiate("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,text/plain")
    assert refused.value.code == 406
    aggregated = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
    assert wants_aggregated(aggregated.format("v2") + ";profile=nopeer")
    assert not wants_aggregated(aggregated.format("v9") + ",application/json")
    assert not wants_aggregated("application/json," + aggregated.format("v2"))


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/api/v1/pods", ("", "v1", "pods", "", "", "", False)),
        ("/api/v1/namespaces/a/pods/b/status", ("", "v1", "pods", "a", "b", "status", False)),
        ("/api/v1/namespaces/a", ("", "v1", "namespaces", "", "a", "", False)),
        ("/api/v1/namespaces/a/finalize", ("", "v1", "namespaces", "", "a", "finalize", False)),
        ("/apis/g.x/v2/watch/namespaces/a/things/b", ("g.x", "v2", "things", "a", "b", "", True)),
        ("/apis/g.x/v2/things/a%2Fb", ("g.x", "v2", "things", "", "a/b", "", False)),
    ],
)
def test_paths(path: str, parts: tuple) -> None:
    target = parse_target(path)
    assert target is not None
    assert (
        target.group,
        target.version,
        target.plural,
        target.namespace,
        target.name,
        target.subresource,
        target.watch,
    ) == parts


def test_versions_are_ranked() -> None:
    words = ["v1beta1", "foo", "v10", "v2", "v1", "v3alpha1", "v2beta2"]
    assert sorted(words, key=version_rank) == ["v10", "v2", "v1", "v2beta2", "v1beta1", "v3alpha1", "foo"]


@pytest.mark.parametrize(
    ("operations", "result"),
    [
        ([{"op": "add", "path": "/l/-", "value": 3}], {"l": [1, 2, 3], "a/b": 0}),
        ([{"op": "add", "path": "/l/0", "value": 0}], {"l": [0, 1, 2], "a/b": 0}),
        ([{"op": "remove", "path": "/a~1b"}], {"l": [1, 2]}),
        ([{"op": "move", "from": "/l/0", "path": "/m"}], {"l": [2], "a/b": 0, "m": 1}),
        ([{"op": "copy", "from": "/l", "path": "/m"}], {"l": [1, 2], "a/b": 0, "m": [1, 2]}),
        ([{"op": "test", "path": "/nothing", "value": None}], {"l": [1, 2], "a/b": 0}),
        ([{"op": "replace", "path": "/new", "value": 1}, {"op": "add", "path": "/l"}], {"l": None, "a/b": 0, "new": 1}),
        ([{"op": "replace", "path": "/l/-1", "value": 9}], {"l": [1, 9], "a/b": 0}),
    ],
)
def test_json_patches(operations: list, result: dict) -> None:
    assert json_patch({"l": [1, 2], "a/b": 0}, operations) == result


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "remove", "path": "/x"}],
        [{"op": "replace", "path": "/x/y", "value": 1}],
        [{"op": "replace", "path": "/l/1", "value": 1}],
        [{"op": "add", "path": "/x/y", "value": 1}],
        [{"op": "add", "path": "/l/9", "value": 1}],
        [{"op": "add", "path": "l", "value": 1}],
        [{"op": "add", "value": 1}],
        [{"op": "boil", "path": "/l"}],
        [{"op": "test", "path": "/l", "value": 1}],
        [{"op": "replace", "path": "", "value": 1}],
    ],
)
def test_refused_json_patches(operations: list) -> None:
    with pytest.raises(ApiError) as refused:
        json_patch({"l": [1]}, operations)
    assert refused.value.code == 422


def test_merge_patch() -> None:
    assert merge_patch({"a": {"b": 1, "c": 2}, "l": [1]}, {"a": {"b": None}, "l": [2], "n": {"x": None}}) == {
        "a": {"c": 2},
        "l": [2],
        "n": {},
    }


def test_yaml_keeps_dates_and_refuses_aliases() -> None:
    assert parse_yaml(b"a: 2020-01-01\nb: yes", []) == {"a": "2020-01-01", "b": True}
    repeated: list[str] = []
    parse_yaml(b"a: 1\na: 2", repeated)
    assert repeated == ["a"]
    for text in (b"a: &x [1]\nb: *x", b"a: [", b"\xff"):
        with pytest.raises(ApiError):
            parse_yaml(text, [])


@pytest.mark.parametrize(
    ("resources", "name"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1"}, "requests": {"cpu": "1", "memory": "1"}}, "Guaranteed"),
        ({"limits": {"cpu": "2", "memory": "1"}, "requests": {"cpu": "1"}}, "Burstable"),
    ],
)
def test_quality_of_service(resources: dict, name: str) -> None:
    assert qos_class({"containers": [{"resources": resources}]}) == name
