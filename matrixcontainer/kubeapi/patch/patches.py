"""JSON patch (RFC 6902), JSON merge patch (RFC 7386), and strategic merge patch for built-in kinds.

Each returns a patched copy of the object, or raises ApiError. Strategic merge follows the Kubernetes project's
document ("Strategic Merge Patch"): lists merge by key, with `$patch`, `$retainKeys`, `$setElementOrder/x` and
`$deleteFromPrimitiveList/x`.
"""

from typing import Any

from matrixcontainer.kubeapi.meta.errors import ApiError, as_json, bad_request, untyped
from matrixcontainer.kubeapi.patch.field_set import ANY
from matrixcontainer.kubeapi.schema.structural import Schema, copy_json, same_json
from matrixcontainer.kubeapi.schema.validation import type_of
from matrixcontainer.kubeapi.storage.objects import dump_json

PATCH_OPERATIONS_MAX = 10_000
COPIED_BYTES_MAX = 3 * 2**20
"""Limit on all copy operations of a patch together, as in k8s.io/apiserver (JSONPatchMaxCopyBytes): each may double the
document."""


class PatchError(ApiError):
    """A patch that cannot be applied. Clients get a generic message, as upstream; logs and webhook errors `detail`."""

    def __init__(self, detail: str) -> None:
        super().__init__(422, "Invalid", "the server rejected our request due to an error in our request", {})
        self.detail = detail

    def __str__(self) -> str:
        return self.detail


# ---- JSON patch


def json_patch(obj: dict[str, Any], operations: Any) -> dict[str, Any]:
    """Apply all operations or none. A failed `test` or a missing path raises 422."""
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: json: cannot unmarshal object into a list of operations")
    if len(operations) > PATCH_OPERATIONS_MAX:
        text = f"The allowed maximum operations in a JSON patch is {PATCH_OPERATIONS_MAX}, got {len(operations)}"
        raise ApiError(413, "RequestEntityTooLarge", text)
    root: Any = copy_json(obj)
    copied = 0
    for operation in operations:
        _validate_operation(operation)
        if operation.get("op") == "copy":
            copied += len(dump_json(_read(root, pointer(operation.get("from", "")))))
            if copied > COPIED_BYTES_MAX:
                message = f"the accumulated size increase of copy is {copied}, exceeding the limit {COPIED_BYTES_MAX}"
                raise PatchError(f"Unable to complete the copy, {message}")
        root = _apply_operation(root, operation)
    if not isinstance(root, dict):
        raise PatchError("the patched document is not an object")
    return root


def _validate_operation(operation: Any) -> None:
    if not isinstance(operation, dict):
        text = {"boolean": "bool", "integer": "number"}.get(type_of(operation), type_of(operation))
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {text} into Go value of type handlers.jsonPatchOp"
        )
    for word in ("op", "path", "from"):
        if not isinstance(operation.get(word, ""), str):
            text = type_of(operation[word])
            where = f"Go struct field jsonPatchOp.{word} of type string"
            raise bad_request(f"error decoding patch: json: cannot unmarshal {text} into {where}")


OPERATION_WORDS = ("op", "path", "from", "value")


def unknown_fields(operations: Any) -> list[str]:
    """Warnings for unknown fields of operations."""
    return [
        f'json patch unknown field "[{index}].{word}"'
        for index, operation in enumerate(operations if isinstance(operations, list) else [])
        for word in (operation if isinstance(operation, dict) else ())
        if word not in OPERATION_WORDS
    ]


def _apply_operation(root: Any, operation: dict[str, Any]) -> Any:
    op, value = operation.get("op"), operation.get("value")
    if "path" not in operation:
        raise PatchError(f"{op} operation has no path")
    path = pointer(operation["path"])
    if op == "test":
        if not same_json(_read(root, path), value):
            raise PatchError(f"testing value {operation['path']} failed")
        return root
    if op == "replace" and not path:
        return copy_json(value)
    if op in ("add", "replace"):
        return _write(root, path, copy_json(value), insert=op == "add")
    if op == "remove":
        return _remove(root, path)
    if op in ("move", "copy"):
        source = pointer(str(operation.get("from", "")))
        current = _read(root, source)
        if op == "copy":
            return _write(root, path, copy_json(current), insert=True)
        return _write(_remove(root, source), path, current, insert=True)
    raise PatchError(f"Unexpected kind: {op}")


def pointer(text: str) -> list[str]:
    """The tokens of an RFC 6901 pointer."""
    if text == "":
        return []
    if not text.startswith("/"):
        raise PatchError(f"path {text!r} does not start with /")
    return [token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/")]


def _missing(token: str) -> PatchError:
    return PatchError(f"missing path: no value at {token!r}: the requested path does not exist")


def _index(token: str, limit: int) -> int:
    """A list index; negative ones count from the end."""
    try:
        place = int(token)
    except ValueError:
        raise _missing(token) from None
    place += limit + 1 if place < 0 else 0
    if not 0 <= place <= limit:
        raise _missing(token)
    return place


def _step(container: Any, token: str) -> Any:
    if isinstance(container, dict) and container.get(token) is not None:
        return container[token]
    if isinstance(container, list):
        return container[_index(token, len(container) - 1)]
    raise _missing(token)


def _read(root: Any, path: list[str]) -> Any:
    """The value at a path; a missing key of the last object yields None."""
    if not path:
        return root
    container = root
    for token in path[:-1]:
        container = _step(container, token)
    if isinstance(container, dict):
        return container.get(path[-1])
    return _step(container, path[-1])


def _parent(root: Any, path: list[str]) -> Any:
    container = root
    for token in path[:-1]:
        container = _step(container, token)
    if not path or not isinstance(container, (dict, list)):
        raise _missing(path[-1] if path else "")
    return container


def _write(root: Any, path: list[str], value: Any, insert: bool) -> Any:
    container, token = _parent(root, path), path[-1]
    if isinstance(container, dict):
        container[token] = value
    elif insert:
        container.insert(len(container) if token == "-" else _index(token, len(container)), value)
    else:
        container[_index(token, len(container) - 1)] = value
    return root


def _remove(root: Any, path: list[str]) -> Any:
    container, token = _parent(root, path), path[-1]
    if isinstance(container, list):
        del container[_index(token, len(container) - 1)]
    elif token in container:
        del container[token]
    else:
        raise _missing(token)
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

REPLACE, DELETE, MERGE = "replace", "delete", "merge"
ORDER, DROP = "$setElementOrder/", "$deleteFromPrimitiveList/"


def strategic_patch(target: dict[str, Any], patch: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Merge `patch` into `target` with the merge keys and strategies of the schema."""
    return _merge_object(copy_json(target), patch, schema)


def _merge_object(target: dict[str, Any], patch: dict[str, Any], schema: Schema) -> dict[str, Any]:
    if "$patch" in patch:
        directive = patch["$patch"]
        if directive == REPLACE:
            return {key: copy_json(value) for key, value in patch.items() if key != "$patch"}
        if directive == DELETE:
            return {}
        raise untyped(f"unknown patch type: {as_json(directive)} in map: {as_json(patch)}")
    if "$retainKeys" in patch:
        target = _retained_keys(target, patch)
    done = {"$retainKeys"}
    for key, order in patch.items():
        if key.startswith(ORDER):
            name = key.removeprefix(ORDER)
            done |= {key, name}
            _merge_in_order(target, name, patch, order, schema)
    for key, value in patch.items():
        if key in done:
            continue
        if key.startswith(DROP):
            _drop_members(target, key.removeprefix(DROP), value)
        elif value is None or (_is_directive(value) and not isinstance(target.get(key), dict)):
            target.pop(key, None)  # a directive without a target is dropped
        else:
            target[key] = _merge_value(target.get(key), value, schema.child(key) or ANY)
    return target


def _drop_members(target: dict[str, Any], name: str, members: Any) -> None:
    """Delete members from a primitive list, or the whole list if `members` is null. Anything else stays as it is."""
    if members is None:
        target.pop(name, None)
    elif isinstance(members, list) and isinstance(target.get(name), list):
        dropped = {_identity(item, "") for item in members}
        target[name] = [item for item in target[name] if _identity(item, "") not in dropped]


def _retained_keys(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    kept = patch["$retainKeys"]
    reported = [k for k, v in patch.items() if v is not None and not k.startswith((DROP, ORDER)) and k != "$retainKeys"]
    if not isinstance(kept, list) or any(key not in kept for key in reported):
        raise bad_request("invalid patch format of retainKeys")
    return {key: value for key, value in target.items() if key in kept}


def _merge_in_order(target: dict[str, Any], name: str, patch: dict[str, Any], order: Any, schema: Schema) -> None:
    """Merge a list with $setElementOrder: the items it names in that order, the others at their old positions."""
    current, reported = target.get(name), patch.get(name)
    for value in (order, current or [], reported or []):
        if not isinstance(value, list):
            raise untyped(f"expected a list, but received {type_of(value)}")
    if name not in schema.properties and schema.ref:
        struct = schema.ref.rsplit(".", 1)[1]
        raise untyped(f'unable to find api field in struct {struct} for the json field "{name}"')
    child = schema.child(name) or ANY
    _validate_order(reported or [], order, child.merge_key)
    if current is None and reported is None:
        return
    before = list(current or [])
    merged = before if reported is None else _merge_value(current, reported, child)
    target[name] = _in_order(merged, order, before, child.merge_key)


def _validate_order(reported: list[Any], order: list[Any], merge_key: str) -> None:
    """Raise unless the patch's items are in the order that its $setElementOrder gives."""
    wanted = [item for item in reported if not (isinstance(item, dict) and "$patch" in item)]
    place = 0
    for item in order if wanted else ():
        if place < len(wanted) and _identity(wanted[place], merge_key) == _identity(item, merge_key):
            place += 1
    if order and place < len(wanted):
        text = (
            f"The order in patch list:\n{as_json(reported)}\n doesn't match $setElementOrder list:\n{as_json(order)}\n"
        )
        raise untyped(text)


def _merge_value(target: Any, value: Any, schema: Schema) -> Any:
    if isinstance(value, dict) and isinstance(target, dict):
        return copy_json(value) if REPLACE in schema.strategy else _merge_object(target, value, schema)
    if isinstance(value, list) and isinstance(target, list) and "merge" in schema.strategy:
        return _merge_list(list(target), value, schema)
    return _without_directives(value)


def _without_directives(value: Any) -> Any:
    """A new value from the patch, without the parts that are directives."""
    if isinstance(value, dict):
        return {key: _without_directives(item) for key, item in value.items() if not _is_directive(item)}
    if isinstance(value, list):
        return [_without_directives(item) for item in value if not _is_directive(item)]
    return value


def _is_directive(value: Any) -> bool:
    return isinstance(value, dict) and "$patch" in value


def _merge_list(target: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    key = schema.merge_key
    if not key:
        merged = list({_identity(item, ""): item for item in target + patch}.values())
        return _in_order(merged, patch, target, "")
    wanted, deleted, replaces = [], set[str](), False
    for item in patch:
        if not isinstance(item, dict):
            raise untyped(f"list element types are not identical: {as_json([target, patch])}")
        directive = item.get("$patch")
        if directive is None and "$patch" not in item:
            wanted.append(item)
        elif directive == DELETE:
            _require_merge_key(item, key)
            deleted.add(_identity(item, key))
        elif directive == REPLACE:
            replaces = True
        elif directive == MERGE:
            raise untyped("merging lists cannot yet be specified in the patch")
        else:
            raise untyped(f"unknown patch type: {as_json(directive)} in map: {as_json(item)}")
    if replaces:
        return [copy_json(item) for item in wanted]
    target = [current for current in target if _identity(current, key) not in deleted]
    merged = list(target)
    places = {_identity(current, key): place for place, current in reversed(list(enumerate(merged)))}
    for item in wanted:
        _require_merge_key(item, key)
        place = places.setdefault(_identity(item, key), len(merged))
        if place == len(merged):
            merged.append(copy_json(item))
        else:
            merged[place] = _merge_object(merged[place], item, schema.items or ANY)
    return _in_order(merged, wanted, target, key)


def _require_merge_key(item: dict[str, Any], key: str) -> None:
    if key not in item:
        raise untyped(f"map: {as_json(item)} does not contain declared merge key: {key}")


def _identity(item: Any, merge_key: str) -> str:
    return as_json(item.get(merge_key)) if merge_key and isinstance(item, dict) else as_json(item)


def _in_order(merged: list[Any], order: list[Any], before: list[Any], merge_key: str) -> list[Any]:
    """Sort the items named in `order` in that order and the others as in `before`, and interleave both by their
    positions in `before`. If one of two has none, the named one comes first.
    """
    wanted = {_identity(item, merge_key): place for place, item in reversed(list(enumerate(order)))}
    stood = {_identity(item, merge_key): place for place, item in reversed(list(enumerate(before)))}
    named = sorted(
        (item for item in merged if _identity(item, merge_key) in wanted),
        key=lambda item: wanted[_identity(item, merge_key)],
    )
    others = [item for item in merged if _identity(item, merge_key) not in wanted]
    woven = []
    while named and others:
        left, right = (stood.get(_identity(one[0], merge_key)) for one in (others, named))
        woven.append((others if left is not None and right is not None and left < right else named).pop(0))
    return woven + named + others
