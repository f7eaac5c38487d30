"""Sets of field paths, as stored in managedFields.

A path is a tuple of elements in FieldsV1 notation: `f:name` is a field, `k:{"key":"v"}` an item of a map list, `v:"x"`
a member of a set. A set of paths is a frozenset of such tuples; FieldsV1 is its tree form, in which "." means that the
node itself is in the set. The schema determines the leaves: atomic lists and maps are owned as a whole. Format: public
server-side apply documentation (FieldsV1).
"""

import json
from functools import lru_cache
from typing import Any

import orjson

from matrixcontainer.kubeapi.meta.errors import ABSENT
from matrixcontainer.kubeapi.schema.structural import Schema, same_json
from matrixcontainer.kubeapi.schema.types import schema_of
from matrixcontainer.kubeapi.storage.objects import dump_json

Path = tuple[str, ...]
Paths = frozenset[Path]

ANY = Schema({"x-kubernetes-preserve-unknown-fields": True})

SHAPES_KEPT = 192
"""Size of the caches of recently used sets. Objects of the same shape share one; those that contain uids of others (the
pods of each Deployment) are always new, so a larger cache would only keep thousands of useless sets of about 8 KB.
"""

NEVER_OWNED = frozenset(
    [("f:apiVersion",), ("f:kind",), ("f:metadata",)]
    + [
        ("f:metadata", f"f:{key}")
        for key in (
            "name",
            "namespace",
            "uid",
            "generation",
            "creationTimestamp",
            "resourceVersion",
            "selfLink",
            "managedFields",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        )
    ]
)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def child_schema(schema: Schema, key: str, path: Path) -> Schema:
    """The schema of a field; top-level metadata is always ObjectMeta."""
    if path == () and key == "metadata":
        return schema_of("meta.v1.ObjectMeta")
    return schema.child(key) or ANY


def item_element(schema: Schema, item: Any) -> str:
    """Path element of an item of an associative list."""
    if schema.list_type == "set":
        return "v:" + (orjson.dumps(item).decode() if type(item) is str else _compact(item))
    keys = {}
    for key in schema.list_keys:
        value = item.get(key, ABSENT) if isinstance(item, dict) else ABSENT
        if value is ABSENT and schema.items is not None and key in schema.items.properties:
            value = schema.items.properties[key].default
        if value is ABSENT and key == "protocol":
            value = "TCP"
        if value is not ABSENT:
            keys[key] = value
    return "k:" + _compact(keys)


def is_associative(schema: Schema, value: Any) -> bool:
    return isinstance(value, list) and schema.list_type in ("map", "set")


def is_granular(schema: Schema, value: Any) -> bool:
    return isinstance(value, dict) and schema.map_type != "atomic"


def paths_of(value: Any, schema: Schema, path: Path = (), nodes: bool = False) -> set[Path]:
    """All paths in a value; with `nodes`, inner objects and lists are included too, as for newly added ones."""
    found: set[Path] = set()
    _add_paths(found, value, schema, path, nodes)
    return found


def _add_paths(found: set[Path], value: Any, schema: Schema, path: Path, nodes: bool) -> None:
    if is_granular(schema, value):
        for key, item in value.items():
            inner = (*path, f"f:{key}")
            if not isinstance(item, (dict, list)):
                found.add(inner)
                continue
            child = child_schema(schema, key, path)
            _add_paths(found, item, child, inner, nodes)
            declared = key in schema.properties or (not path and key in ("apiVersion", "kind", "metadata"))
            bare = item == {} or not declared
            if bare or (nodes and (is_granular(child, item) or is_associative(child, item))):
                found.add(inner)
    elif is_associative(schema, value):
        for item in value:
            inner = (*path, item_element(schema, item))
            _add_paths(found, item, schema.items or ANY, inner, nodes)
            found.add(inner)
    else:
        found.add(path)


def applied_paths(obj: dict[str, Any], schema: Schema) -> Paths:
    return frozenset(paths_of(obj, schema) - NEVER_OWNED)


def compare(old: Any, new: Any, schema: Schema, path: Path = ()) -> tuple[set[Path], set[Path], set[Path]]:
    """(added, modified, removed) between two values of one schema."""
    added: set[Path] = set()
    modified: set[Path] = set()
    removed: set[Path] = set()
    _compare(old, new, schema, path, added, modified, removed)
    return added, modified, removed


def created_paths(obj: dict[str, Any], schema: Schema) -> Paths:
    """The fields that the creator of a custom object owns: what `compare` with an empty object would find added."""
    found: set[Path] = set()
    for key, value in obj.items():
        inner = (f"f:{key}",)
        if key not in ("apiVersion", "kind"):
            found.add(inner)
            _add_paths(found, value, child_schema(schema, key, ()), inner, nodes=True)
    return frozenset(found - NEVER_OWNED)


def _compare(
    old: Any, new: Any, schema: Schema, path: Path, added: set[Path], modified: set[Path], removed: set[Path]
) -> None:
    if type(old) is type(new) and same_json(old, new):
        return
    if old is None:  # Go serialises an empty value as null
        old = {} if is_granular(schema, new) else [] if is_associative(schema, new) else None
    if is_granular(schema, old) and is_granular(schema, new):
        for key in old.keys() | new.keys():
            inner = (*path, f"f:{key}")
            child = child_schema(schema, key, path)
            _compare_child(old.get(key, ABSENT), new.get(key, ABSENT), child, inner, added, modified, removed)
    elif is_associative(schema, old) and is_associative(schema, new):
        before = {item_element(schema, item): item for item in old}
        after = {item_element(schema, item): item for item in new}
        for element in before.keys() | after.keys():
            inner = (*path, element)
            child = schema.items or ANY
            _compare_child(
                before.get(element, ABSENT), after.get(element, ABSENT), child, inner, added, modified, removed
            )
    elif path:
        modified.add(path)


def _compare_child(
    old: Any, new: Any, schema: Schema, path: Path, added: set[Path], modified: set[Path], removed: set[Path]
) -> None:
    if old is ABSENT:
        added.add(path)
        _add_paths(added, new, schema, path, nodes=True)
    elif new is ABSENT:
        removed.add(path)
        _add_paths(removed, old, schema, path, nodes=True)
    else:
        _compare(old, new, schema, path, added, modified, removed)


def with_fields(paths: Paths, schema: Schema) -> Paths:
    """The set plus all declared fields above its paths; entries of maps and lists are not added."""
    found = set(paths)
    for path in paths:
        node = schema
        for length, element in enumerate(path[:-1], 1):
            kind, _, name = element.partition(":")
            if kind != "f":
                node = node.items or ANY
                continue
            if name in node.properties or (length == 1 and name == "metadata"):
                found.add(path[:length])
            node = child_schema(node, name, path[: length - 1])
    return frozenset(found)


def set_order_key(path: Path) -> list[tuple[bool, str]]:
    """Sort key of a path: at every level, leaves sort before elements with children."""
    return [(place < len(path) - 1, element) for place, element in enumerate(path)]


# ---- FieldsV1


def to_fields(paths: Paths | set[Path]) -> dict[str, Any]:
    """The tree form of a set. It is cached and shared, so it must not be modified."""
    return _tree_of(frozenset(paths))


@lru_cache(SHAPES_KEPT)
def _tree_of(paths: Paths) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    return _remove_empty(tree)


def _remove_empty(node: dict[str, Any]) -> dict[str, Any]:
    if set(node) == {"."}:
        return {}
    return {key: _remove_empty(child) if key != "." else {} for key, child in sorted(node.items())}


def from_fields(tree: dict[str, Any]) -> Paths:
    """Parse a tree form; malformed members are ignored."""
    return _parsed(dump_json(tree))


@lru_cache(SHAPES_KEPT)
def _parsed(text: bytes) -> Paths:
    found: set[Path] = set()

    def visit(node: Any, path: Path) -> None:
        if not isinstance(node, dict):
            return
        if path and (not node or "." in node):
            found.add(path)
        for key, child in node.items():
            if key != ".":
                visit(child, (*path, _normal(key)))

    visit(json.loads(text), ())
    return frozenset(found)


def _normal(element: str) -> str:
    kind, _, rest = element.partition(":")
    if kind in ("k", "v"):
        try:
            return f"{kind}:{_compact(json.loads(rest))}"
        except ValueError:
            return element
    return element


def path_text(path: Path) -> str:
    """A path as in conflict messages: `.spec.ports[port=80].name`."""
    return "".join(map(element_text, path))


def element_text(element: str) -> str:
    kind, _, rest = element.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        keys = ",".join(f"{key}={_compact(value)}" for key, value in json.loads(rest).items())
        return f"[{keys}]"
    return f"[={rest}]"
