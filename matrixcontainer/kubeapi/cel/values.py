"""Conversion of JSON values to CEL values by their schema: numbers, times, durations and escaped names."""

from functools import lru_cache
from typing import Any

from matrixcontainer.kubeapi.meta.errors import ABSENT
from matrixcontainer.kubeapi.schema.structural import Schema

RESERVED = frozenset(
    ["true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package", "namespace", "return", "var", "void", "while"]  # noqa: E501
)  # fmt: skip
INT64 = 2**63
SPELLED = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))


class Optional:
    """A CEL optional: a value or none."""

    def __init__(self, value: Any = ABSENT) -> None:
        self.value = value

    @property
    def present(self) -> bool:
        return self.value is not ABSENT


@lru_cache(maxsize=4096)
def escape(name: str) -> str:
    """A property name as CEL rules write it: `__dash__` for -, `__namespace__` for reserved words."""
    if name in RESERVED:
        return f"__{name}__"
    for plain, spelled in SPELLED:
        name = name.replace(plain, spelled)
    return name


def unescape(name: str) -> str:
    if name.startswith("__") and name.endswith("__") and name[2:-2] in RESERVED:
        return name[2:-2]
    for plain, spelled in reversed(SPELLED):
        name = name.replace(spelled, plain)
    return name


def to_cel(value: Any, schema: Schema | None, root: bool = False) -> Any:
    """Convert a JSON value by its schema; parts without a schema by their JSON type."""
    from celpy import celtypes

    if value is None:
        return None
    if isinstance(value, bool):
        return celtypes.BoolType(value)
    if isinstance(value, int):
        if schema is not None and schema.type == "number":
            return celtypes.DoubleType(value)
        return celtypes.IntType(value)
    if isinstance(value, float):
        if schema is not None and schema.type == "integer" and abs(value) < INT64:
            return celtypes.IntType(int(value))
        return celtypes.DoubleType(value)
    if isinstance(value, str):
        return _text(value, schema)
    if isinstance(value, list):
        items = schema.items if schema is not None else None
        return celtypes.ListType([to_cel(item, items) for item in value])
    found = {}
    for key, item in value.items():
        declared = schema is not None and key in schema.properties
        name = escape(key) if declared or schema is None else key
        found[celtypes.StringType(name)] = to_cel(item, schema.child(key) if schema is not None else None)
    if root and "metadata" in value:
        kept = {key: value["metadata"][key] for key in ("name", "generateName") if key in value["metadata"]}
        found[celtypes.StringType("metadata")] = to_cel(kept, None)
    return celtypes.MapType(found)


def plain_cel(value: Any) -> Any:
    """Convert a JSON value without a schema; names are not escaped."""
    from celpy import celtypes

    if isinstance(value, dict):
        return celtypes.MapType({celtypes.StringType(key): plain_cel(item) for key, item in value.items()})
    if isinstance(value, list):
        return celtypes.ListType([plain_cel(item) for item in value])
    return to_cel(value, None)


def _text(value: str, schema: Schema | None) -> Any:
    from celpy import celtypes

    form = schema.format if schema is not None else ""
    try:
        if form in ("date-time", "date"):
            return celtypes.TimestampType(value)
        if form == "duration":
            return celtypes.DurationType(value)
        if form == "byte":
            import base64

            return celtypes.BytesType(base64.b64decode(value))
    except (ValueError, TypeError):
        pass
    return celtypes.StringType(value)
