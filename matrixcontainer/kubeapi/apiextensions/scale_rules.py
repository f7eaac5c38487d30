"""The replica counts of a custom object, where its definition says they are."""

from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.patch.patches import spelled

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.registry.resource import ScalePaths

INT32_MAX = 2**31 - 1


def check_wanted(obj: dict[str, Any], paths: "ScalePaths") -> list[Cause]:
    return _check_count(obj, paths.spec)


def check_reported(obj: dict[str, Any], paths: "ScalePaths") -> list[Cause]:
    found = _check_count(obj, paths.status)
    if paths.selector:
        text, why = _nested(obj, paths.selector, str, "string")
        if why:
            found.append(errors.invalid(paths.selector, "" if text is None else text, why))
    return found


def _check_count(obj: dict[str, Any], path: str) -> list[Cause]:
    count, why = _nested(obj, path, int, "int64")
    if why:
        return [errors.invalid(path, 0, why)]
    if count is not None and count < 0:
        return [errors.invalid(path, count, "should be a non-negative integer")]
    if count is not None and count > INT32_MAX:
        return [errors.invalid(path, count, f"should be less than or equal to {INT32_MAX}")]
    return []


def _nested(obj: dict[str, Any], path: str, kind: type, name: str) -> tuple[Any, str]:
    """(value, why it is none of the wanted type); (None, "") when there is none."""
    value: Any = obj
    steps = path.removeprefix(".").split(".")
    for place, step in enumerate(steps):
        if value is None:
            return None, ""
        if not isinstance(value, dict):
            at = ".".join(steps[: place + 1])
            return None, _accessor_error(at, value, "map[string]interface{}")
        if step not in value:
            return None, ""
        value = value[step]
    if type(value) is not kind:
        return None, _accessor_error(".".join(steps), value, name)
    return value, ""


def _accessor_error(at: str, value: Any, wanted: str) -> str:
    return f".{at} accessor error: {spelled(value)} is of the type {errors.GO_TYPES[type(value)]}, expected {wanted}"
