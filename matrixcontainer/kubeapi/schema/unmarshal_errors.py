"""What Go's JSON decoder says of a value that does not fit a built-in type: the first mistake, in document order."""

import re
from typing import Any

from matrixcontainer.kubeapi.schema.types import flat_rows

JSON_NAMES: dict[type, str] = {
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    list: "array",
    dict: "object",
}
GO_SCALARS = {"int": "int32", "bytes": "[]uint8", "quantity": "resource.Quantity"}
INTEGERS = {"int": 32, "int32": 32, "int64": 64}
LAYOUT = "2006-01-02T15:04:05Z07:00"
MOMENT = (  # what stands for each part of a moment, and how it is recognised
    ("2006", r"\d{4}"), ("-", "-"), ("01", r"0[1-9]|1[0-2]"), ("-", "-"), ("02", r"0[1-9]|[12]\d|3[01]"), ("T", "T"),
    ("15", r"[01]\d|2[0-3]"), (":", ":"), ("04", r"[0-5]\d"), (":", ":"), ("05", r"[0-5]\d(?:\.\d+)?"),
    ("Z07:00", r"Z|[+-]\d\d:\d\d"),
)  # fmt: skip


def json_name(value: Any) -> str:
    """What Go's decoder calls a value of this kind."""
    return JSON_NAMES.get(type(value), "null")


def unmarshal_mistake(type_name: str, value: Any) -> str:
    """Why the value cannot be decoded into the struct, or ""."""
    return _struct_mistake(type_name, value, "", "")


def _struct_mistake(name: str, value: Any, owner: str, path: str) -> str:
    if not isinstance(value, dict):
        return _mismatch(value, owner, path, _go_name(name))
    own = name.rsplit(".", 1)[1]
    rows = flat_rows(name)
    for key, item in value.items():
        if key in rows and item is not None:
            inner = f"{path}.{key}" if path else key
            if why := _mistake(rows[key][2], item, own, inner):
                return why
    return ""


def _mistake(kind: str, value: Any, owner: str, path: str) -> str:
    if value is None:
        return ""
    if kind.startswith("[]") or kind.startswith("wrapped:"):
        if not isinstance(value, list):
            return _mismatch(value, owner, path, _go_name(kind))
        inner = kind.removeprefix("[]").removeprefix("wrapped:")
        return next((why for item in value if (why := _mistake(inner, item, owner, path))), "")
    if kind.startswith("map:"):
        if not isinstance(value, dict):
            return _mismatch(value, owner, path, _go_name(kind))
        return next((why for item in value.values() if (why := _mistake(kind[4:], item, owner, path))), "")
    if "." in kind:
        return _struct_mistake(kind, value, owner, path)
    if kind in ("time", "microtime"):
        if not isinstance(value, str):
            return f"json: cannot unmarshal {json_name(value)} into Go value of type string"
        return _moment_mistake(value)
    return _scalar_mistake(kind, value, owner, path)


def _scalar_mistake(kind: str, value: Any, owner: str, path: str) -> str:
    if kind in INTEGERS:
        bits = INTEGERS[kind]
        if type(value) is int and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            return ""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return f"json: cannot unmarshal number {value} into Go struct field {owner}.{path} of type {_go_name(kind)}"
        return _mismatch(value, owner, path, _go_name(kind))
    wanted: dict[str, type | tuple[type, ...]] = {"string": str, "bool": bool, "bytes": str, "float64": (int, float)}
    if kind in wanted and (not isinstance(value, wanted[kind]) or (kind == "float64" and isinstance(value, bool))):
        return _mismatch(value, owner, path, _go_name(kind))
    return ""


def _mismatch(value: Any, owner: str, path: str, wanted: str) -> str:
    text = f"json: cannot unmarshal {json_name(value)} into Go "
    return text + (f"struct field {owner}.{path} of type {wanted}" if path else f"value of type {wanted}")


def _go_name(kind: str) -> str:
    if kind.startswith("[]") or kind.startswith("wrapped:"):
        return f"[]{_go_name(kind.removeprefix('[]').removeprefix('wrapped:'))}"
    if kind == "map:quantity":
        return "v1.ResourceList"
    if kind.startswith("map:"):
        return f"map[string]{_go_name(kind[4:])}"
    return ".".join(kind.split(".")[-2:]) if "." in kind else GO_SCALARS.get(kind, kind)


def _moment_mistake(text: str) -> str:
    rest = text
    for layout, pattern in MOMENT:
        found = re.match(pattern, rest)
        if found is None:
            return f'parsing time "{text}" as "{LAYOUT}": cannot parse "{rest}" as "{layout}"'
        rest = rest[found.end() :]
    return f'parsing time "{text}": extra text: "{rest}"' if rest else ""
