"""Validation rules in CEL: compiled once per expression, evaluated at the node they stand on.

`check` runs all rules of a schema over an object; `check_rules` refuses, at the creation of a CRD, what does not
parse or names a field the schema does not have. Rules that mention `oldSelf` are about changes: they run only where
the old value can be found, through fields, maps and map lists. The engine (cel-python) is loaded when the first rule
is met. Contract: public documentation "Validation rules" of CustomResourceDefinitions. Cost limits are not computed:
the number of rule runs per request is bounded instead.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from matrixcontainer.kubeapi import errors
from matrixcontainer.kubeapi.cel_values import Optional, plain_cel, to_cel
from matrixcontainer.kubeapi.errors import ABSENT, Cause
from matrixcontainer.kubeapi.schema import Schema, join
from matrixcontainer.kubeapi.validation import correlate_list, type_of

RUNS_MAX = 20_000

Program = Callable[[dict[str, Any]], Any]
OLD_SELF = re.compile(r"\boldSelf\b")


class Environment:
    """The CEL engine with the Kubernetes functions, made once."""

    def __init__(self) -> None:
        import celpy

        from matrixcontainer.kubeapi.cel_functions import FUNCTIONS

        self.failures = (celpy.CELEvalError, ValueError, TypeError, KeyError, AttributeError, IndexError)
        self.parse_failure = celpy.CELParseError
        self.celpy = celpy
        self.engine = celpy.Environment()
        self.functions = FUNCTIONS

    def compile(self, expression: str) -> tuple[Any, Program]:
        """(syntax tree, program); raises ValueError with a text for people when it does not parse."""
        try:
            tree = self.engine.compile(expression)
        except self.parse_failure as failure:
            raise ValueError(f"Syntax error: {_first_line(failure)}") from failure
        program = self.engine.program(tree, functions=self.functions)
        return tree, program.evaluate


def _first_line(failure: Exception) -> str:
    text = str(failure.args[0] if failure.args else failure)
    return " ".join(text.split())[:200]


@lru_cache(maxsize=1)
def environment() -> Environment:
    return Environment()


@lru_cache(maxsize=2048)
def compiled(expression: str) -> Program:
    return environment().compile(expression)[1]


def evaluate(expression: str, variables: dict[str, Any]) -> bool:
    """Whether an expression holds over plain JSON values; ValueError with a text for people when it fails."""
    held = {name: plain_cel(value) for name, value in variables.items()}
    try:
        return bool(compiled(expression)(held))
    except environment().failures as failure:
        raise ValueError(_reason_of(failure)) from failure


# ---- running


def check(schema: Schema, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
    """What the rules say about an object, and about its change from `old`."""
    found: list[Cause] = []
    budget = [RUNS_MAX]
    _check_node(schema, obj, old if old is not None else ABSENT, "", found, budget, root=True)
    return found


def _check_node(
    schema: Schema, value: Any, old: Any, path: str, found: list[Cause], budget: list[int], root: bool = False
) -> None:
    if value is None or not schema.has_rules():
        return
    if schema.rules:
        _run_rules(schema, value, old, path, found, budget, root)
    if isinstance(value, dict):
        for key, item in value.items():
            child = schema.child(key)
            if child is not None:
                before = old.get(key, ABSENT) if isinstance(old, dict) else ABSENT
                inner = join(path, key) if key in schema.properties else f"{path}[{key}]"
                _check_node(child, item, before, inner, found, budget)
    elif isinstance(value, list) and schema.items is not None:
        former = correlate_list(schema, old) if isinstance(old, list) else None
        for index, item in enumerate(value):
            before = former(index, item) if former is not None else ABSENT
            _check_node(schema.items, item, before, f"{path}[{index}]", found, budget)


def _run_rules(
    schema: Schema, value: Any, old: Any, path: str, found: list[Cause], budget: list[int], root: bool
) -> None:
    present = to_cel(value, schema, root)
    unchanged = old is not ABSENT and old == value
    for rule in schema.rules:
        expression = rule["rule"]
        variables = {"self": present}
        if OLD_SELF.search(expression):
            if rule.get("optionalOldSelf"):
                variables["oldSelf"] = Optional(to_cel(old, schema, root) if old is not ABSENT else ABSENT)
            elif old is ABSENT or old is None:
                continue
            else:
                variables["oldSelf"] = to_cel(old, schema, root)
        elif unchanged:
            continue  # what was accepted once is not judged again
        budget[0] -= 1
        if budget[0] < 0:
            text = "validation rules ran too often for one request: actual cost limit exceeded"
            found.append(errors.invalid(path, type_of(value), text))
            return
        where = path + _field_path(rule.get("fieldPath", ""), path)
        try:
            if bool(compiled(expression)(variables)):
                continue
            message = _message(rule, variables)
        except environment().failures as failure:
            message = f"rule evaluation error: {_reason_of(failure)}, rule: {expression}"
        found.append(_cause(rule.get("reason", ""), where, value, message))


def _field_path(text: str, path: str) -> str:
    return text if path or not text.startswith(".") else text[1:]


def _reason_of(failure: BaseException) -> str:
    text = str(failure.args[0]) if failure.args else str(failure)
    return text.replace("no such member in mapping:", "no such key:")[:300]


def _message(rule: dict[str, Any], variables: dict[str, Any]) -> str:
    if rule.get("messageExpression"):
        try:
            text = str(compiled(rule["messageExpression"])(variables)).strip()
            if text and "\n" not in text:
                return text
        except environment().failures:
            pass
    return rule.get("message") or f"failed rule: {' '.join(rule['rule'].split())}"


def _cause(reason: str, path: str, value: Any, message: str) -> Cause:
    shown = type_of(value) if isinstance(value, (dict, list)) else value
    if reason == "FieldValueForbidden":
        return errors.forbidden_field(path, message)
    if reason == "FieldValueRequired":
        return errors.required(path, message)
    if reason == "FieldValueDuplicate":
        return errors.duplicate(path, shown)
    return errors.invalid(path, shown, message)


# ---- checking the rules themselves


def check_rules(document: dict[str, Any], path: str) -> list[Cause]:
    """Rules of a CRD schema that cannot be right: syntax errors and fields that do not exist."""
    found: list[Cause] = []
    for node, where, root in _nodes(document, path):
        for index, rule in enumerate(node.get("x-kubernetes-validations") or []):
            place = f"{where}.x-kubernetes-validations[{index}]"
            expression = rule.get("rule", "")
            if not expression.strip():
                found.append(errors.required(f"{place}.rule", "rule is not specified"))
                continue
            for key in ("rule", "messageExpression"):
                if rule.get(key):
                    found += _check_expression(
                        rule[key], f"{place}.{key}", node, root, bool(rule.get("optionalOldSelf"))
                    )
            reasons = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"]
            if rule.get("reason") and rule["reason"] not in reasons:
                found.append(errors.not_supported(f"{place}.reason", rule["reason"], reasons))
            if "\n" in (rule.get("message") or ""):
                found.append(
                    errors.invalid(f"{place}.message", rule["message"], "message must not contain line breaks")
                )
    return found


def _nodes(node: dict[str, Any], path: str, root: bool = True) -> Iterator[tuple[dict[str, Any], str, bool]]:
    yield node, path, root
    for name, child in (node.get("properties") or {}).items():
        yield from _nodes(child, f"{path}.properties[{name}]", False)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from _nodes(node[key], f"{path}.{key}", False)


def _check_expression(expression: str, path: str, node: dict[str, Any], root: bool, optional: bool) -> list[Cause]:
    try:
        tree, _ = environment().compile(expression)
    except ValueError as failure:
        return [errors.invalid(path, expression, f"compilation failed: ERROR: <input>: {failure}")]
    schema = Schema(node)
    found = []
    for names in _field_chains(tree):
        variable, *fields = names
        if variable == "oldSelf" and optional:
            continue
        missing = _first_missing(schema, fields, root)
        if missing:
            found.append(
                errors.invalid(path, expression, f"compilation failed: ERROR: <input>: undefined field '{missing}'")
            )
    return found[:1]


def _field_chains(tree: Any) -> Iterator[list[str]]:
    """Every `self.a.b` in a syntax tree, as names from the variable outwards."""
    for node in tree.find_data("member_dot"):
        names: list[str] = []
        at = node
        while True:
            if at.data == "member_dot":
                names.insert(0, str(at.children[1]))
                at = at.children[0]
            elif at.data in ("member", "primary") and len(at.children) == 1:
                at = at.children[0]
            elif at.data == "ident":
                if str(at.children[0]) in ("self", "oldSelf"):
                    yield [str(at.children[0]), *names]
                break
            else:
                break


def _first_missing(schema: Schema, fields: list[str], root: bool) -> str:
    """The first field the schema does not know; "" when all are known or nothing can be said."""
    from matrixcontainer.kubeapi.cel_values import unescape

    for field in fields:
        name = unescape(field)
        if schema.type != "object" or (schema.preserve and not schema.properties):
            return ""
        if (root or schema.embedded) and name in ("apiVersion", "kind", "metadata"):
            return ""
        if isinstance(schema.additional, Schema) or schema.additional is True:
            return ""
        if name not in schema.properties:
            return field
        schema = schema.properties[name]
        root = False
    return ""
