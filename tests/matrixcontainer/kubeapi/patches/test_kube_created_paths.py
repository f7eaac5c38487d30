"""The shorter way to what a creator owns finds what a comparison with an empty object finds."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from matrixcontainer.kubeapi.patch.field_set import NEVER_OWNED, compare, created_paths
from matrixcontainer.kubeapi.schema.structural import Schema

TEXTS = st.text("abf.:", max_size=3)
SCALARS = st.none() | st.booleans() | st.integers(0, 3) | TEXTS
FREE = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))
ITEMS = st.fixed_dictionaries({"name": TEXTS}, optional={"port": st.integers(0, 3), "labels": FREE})
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "members": st.lists(ITEMS, max_size=3, unique_by=lambda item: item["name"]),
        "tags": st.lists(TEXTS, max_size=3, unique=True),
        "atoms": st.lists(SCALARS, max_size=3),
        "whole": st.dictionaries(TEXTS, SCALARS, max_size=3),
        "free": FREE,
        "limits": st.dictionaries(TEXTS, st.integers(), max_size=3),
        "undeclared": FREE,
    },
)
METADATA = st.fixed_dictionaries(
    {"name": TEXTS},
    optional={
        "labels": st.dictionaries(TEXTS, TEXTS, max_size=3),
        "annotations": st.dictionaries(TEXTS, TEXTS, max_size=3),
        "finalizers": st.lists(TEXTS, max_size=3, unique=True),
        "ownerReferences": st.lists(st.fixed_dictionaries({"uid": TEXTS, "name": TEXTS}), max_size=2),
        "generateName": TEXTS,
    },
)
OBJECTS = st.fixed_dictionaries(
    {"apiVersion": st.just("example.com/v1"), "kind": st.just("Widget"), "metadata": METADATA},
    optional={"spec": SPECS, "status": FREE, "data": FREE},
)
SCHEMA = Schema(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "members": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object",
                            "properties": {"name": {"type": "string"}, "labels": {"type": "object"}},
                        },
                    },
                    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "atoms": {"type": "array", "items": {}},
                    "whole": {"type": "object", "x-kubernetes-map-type": "atomic"},
                    "free": {"x-kubernetes-preserve-unknown-fields": True},
                    "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
                },
            }
        },
    }
)


@given(OBJECTS)
def test_what_a_creator_owns_is_what_was_added(obj: dict[str, Any]) -> None:
    before: dict[str, Any] = {"metadata": {}, "apiVersion": "", "kind": ""}
    added, modified, removed = compare(before, obj, SCHEMA)
    assert not removed
    assert created_paths(obj, SCHEMA) == (added | modified) - NEVER_OWNED
