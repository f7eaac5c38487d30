"""Conversion of built-in objects between decoding and storing, driven by the type table.

`normalise_texts` parses quantities and bytes and rejects invalid ones. `apply_defaults` sets what Go always serialises
(zero values without omitempty, non-pointer structs) and the defaults of each struct. Both visit only fields with
something to do, by a plan computed once per type."""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from matrixcontainer.kubeapi.builtin.defaults import DEFAULTERS, DEFAULTS
from matrixcontainer.kubeapi.meta.quantities import InvalidQuantity, canonical
from matrixcontainer.kubeapi.schema.structural import copy_json
from matrixcontainer.kubeapi.schema.types import ZEROS, flat_rows, rows_of, table

Obj = dict[str, Any]
STRUCT = object()
NEVER_OMITTED = ("time", "microtime", "quantity", "intorstring", "raw", "fields", "json")


class DecodingError(ValueError):
    """A text that upstream's typed decoder rejects, with its message."""


@dataclass
class TypePlan:
    """What to do in a struct, and its `children` to visit: (key, "one", "list" or "map", type)."""

    zeros: list[tuple[str, Any]] = field(default_factory=list)
    defaults: list[tuple[str, Any, bool]] = field(default_factory=list)  # key, value, only if absent
    actions: list[Callable[[Obj], None]] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)  # key, kind
    children: list[tuple[str, str, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.zeros or self.defaults or self.actions or self.texts or self.children)


SHAPES = (("[]", "list"), ("map:", "map"), ("", "one"))


def nested_struct(kind: str) -> tuple[str, str]:
    """(shape, type) of a field that contains structs; ("", "") for any other."""
    for prefix, shape in SHAPES:
        if kind.startswith(prefix) and "." in kind and kind[len(prefix) :] in table():
            return shape, kind[len(prefix) :]
    return "", ""


_PLANS: dict[str, TypePlan] = {}


def type_plan(name: str) -> TypePlan:
    """The plan of a type; for a recursive type, the plan under construction."""
    if (found := _PLANS.get(name)) is not None:
        return found
    plan = _PLANS[name] = TypePlan()
    for one in _inlined_types(name):
        plan.actions += DEFAULTERS.get(one, ())
        for key, value in DEFAULTS.get(one, {}).items():
            plan.defaults.append((key, value, "p" in flat_rows(name)[key][3]))
    for key, row in flat_rows(name).items():
        kind, flags = row[2], row[3]
        if len(row) > 4 and row[4].get("default"):
            plan.defaults.append((key, row[4]["default"], "p" in flags))
        shape, struct = nested_struct(kind)
        if shape == "one" and "p" not in flags:
            plan.zeros.append((key, STRUCT))
        elif kind in ("time", "microtime") and "p" not in flags:
            plan.zeros.append((key, None))
        elif "o" not in flags and "p" not in flags and not shape:
            plan.zeros.append((key, {"quantity": "0", "intorstring": 0}.get(kind, ZEROS.get(kind))))
        elif "o" not in flags and shape != "one":
            plan.zeros.append((key, None))
        if kind in ("map:quantity", "map:bytes", "bytes", "quantity"):
            plan.texts.append((key, kind))
        if shape and type_plan(struct):
            plan.children.append((key, shape, struct))
    return plan


def _inlined_types(name: str) -> list[str]:
    names = [name]
    for row in rows_of(name):
        if not row[0]:
            names += _inlined_types(row[2])
    return names


def _child_structs(value: Obj, plan: TypePlan) -> list[tuple[Obj, str]]:
    children = []
    for key, shape, struct in plan.children:
        current = value.get(key)
        if not current:
            if shape == "one" and isinstance(current, dict):
                children.append((current, struct))
            continue
        items = [current] if shape == "one" else current.values() if shape == "map" else current
        children += [(item, struct) for item in items if isinstance(item, dict)]
    return children


def apply_defaults(value: Obj, name: str, root: bool = True) -> None:
    """Set zero values and defaults in place; the object's own metadata are not changed."""
    plan = type_plan(name)
    for key, zero in plan.zeros:
        if key not in value and not (root and key == "metadata"):
            value[key] = {} if zero is STRUCT else zero
    for key, default, absent_only in plan.defaults:
        current = value.get(key)
        if current is None or (not absent_only and not current):
            value[key] = copy_json(default)
    for action in plan.actions:
        action(value)
    for item, struct in _child_structs(value, plan):
        if not (root and item is value.get("metadata")):
            apply_defaults(item, struct, False)


@cache
def _omitempty_fields(name: str) -> tuple[frozenset[str], tuple[tuple[str, str, str], ...]]:
    """(fields omitted when empty, fields that contain structs) of a struct."""
    empty, below = set(), []
    for key, row in flat_rows(name).items():
        shape, struct = nested_struct(row[2])
        if shape:
            below.append((key, shape, struct))
        if "o" in row[3] and "p" not in row[3] and shape != "one" and row[2] not in NEVER_OMITTED:
            empty.add(key)
    return frozenset(empty), tuple(below)


def drop_empty(value: Obj, name: str) -> None:
    """Remove zero values of omitempty fields, which Go does not serialise."""
    empty, below = _omitempty_fields(name)
    for key in [key for key in value if key in empty and not value[key]]:
        del value[key]
    for key, shape, struct in below:
        current = value.get(key)
        if current and isinstance(current, dict | list):
            items = [current] if shape == "one" else current.values() if isinstance(current, dict) else current
            for item in items:
                if isinstance(item, dict):
                    drop_empty(item, struct)


def normalise_texts(value: Obj, name: str, canonicalise: bool = True) -> None:
    """Check quantities and bytes; `canonicalise` rewrites quantities. Raises DecodingError for invalid ones."""
    plan = type_plan(name)
    for key, kind in plan.texts:
        current = value.get(key)
        if kind == "map:quantity" and isinstance(current, dict):
            for resource, text in current.items():
                canonical_text = _quantity(text)
                if canonicalise:
                    current[resource] = canonical_text
        elif kind == "quantity" and current is not None:
            canonical_text = _quantity(current)
            if canonicalise:
                value[key] = canonical_text
        elif not canonicalise and kind in ("bytes", "map:bytes"):
            for text in current.values() if isinstance(current, dict) and kind == "map:bytes" else [current]:
                _check_base64(text)
    for item, struct in _child_structs(value, plan):
        normalise_texts(item, struct, canonicalise)


def _quantity(text: Any) -> str:
    try:
        return canonical(f"{text:g}" if isinstance(text, float) else str(text).strip())
    except InvalidQuantity as failure:
        raise DecodingError(str(failure)) from failure


def _check_base64(text: Any) -> None:
    try:
        if text is not None:
            base64.b64decode(text.replace("\r", "").replace("\n", ""), validate=True)
    except (AttributeError, ValueError) as failure:
        raise DecodingError(f"illegal base64 data: {failure}") from failure
