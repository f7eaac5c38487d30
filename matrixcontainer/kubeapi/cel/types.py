"""Partial type inference from the syntax tree and the schema: fields, results and simple comparisons.

A type is string, int, uint, double, bool or list, or "" if unknown; unknown types are never rejected.
"""

from typing import Any

from matrixcontainer.kubeapi.schema.structural import Schema

SCALARS = {"string": "string", "integer": "int", "number": "double", "boolean": "bool", "array": "list"}
SCALAR_TYPES = frozenset(("string", "int", "double", "bool"))
SPECIAL = ("date-time", "date", "duration", "byte")
TRUE_OR_FALSE = frozenset(("startsWith", "endsWith", "matches", "contains", "all", "exists", "exists_one", "hasValue"))
RELATIONS = {
    "relation_eq": "_==_", "relation_ne": "_!=_", "relation_lt": "_<_", "relation_le": "_<=_", "relation_gt": "_>_",
    "relation_ge": "_>=_", "relation_in": "@in",
}  # fmt: skip
LITERALS = {
    "INT_LIT": "int", "UINT_LIT": "uint", "FLOAT_LIT": "double", "STRING_LIT": "string", "MLSTRING_LIT": "string",
    "BOOL_LIT": "bool",
}  # fmt: skip


def type_of_schema(schema: Schema | None) -> str:
    if schema is None or schema.int_or_string or schema.format in SPECIAL or schema.nullable:
        return ""
    return SCALARS.get(schema.type, "")


def type_of(tree: Any, known: dict[str, Schema]) -> str:
    data = getattr(tree, "data", None)
    if data is None:
        return LITERALS.get(getattr(tree, "type", ""), "")
    children = tree.children
    if data == "expr" and len(children) == 3:
        return type_of(children[1], known)
    if data in ("conditionalor", "conditionaland", "relation") and len(children) > 1:
        return "bool"
    if data in ("addition", "multiplication", "unary") and len(children) > 1:
        return "bool" if _starts_with(children[0], "unary_not") else ""
    if data == "member_dot_arg":
        return "bool" if str(children[1]) in TRUE_OR_FALSE else "int" if str(children[1]) == "size" else ""
    if data == "ident_arg":
        return {"has": "bool", "size": "int", "string": "string", "int": "int"}.get(str(children[0]), "")
    if data in ("ident", "member_dot"):
        return type_of_schema(schema_at(tree, known))
    return type_of(children[0], known) if len(children) == 1 else ""


def schema_at(tree: Any, known: dict[str, Schema]) -> Schema | None:
    data = getattr(tree, "data", None)
    if data == "ident":
        return known.get(str(tree.children[0]))
    if data == "member_dot":
        holder = schema_at(tree.children[0], known)
        return holder.properties.get(str(tree.children[1])) if holder is not None else None
    if data in ("member", "primary") and len(tree.children) == 1:
        return schema_at(tree.children[0], known)
    return None


def mismatch(tree: Any, known: dict[str, Schema]) -> tuple[str, str, str] | None:
    """(operator, left type, right type) of the first comparison of scalars of different types by == or !=."""
    for node in tree.find_data("relation"):
        if len(node.children) != 2 or getattr(node.children[0], "data", "") not in ("relation_eq", "relation_ne"):
            continue
        left, right = type_of(node.children[0].children[0], known), type_of(node.children[1], known)
        if left in SCALAR_TYPES and right in SCALAR_TYPES and left != right:
            return RELATIONS[node.children[0].data], left, right
    return None


def _starts_with(tree: Any, data: str) -> bool:
    return getattr(tree, "data", "") == data
