"""Static checks of a CRD's CEL rules: syntax, fields, types, use of oldSelf, and estimated cost.

`validate_rules` walks an openAPIV3Schema and returns all errors in its x-kubernetes-validations, worded as upstream.
Types are checked as far as types.py can infer them; expressions of unknown type are accepted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from matrixcontainer.kubeapi.cel import cost, types
from matrixcontainer.kubeapi.cel.cost import Extent
from matrixcontainer.kubeapi.cel.environment import OLD_SELF, environment
from matrixcontainer.kubeapi.cel.values import unescape
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.jsonpath import JsonPath
from matrixcontainer.kubeapi.schema.structural import Schema

REASONS = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"]
ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)


@dataclass(frozen=True)
class RuleNode:
    """A node of the schema: its document and path, how often it can occur, and the path of the list that makes its old
    value uncorrelatable, if any."""

    node: dict[str, Any]
    path: str
    root: bool = True
    occurs: int = 1
    uncorrelated: str = ""


@dataclass
class CostBudget:
    total: int = 0
    expensive: list[tuple[int, str]] = field(default_factory=list)


def validate_rules(document: dict[str, Any], path: str) -> list[Cause]:
    """All errors in the rules of a CRD schema."""
    causes: list[Cause] = []
    budget = CostBudget()
    for place in _rule_nodes(RuleNode(document, path)):
        for index, rule in enumerate(place.node.get("x-kubernetes-validations") or []):
            causes += _check_rule(rule, f"{place.path}.x-kubernetes-validations[{index}]", place, budget)
    if budget.total > cost.SCHEMA_ESTIMATE_MAX:
        text = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        causes += [errors.forbidden_field(where, text) for _, where in sorted(budget.expensive, reverse=True)[:4]]
        what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        causes.append(errors.forbidden_field(path, _over_budget_message(what, budget.total / cost.SCHEMA_ESTIMATE_MAX)))
    return causes


def _rule_nodes(place: RuleNode) -> Iterator[RuleNode]:
    yield place
    node, path = place.node, place.path
    for name, child in (node.get("properties") or {}).items():
        yield from _rule_nodes(RuleNode(child, f"{path}.properties[{name}]", False, place.occurs, place.uncorrelated))
    for key, bound in (("items", "maxItems"), ("additionalProperties", "maxProperties")):
        child = node.get(key)
        if isinstance(child, dict):
            lost = place.uncorrelated
            if key == "items" and node.get("x-kubernetes-list-type") != "map":
                lost = lost or path
            occurs = place.occurs * cost.max_elements(node.get(bound), Schema(child), 0 if key == "items" else 3)
            yield from _rule_nodes(RuleNode(child, f"{path}.{key}", False, occurs, lost))


def _check_rule(rule: dict[str, Any], where: str, place: RuleNode, budget: CostBudget) -> list[Cause]:
    expression = rule.get("rule", "")
    if not expression.strip():
        return [errors.required(f"{where}.rule", "rule is not specified")]
    causes: list[Cause] = []
    schema = Schema(place.node)
    causes += _check_expression(expression, f"{where}.rule", schema, place.root, rule, "bool")
    if rule.get("messageExpression"):
        reported = rule["messageExpression"]
        causes += _check_expression(reported, f"{where}.messageExpression", schema, place.root, rule, "string")
    if place.uncorrelated and OLD_SELF.search(expression) and not rule.get("optionalOldSelf"):
        text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.uncorrelated}"
        causes.append(errors.invalid(f"{where}.rule", expression, text))
    if rule.get("reason") and rule["reason"] not in REASONS:
        causes.append(errors.not_supported(f"{where}.reason", rule["reason"], REASONS))
    if "\n" in (rule.get("message") or ""):
        causes.append(errors.invalid(f"{where}.message", rule["message"], "message must not contain line breaks"))
    if rule.get("fieldPath") and not _is_field(rule["fieldPath"], schema):
        text = "fieldPath must be a valid path"
        causes.append(errors.invalid(f"{where}.fieldPath", rule["fieldPath"], text))
    return causes or _check_cost(expression, f"{where}.rule", schema, place, budget)


def _check_cost(expression: str, where: str, schema: Schema, place: RuleNode, budget: CostBudget) -> list[Cause]:
    tree, _ = environment().compile(expression)
    if not cost.has_loops(tree):
        return []
    price = cost.cost(tree, {"self": Extent(schema), "oldSelf": Extent(schema)}) * place.occurs
    budget.total += price
    budget.expensive.append((price, where))
    if price <= cost.RULE_ESTIMATE_MAX:
        return []
    return [errors.forbidden_field(where, _over_budget_message("estimated rule cost", price / cost.RULE_ESTIMATE_MAX))]


def _over_budget_message(what: str, factor: float) -> str:
    return f"{what} exceeds budget by factor of {cost.format_factor(factor)} {ADVICE}"


def _check_expression(
    expression: str, path: str, schema: Schema, root: bool, rule: dict[str, Any], wanted: str
) -> list[Cause]:
    try:
        tree, _ = environment().compile(expression)
    except ValueError as failure:
        return [errors.invalid(path, expression, f"compilation failed: ERROR: <input>: {failure}")]
    for variable, *fields in _field_chains(tree):
        if variable == "oldSelf" and rule.get("optionalOldSelf"):
            continue
        if missing := _first_missing(schema, fields, root):
            text = f"undefined field '{missing}'"
            return [errors.invalid(path, expression, _with_marker(expression, text, expression.find(f".{missing}")))]
    known = {"self": schema} if rule.get("optionalOldSelf") else {"self": schema, "oldSelf": schema}
    if odd := types.mismatch(tree, known):
        operator, left, right = odd
        text = f"found no matching overload for '{operator}' applied to '({left}, {right})'"
        return [errors.invalid(path, expression, _with_marker(expression, text, expression.find(operator.strip("_"))))]
    result = types.type_of(tree, known)
    if result and result != wanted:
        what = "messageExpression must evaluate to a string"
        return [errors.invalid(path, expression, "must evaluate to a bool" if wanted == "bool" else what)]
    return []


def _with_marker(expression: str, text: str, at: int) -> str:
    """The message with the expression and a marker at the position of the error."""
    if at < 0 or "\n" in expression:
        return f"compilation failed: ERROR: <input>: {text}"
    return f"compilation failed: ERROR: <input>:1:{at + 1}: {text}\n | {expression}\n | {'.' * at}^"


def _field_chains(tree: Any) -> Iterator[list[str]]:
    """All field selections on self and oldSelf in a syntax tree: `self.a.b` as [self, a, b]."""
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
    """The first field that the schema does not define; "" if all are defined or the type is unknown."""
    for name in fields:
        plain = unescape(name)
        if schema.type != "object" or (schema.preserve and not schema.properties):
            return ""
        if (root or schema.embedded) and plain in ("apiVersion", "kind", "metadata"):
            return ""
        if isinstance(schema.additional, Schema) or schema.additional is True:
            return ""
        if plain not in schema.properties:
            return name
        schema = schema.properties[plain]
        root = False
    return ""


def _is_field(path: str, schema: Schema) -> bool:
    """Whether a path like `.a.b['c']` names a field of the schema."""
    try:
        JsonPath(path)
    except ValueError:
        return False
    if "'" in path or "[" in path:
        return path.startswith((".", "["))
    at: Schema | None = schema
    for name in path.removeprefix(".").split("."):
        at = at.child(name) if at is not None else None
        if at is None:
            return False
    return path.startswith(".")
