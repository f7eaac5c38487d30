"""The three patches that are not apply: JSON patch, JSON merge patch, and strategic merge for built-in kinds.

Each takes a fresh object and returns the patched one; what cannot be done is an ApiError and leaves nothing half
done. JSON patch: RFC 6902; merge patch: RFC 7386; strategic merge: the public document of the Kubernetes project
("Strategic Merge Patch"): lists merge by their key, `$patch`, `$retainKeys`, `$setElementOrder/x`,
`$deleteFromPrimitiveList/x`.
"""

from typing import Any

from matrixcontainer.kubeapi.errors import ApiError, bad_request
from matrixcontainer.kubeapi.field_sets import ANY
from matrixcontainer.kubeapi.schema import Schema, copy_json

PATCH_OPERATIONS_MAX = 10_000


def unprocessable_patch(message: str) -> ApiError:
    return ApiError(422, "Invalid", f"the server rejected our request due to an error in our request: {message}")


# ---- JSON patch


def json_patch(obj: dict[str, Any], operations: Any) -> dict[str, Any]:
    """All operations or none; a failed `test` or a missing path is a 422."""
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: json: cannot unmarshal object into a list of operations")
    if len(operations) > PATCH_OPERATIONS_MAX:
        raise ApiError(
            413, "RequestEntityTooLarge", f"The allowed maximum operations in a JSON patch is {PATCH_OPERATIONS_MAX}"
        )
    root: Any = copy_json(obj)
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise bad_request("error decoding patch: an operation needs op and path")
        root = _operate(root, operation)
    if not isinstance(root, dict):
        raise unprocessable_patch("the patched document is not an object")
    return root


def _operate(root: Any, operation: dict[str, Any]) -> Any:
    op, path = operation.get("op"), pointer(operation["path"])
    if op == "test":
        if _read(root, path, absent_is_null=True) != operation.get("value"):
            raise unprocessable_patch(f"testing path {operation['path']} failed")
        return root
    if op in ("add", "replace"):
        if "value" not in operation:
            raise unprocessable_patch(f"{op} operation needs a value: {operation['path']}")
        return _write(root, path, copy_json(operation["value"]), insert=op == "add")
    if op == "remove":
        return _remove(root, path)
    if op in ("move", "copy"):
        source = pointer(str(operation.get("from", "")))
        value = copy_json(_read(root, source))
        if op == "move":
            root = _remove(root, source)
        return _write(root, path, value, insert=True)
    raise unprocessable_patch(f"Unexpected kind: {op}")


def pointer(text: str) -> list[str]:
    """The tokens of an RFC 6901 pointer."""
    if text == "":
        return []
    if not text.startswith("/"):
        raise unprocessable_patch(f"path {text!r} does not start with /")
    return [token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/")]


def _missing(token: str) -> ApiError:
    return unprocessable_patch(f"missing path: no value at {token!r}: the requested path does not exist")


def _index(container: list[Any], token: str, limit: int) -> int:
    if not token.isdigit() or (len(token) > 1 and token[0] == "0") or int(token) > limit:
        raise _missing(token)
    return int(token)


def _step(container: Any, token: str) -> Any:
    if isinstance(container, dict) and token in container:
        return container[token]
    if isinstance(container, list):
        return container[_index(container, token, len(container) - 1)]
    raise _missing(token)


def _read(root: Any, path: list[str], absent_is_null: bool = False) -> Any:
    value = root
    for place, token in enumerate(path):
        last = place == len(path) - 1
        if absent_is_null and last and isinstance(value, dict) and token not in value:
            return None
        value = _step(value, token)
    return value


def _write(root: Any, path: list[str], value: Any, insert: bool) -> Any:
    if not path:
        return value
    container = _read(root, path[:-1])
    token = path[-1]
    if isinstance(container, dict):
        if not insert and token not in container:
            raise _missing(token)
        container[token] = value
    elif isinstance(container, list):
        if insert:
            place = len(container) if token == "-" else _index(container, token, len(container))
            container.insert(place, value)
        else:
            container[_index(container, token, len(container) - 1)] = value
    else:
        raise _missing(token)
    return root


def _remove(root: Any, path: list[str]) -> Any:
    if not path:
        raise unprocessable_patch("the whole document cannot be removed")
    container = _read(root, path[:-1])
    _step(container, path[-1])
    if isinstance(container, dict):
        del container[path[-1]]
    else:
        del container[int(path[-1])]
    return root


# ---- merge patch


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: null deletes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return copy_json(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


# ---- strategic merge patch


def strategic_patch(target: dict[str, Any], patch: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Merge `patch` into `target` with the merge keys and strategies of the schema."""
    result = _merge_object(copy_json(target), patch, schema)
    return result if isinstance(result, dict) else {}


def _merge_object(target: dict[str, Any], patch: dict[str, Any], schema: Schema) -> dict[str, Any]:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: copy_json(value) for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"Unknown patch type: {directive}")
    if "$retainKeys" in patch:
        target = {key: value for key, value in target.items() if key in patch["$retainKeys"]}
    for key, value in patch.items():
        if key in ("$patch", "$retainKeys") or key.startswith("$setElementOrder/"):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.split("/", 1)[1]
            target[name] = [item for item in target.get(name) or [] if item not in value]
            continue
        if value is None:
            target.pop(key, None)
            continue
        child = schema.child(key) or ANY
        target[key] = _merge_value(target.get(key), value, child)
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            name = key.split("/", 1)[1]
            if isinstance(target.get(name), list):
                target[name] = _ordered(target[name], order, (schema.child(name) or ANY).merge_key)
    return target


def _merge_value(target: Any, value: Any, schema: Schema) -> Any:
    if isinstance(value, dict):
        return _merge_object(target if isinstance(target, dict) else {}, value, schema)
    if isinstance(value, list) and "merge" in schema.strategy:
        return _merge_list(list(target) if isinstance(target, list) else [], value, schema)
    return copy_json(value)


def _merge_list(target: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    if not schema.merge_key:
        return target + [copy_json(item) for item in patch if item not in target]
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [copy_json(item) for item in patch if item.get("$patch") != "replace"]
    for item in patch:
        if not isinstance(item, dict):
            raise bad_request("map: expected a list of objects in the patch")
        if schema.merge_key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {schema.merge_key}")
        key = item[schema.merge_key]
        place = next((i for i, held in enumerate(target) if held.get(schema.merge_key) == key), None)
        if item.get("$patch") == "delete":
            target = [held for held in target if held.get(schema.merge_key) != key]
        elif place is None:
            target.append(_merge_object({}, item, schema.items or ANY))
        else:
            target[place] = _merge_object(target[place], item, schema.items or ANY)
    return target


def _ordered(items: list[Any], order: list[Any], merge_key: str) -> list[Any]:
    """Items named by the patch in its order; others keep their place relative to their old neighbours, at the end."""

    def identity(item: Any) -> str:
        return str(item.get(merge_key)) if merge_key and isinstance(item, dict) else str(item)

    rank = {identity(item): place for place, item in enumerate(order)}
    named = sorted((item for item in items if identity(item) in rank), key=lambda item: rank[identity(item)])
    return named + [item for item in items if identity(item) not in rank]
