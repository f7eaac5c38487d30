"""CEL validation rules: compiled once per expression, evaluated at the schema node that declares them.

`check` runs all rules of a schema on an object; checker.py checks the rules themselves when a CRD is written. Rules
that use `oldSelf` are transition rules: they run only where the old value can be correlated, through fields, maps and
map lists. The grammar (cel-python) is loaded with the first rule; compiler.py makes the rules executable. The cost of
rules is estimated when they are written (cost.py) and counted when they run (meter.py). Contract: public documentation
"Validation rules" of CustomResourceDefinitions.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from matrixcontainer.kubeapi.cel import cost
from matrixcontainer.kubeapi.cel.meter import BudgetExceeded, metered
from matrixcontainer.kubeapi.cel.preprocess import rewrite_syntax
from matrixcontainer.kubeapi.cel.values import Optional, plain_cel, to_cel
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ABSENT, Cause
from matrixcontainer.kubeapi.schema.structural import Schema, join, same_json
from matrixcontainer.kubeapi.schema.validation import correlate_list

Program = Callable[[dict[str, Any]], Any]
EXPRESSION_MAX = 100_000
"""As in cel-go, in code points."""
BUDGET_EXCEEDED = "validation failed due to running out of cost budget, no further validation rules will be run"
OLD_SELF = re.compile(r"\boldSelf\b")


class Environment:
    """The CEL engine with the Kubernetes functions; created once."""

    def __init__(self) -> None:
        import celpy

        from matrixcontainer.kubeapi.cel.compiler import FAILURES, program

        self.failures = (celpy.CELEvalError, *FAILURES)
        self.parse_failure = celpy.CELParseError
        self.celpy = celpy
        self.engine = celpy.Environment()
        self.program = program

    def compile(self, expression: str) -> tuple[Any, Program]:
        """Return (syntax tree, program). Raises ValueError with a readable message if the expression is invalid."""
        if len(expression) > EXPRESSION_MAX:
            size = f"size: {len(expression)}, limit: {EXPRESSION_MAX}"
            raise ValueError(f"expression code point size exceeds limit: {size}")
        try:
            tree = self.engine.compile(rewrite_syntax(expression))
            return tree, self.program(tree)
        except self.parse_failure as failure:
            raise ValueError(f"Syntax error: {_first_line(failure)}") from failure
        except RecursionError:
            raise ValueError("expression recursion limit exceeded") from None


def _first_line(failure: Exception) -> str:
    text = str(failure.args[0] if failure.args else failure)
    return " ".join(text.split())[:200]


@lru_cache(maxsize=1)
def environment() -> Environment:
    return Environment()


@lru_cache(maxsize=2048)
def compile_rule(expression: str) -> Program:
    return environment().compile(expression)[1]


def evaluate(expression: str, variables: dict[str, Any]) -> bool:
    """Evaluate an expression on plain JSON values. Raises ValueError with a readable message if it fails."""
    current = {name: plain_cel(value) for name, value in variables.items()}
    try:
        with metered(cost.CALL_MAX):
            return bool(compile_rule(expression)(current))
    except BudgetExceeded:
        raise ValueError("operation cancelled: actual cost limit exceeded") from None
    except environment().failures as failure:
        raise ValueError(_failure_reason(failure)) from failure


# ---- running


def check(schema: Schema, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
    """Run all rules on an object, and transition rules on its change from `old`; return the violations."""
    causes: list[Cause] = []
    budget = [cost.REQUEST_MAX]
    _check_node(schema, obj, old if old is not None else ABSENT, "", causes, budget, root=True)
    return causes


def _check_node(
    schema: Schema, value: Any, old: Any, path: str, causes: list[Cause], budget: list[int], root: bool = False
) -> None:
    if value is None or not schema.has_rules() or budget[0] < 0:
        return
    if schema.rules:
        _run_rules(schema, value, old, path, causes, budget, root)
    if isinstance(value, dict):
        for key, item in value.items():
            child = schema.child(key)
            if child is not None:
                before = old.get(key, ABSENT) if isinstance(old, dict) else ABSENT
                inner = join(path, key) if key in schema.properties else f"{path}[{key}]"
                _check_node(child, item, before, inner, causes, budget)
    elif isinstance(value, list) and schema.items is not None:
        previous = correlate_list(schema, old) if isinstance(old, list) else None
        for index, item in enumerate(value):
            before = previous(index, item) if previous is not None else ABSENT
            _check_node(schema.items, item, before, f"{path}[{index}]", causes, budget)


def _run_rules(
    schema: Schema, value: Any, old: Any, path: str, causes: list[Cause], budget: list[int], root: bool
) -> None:
    present = to_cel(value, schema, root)
    unchanged = old is not ABSENT and same_json(old, value)
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
            continue  # unchanged values are not checked again
        where = path + _field_path(rule.get("fieldPath", ""), path)
        units = min(cost.CALL_MAX, budget[0])
        with metered(units) as meter:
            try:
                message = "" if compile_rule(expression)(variables) else _message(rule, variables)
            except BudgetExceeded:
                causes.append(
                    errors.invalid(
                        path, schema.type, _call_cost_exceeded(rule) if units == cost.CALL_MAX else BUDGET_EXCEEDED
                    )
                )
                budget[0] = -1
                return
            except environment().failures as failure:
                message = f"{_failure_reason(failure)} evaluating rule: {rule.get('message') or expression}".strip()
        budget[0] -= 1 + units - meter.remaining  # also if evaluation failed
        if message:
            causes.append(_cause(rule.get("reason", ""), where, schema.type, message))


def _call_cost_exceeded(rule: dict[str, Any]) -> str:
    text = rule.get("message") or rule["rule"]
    return f"call cost exceeds limit for rule: {text}, no further validation rules will be run"


def _field_path(text: str, path: str) -> str:
    return text if path or not text.startswith(".") else text[1:]


def _failure_reason(failure: BaseException) -> str:
    return str(failure.args[0] if failure.args else failure)[:300]


def _message(rule: dict[str, Any], variables: dict[str, Any]) -> str:
    if rule.get("messageExpression"):
        try:
            text = str(compile_rule(rule["messageExpression"])(variables)).strip()
            if text and "\n" not in text:
                return text
        except environment().failures:
            pass
    return rule.get("message") or f"failed rule: {' '.join(rule['rule'].split())}"


def _cause(reason: str, path: str, shown: str, message: str) -> Cause:
    """The cause of a violation; it shows the value's type instead of the value, as upstream does."""
    if reason == "FieldValueForbidden":
        return errors.forbidden_field(path, message)
    if reason == "FieldValueRequired":
        return errors.required(path, message)
    if reason == "FieldValueDuplicate":
        return errors.duplicate(path, shown)
    return errors.invalid(path, shown, message)
