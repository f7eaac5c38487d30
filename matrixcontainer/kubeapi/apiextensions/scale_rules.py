"""Validation of a custom object's replica counts, at the paths of its scale subresource."""

from __future__ import annotations

from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.jsonpath import compile_path
from matrixcontainer.kubeapi.registry.resource import ScalePaths

INT32_MAX = 2**31 - 1


def validate_spec_replicas(obj: dict[str, Any], paths: ScalePaths) -> list[Cause]:
    return _check_count(obj, paths.spec)


def validate_status(obj: dict[str, Any], paths: ScalePaths) -> list[Cause]:
    found = _check_count(obj, paths.status)
    text = compile_path(paths.selector).first(obj) if paths.selector else None
    if text is not None and not isinstance(text, str):
        found.append(errors.invalid(paths.selector, text, "must be a string"))
    return found


def _check_count(obj: dict[str, Any], path: str) -> list[Cause]:
    count = compile_path(path).first(obj)
    if count is None:
        return []
    if type(count) is not int:
        return [errors.invalid(path, count, "must be an integer")]
    if count < 0:
        return [errors.invalid(path, count, "should be a non-negative integer")]
    if count > INT32_MAX:
        return [errors.invalid(path, count, f"should be less than or equal to {INT32_MAX}")]
    return []
