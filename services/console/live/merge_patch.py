"""JSON Merge Patch (RFC 7386): the patch that turns one document into another."""

from __future__ import annotations

from typing import Any


def merge_patch(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The patch from `before` to `after`; empty if they are equal. Documents contain no nulls."""
    patch: dict[str, Any] = dict.fromkeys(sorted(before.keys() - after.keys()))
    for key, value in after.items():
        old = before.get(key)
        if old is value or old == value:
            continue
        patch[key] = merge_patch(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return patch


def apply_merge_patch(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """`target` with the patch applied; `target` itself is not changed."""
    found = dict(target)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            old = found.get(key)
            found[key] = apply_merge_patch(old if isinstance(old, dict) else {}, value)
        else:
            found[key] = value
    return found
