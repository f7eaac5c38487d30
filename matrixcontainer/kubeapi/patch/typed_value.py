"""Type checks of applied configurations, before server-side apply merges them.

Unlike validation they cover only structure: scalars, lists, maps, known fields, and unique members of sets and map
lists.
"""

from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.patch.field_set import child_schema, element_text, item_element
from matrixcontainer.kubeapi.schema.structural import Schema

NUMBER = ((int, float), "numeric (int or float)")
SHAPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "object": (dict, "map"),
    "array": (list, "list"),
    "string": (str, "string"),
    "boolean": (bool, "boolean"),
    "integer": NUMBER,
    "number": NUMBER,
}
Errors = list[tuple[str, str]]  # path, what is wrong there


def validate_typed(config: dict[str, Any], schema: Schema, api_version: str) -> None:
    """Raise ApiError 500, as upstream does, listing everything in the configuration with a wrong type."""
    found: Errors = []
    _check_map(config, schema, "", (), found)
    if not found:
        return
    meta = config.get("metadata")
    reported = meta if isinstance(meta, dict) else {}
    who = f"{reported.get('namespace', '')}/{reported.get('name', '')}"
    group = api_version if "/" in api_version else f"/{api_version}"
    texts = [f"{path}: {text}" if path else text for path, text in found]
    message = texts[0] if len(texts) == 1 else "errors:\n" + "\n".join(f"  {text}" for text in texts)
    raise errors.untyped(
        f"failed to create typed patch object ({who}; {group}, Kind={config.get('kind', '')}): {message}"
    )


def _check(value: Any, schema: Schema, at: str, path: tuple[str, ...], found: Errors) -> None:
    if value is None or schema.int_or_string or schema.type not in SHAPES:
        return
    python, name = SHAPES[schema.type]
    if not isinstance(value, python) or (isinstance(value, bool) and schema.type != "boolean"):
        found.append((at, f"expected {name}, got {errors.format_value(value)}"))
    elif isinstance(value, dict):
        _check_map(value, schema, at, path, found)
    elif isinstance(value, list):
        _check_list(value, schema, at, path, found)


def _check_map(value: dict[str, Any], schema: Schema, at: str, path: tuple[str, ...], errors: Errors) -> None:
    free = schema.preserve or (schema.additional is None and not schema.properties) or schema.additional is True
    for key, item in value.items():
        if path == () and key in ("apiVersion", "kind"):
            continue
        inner = (*path, f"f:{key}")
        declared = key in schema.properties or (path == () and key == "metadata")
        if declared or isinstance(schema.additional, Schema):
            _check(item, child_schema(schema, key, path), f"{at}.{key}", inner, errors)
        elif not free:
            errors.append((f"{at}.{key}", "field not declared in schema"))
            return


def _check_list(value: list[Any], schema: Schema, at: str, path: tuple[str, ...], errors: Errors) -> None:
    seen: set[str] = set()
    for index, item in enumerate(value):
        where = f"[{index}]"
        if schema.list_type in ("set", "map"):
            if message := _invalid_member(item, schema):
                errors.append((at, f"element {index}: {message}"))
                return
            element = item_element(schema, item)
            where = element_text(element)
            if element in seen:
                errors.append((at, f"duplicate entries for key {where}"))
            seen.add(element)
        if schema.items is not None:
            _check(item, schema.items, at + where, (*path, where), errors)


def _invalid_member(item: Any, schema: Schema) -> str:
    """Why an item cannot be a member of a set or map list; empty if it can."""
    if schema.list_type == "set":
        if isinstance(item, dict):
            return "associative list without keys has an element that's a map type"
        if isinstance(item, list):
            return "not supported: associative list with lists as elements"
        return "associative list without keys has an element that's an explicit null" if item is None else ""
    if item is None:
        return "associative list with keys may not have a null element"
    if not isinstance(item, dict):
        return "associative list with keys may not have non-map elements"
    if schema.items is None or schema.items.ref:
        return ""  # keys of built-in types have defaults
    for key in schema.list_keys:
        field = schema.items.properties.get(key)
        if key not in item and (field is None or not field.has_default()):
            return f'associative list with keys has an element that omits key field "{key}" (and doesn\'t have default value)'  # noqa: E501
    return ""
