"""Compiles CEL expressions to nested Python functions, so that the syntax tree is walked only once.

Grammar, syntax tree, value types and standard functions are cel-python's; only evaluation is ours, because cel-python's
is a hundred times slower and rules run at every write. Errors are exceptions, which `&&`, `||`, `all` and `exists`
suppress if another operand or item decides the result. Contract: the public CEL specification; a property test compares
results with cel-python's.
"""

from collections.abc import Callable, Iterable
from typing import Any

import lark
from celpy import celtypes
from celpy.evaluation import base_functions, celbytes, celstr

from matrixcontainer.kubeapi.cel import operators as operators
from matrixcontainer.kubeapi.cel.library import FUNCTIONS, select_optional
from matrixcontainer.kubeapi.cel.meter import charged, charged_items
from matrixcontainer.kubeapi.cel.operators import FALSE, TRUE, EvaluationError, as_bool
from matrixcontainer.kubeapi.cel.values import Optional

Scope = dict[str, Any]
Step = Callable[[Scope], Any]

FAILURES = (EvaluationError, ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError)
CALLS: dict[str, Callable[..., Any]] = {
    name: charged(function)
    for name, function in {**base_functions, **FUNCTIONS, "type": type, "dyn": lambda value: value}.items()
}
TYPES = {
    name: base_functions[name]
    for name in ("bool", "bytes", "double", "duration", "int", "list", "map", "string", "timestamp", "uint")
} | {"null_type": type(None), "type": type}


def program(tree: lark.Tree) -> Step:
    """Compile a syntax tree to a function of the variables. Raises ValueError for unsupported expressions."""
    return _build(tree)


def _build(tree: Any) -> Step:
    rule = BUILDERS.get(tree.data)
    if rule is not None:
        return rule(tree)
    if len(tree.children) == 1:
        return _build(tree.children[0])
    raise ValueError(f"unsupported expression: {tree.data}")


# ---- choices


def _expr(tree: Any) -> Step:
    if len(tree.children) == 1:
        return _build(tree.children[0])
    condition, chosen, other = (_build(child) for child in tree.children)
    return lambda scope: chosen(scope) if as_bool(condition(scope)) else other(scope)


def _logical(tree: Any, decisive: bool) -> Step:
    """`||` if `decisive` is True, `&&` if it is False."""
    if len(tree.children) == 1:
        return _build(tree.children[0])
    left, right = (_build(child) for child in tree.children)
    decided, undecided = (TRUE, FALSE) if decisive else (FALSE, TRUE)

    def step(scope: Scope) -> Any:
        try:
            if as_bool(left(scope)) is decisive:
                return decided
        except FAILURES:
            if as_bool(right(scope)) is decisive:
                return decided
            raise
        return decided if as_bool(right(scope)) is decisive else undecided

    return step


# ---- operators


def _binary(tree: Any) -> Step:
    if len(tree.children) == 1:
        return _build(tree.children[0])
    head, right = tree.children[0], _build(tree.children[1])
    left, operate = _build(head.children[0]), operators.BINARY[head.data]
    return lambda scope: operate(left(scope), right(scope))


def _unary(tree: Any) -> Step:
    if len(tree.children) == 1:
        return _build(tree.children[0])
    operate, inner = operators.UNARY[tree.children[0].data], _build(tree.children[1])
    return lambda scope: operate(inner(scope))


# ---- members


def _select(tree: Any) -> Step:
    holder, name = _build(tree.children[0]), celtypes.StringType(tree.children[1])

    def step(scope: Scope) -> Any:
        current = holder(scope)
        if isinstance(current, dict):
            found = dict.get(current, name, current)  # the map itself marks a missing key
            if found is current:
                raise EvaluationError(f"no such key: {name}")
            return found
        if isinstance(current, Optional):
            return select_optional(current, name)
        raise EvaluationError("no such overload")

    return step


def _index(tree: Any) -> Step:
    holder, position = (_build(child) for child in tree.children)
    return lambda scope: operators.at(holder(scope), position(scope))


def _arguments(tree: Any) -> list[Any]:
    return [] if tree is None else list(tree.children)


def _method(tree: Any) -> Step:
    holder, name = tree.children[0], str(tree.children[1])
    arguments = _arguments(tree.children[2] if len(tree.children) > 2 else None)
    if name in MACROS and len(arguments) in MACROS[name][1]:
        return MACROS[name][0](_build(holder), _variable(arguments[0]), [_build(one) for one in arguments[1:]])
    return _call(name, [_build(holder), *map(_build, arguments)])


def _function(tree: Any) -> Step:
    name = str(tree.children[0])
    arguments = _arguments(tree.children[1] if len(tree.children) > 1 else None)
    if name == "has":
        return _has(arguments)
    return _call(name, [_build(one) for one in arguments])


def _call(name: str, steps: list[Step]) -> Step:
    call = CALLS.get(name)
    if call is None:
        raise ValueError(f"undeclared reference to '{name}' (in container '')")

    def step(scope: Scope) -> Any:
        try:
            found = call(*[one(scope) for one in steps])
        except TypeError:
            raise EvaluationError("no such overload") from None
        if isinstance(found, Exception):
            raise found
        return found

    return step


def _has(arguments: list[Any]) -> Step:
    inner = _only(arguments[0], "member_dot") if len(arguments) == 1 else None
    if inner is None:
        raise ValueError("invalid argument to has() macro")
    holder, name = _build(inner.children[0]), celtypes.StringType(inner.children[1])

    def step(scope: Scope) -> Any:
        current = holder(scope)
        if isinstance(current, Optional):
            current = current.value
        return TRUE if isinstance(current, dict) and dict.__contains__(current, name) else FALSE

    return step


def _only(tree: Any, wanted: str) -> Any:
    """The first node of that kind down a chain of only children, or None."""
    while isinstance(tree, lark.Tree):
        if tree.data == wanted:
            return tree
        if len(tree.children) != 1:
            return None
        tree = tree.children[0]
    return None


# ---- macros


def _variable(tree: Any) -> str:
    found = _only(tree, "ident")
    if found is None:
        raise ValueError("argument must be a simple name")
    return str(found.children[0])


def _elements(holder: Step, scope: Scope) -> Iterable[Any]:
    """The items of a list or the keys of a map."""
    current = holder(scope)
    if not isinstance(current, (list, dict)):
        raise EvaluationError("no such overload")
    return charged_items(current)


def _quantifier(decisive: bool) -> Callable[[Step, str, list[Step]], Step]:
    decided, undecided = (TRUE, FALSE) if decisive else (FALSE, TRUE)

    def build(holder: Step, name: str, bodies: list[Step]) -> Step:
        (body,) = bodies

        def step(scope: Scope) -> Any:
            inner, failure = dict(scope), None
            for item in _elements(holder, scope):
                inner[name] = item
                try:
                    if as_bool(body(inner)) is decisive:
                        return decided
                except FAILURES as caught:
                    failure = caught
            if failure is not None:
                raise failure
            return undecided

        return step

    return build


def _exists_one(holder: Step, name: str, bodies: list[Step]) -> Step:
    (body,) = bodies

    def step(scope: Scope) -> Any:
        inner, count = dict(scope), 0
        for item in _elements(holder, scope):
            inner[name] = item
            count += as_bool(body(inner))
        return TRUE if count == 1 else FALSE

    return step


def _filter(holder: Step, name: str, bodies: list[Step]) -> Step:
    return _map(holder, name, [*bodies, lambda scope: scope[name]])


def _map(holder: Step, name: str, bodies: list[Step]) -> Step:
    """`map(x, result)` or `map(x, condition, result)`."""
    *conditions, body = bodies

    def step(scope: Scope) -> Any:
        inner, found = dict(scope), celtypes.ListType()
        for item in _elements(holder, scope):
            inner[name] = item
            if all(as_bool(condition(inner)) for condition in conditions):
                list.append(found, body(inner))
        return found

    return step


def _optional_map(flat: bool) -> Callable[[Step, str, list[Step]], Step]:
    def build(holder: Step, name: str, bodies: list[Step]) -> Step:
        (body,) = bodies

        def step(scope: Scope) -> Any:
            current = holder(scope)
            if not isinstance(current, Optional):
                raise EvaluationError("no such overload")
            if not current.present:
                return current
            found = body(scope | {name: current.value})
            return found if flat else Optional(found)

        return step

    return build


Macro = Callable[[Step, str, list[Step]], Step]
MACROS: dict[str, tuple[Macro, tuple[int, ...]]] = {
    "all": (_quantifier(False), (2,)),
    "exists": (_quantifier(True), (2,)),
    "exists_one": (_exists_one, (2,)),
    "existsOne": (_exists_one, (2,)),
    "filter": (_filter, (2,)),
    "map": (_map, (2, 3)),
    "optMap": (_optional_map(False), (2,)),
    "optFlatMap": (_optional_map(True), (2,)),
}


# ---- values


def _ident(tree: Any) -> Step:
    name = str(tree.children[0])
    stands_for = TYPES.get(name, EvaluationError)

    def step(scope: Scope) -> Any:
        found = scope.get(name, stands_for)
        if found is EvaluationError:
            raise EvaluationError(f"undeclared reference to '{name}' (in container '')")
        return found

    return step


READERS: dict[str, Callable[[Any], Any]] = {
    "FLOAT_LIT": celtypes.DoubleType,
    "INT_LIT": lambda token: celtypes.IntType(int(token, 0) if "x" in token else int(token)),
    "UINT_LIT": lambda token: celtypes.UintType(int(token[:-1], 0) if "x" in token else int(token[:-1])),
    "STRING_LIT": celstr,
    "MLSTRING_LIT": celstr,
    "BYTES_LIT": celbytes,
    "BOOL_LIT": lambda token: TRUE if token == "true" else FALSE,
    "NULL_LIT": lambda token: None,
}


def _literal(tree: Any) -> Step:
    (token,) = tree.children
    value = READERS[token.type](token)
    return lambda scope: value


def _list(tree: Any) -> Step:
    steps = [_build(one) for one in _arguments(tree.children[0] if tree.children else None)]
    return lambda scope: celtypes.ListType([step(scope) for step in steps])


def _entries(tree: Any) -> Step:
    steps = [_build(one) for one in _arguments(tree.children[0] if tree.children else None)]
    pairs = list(zip(steps[::2], steps[1::2], strict=True))

    def step(scope: Scope) -> Any:
        found = celtypes.MapType()
        for key, value in pairs:
            name = key(scope)
            if dict.__contains__(found, name):
                raise EvaluationError(f"insert failed: key {name} already exists")
            dict.__setitem__(found, name, value(scope))
        return found

    return step


BUILDERS: dict[str, Callable[[Any], Step]] = {
    "expr": _expr,
    "conditionalor": lambda tree: _logical(tree, True),
    "conditionaland": lambda tree: _logical(tree, False),
    "relation": _binary,
    "addition": _binary,
    "multiplication": _binary,
    "unary": _unary,
    "member_dot": _select,
    "member_dot_arg": _method,
    "member_index": _index,
    "ident": _ident,
    "dot_ident": _ident,
    "ident_arg": _function,
    "dot_ident_arg": _function,
    "literal": _literal,
    "list_lit": _list,
    "map_lit": _entries,
}
