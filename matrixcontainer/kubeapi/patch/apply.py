"""Managed fields, which record the owners of an object's fields, and server-side apply, which merges by them.

Rules, as in the public server-side apply documentation: an applier owns the fields it lists; a field owned by another
manager with another value is a conflict unless forced; a field that an applier listed before and no longer lists is
removed unless another manager owns it; all other writes (create, update, patch) own what they change and take it from
other managers. There is one entry per (manager, operation, apiVersion, subresource), Apply entries first.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.patch.field_set import (
    ANY,
    NEVER_OWNED,
    Path,
    Paths,
    applied_paths,
    child_schema,
    compare,
    created_paths,
    from_fields,
    is_associative,
    is_granular,
    item_element,
    path_text,
    paths_of,
    set_order_key,
    to_fields,
    with_fields,
)
from matrixcontainer.kubeapi.schema.structural import Schema, copy_json, drop_nulls, same_json
from matrixcontainer.kubeapi.schema.types import zero_of

UPDATE_ENTRIES_MAX = 10

Owner = tuple[str, str, str, str]  # manager, operation, apiVersion, subresource


@dataclass
class ManagedFields:
    """The fields of one owner, and when it last changed them."""

    paths: Paths
    time: str


def read_managers(obj: dict[str, Any]) -> dict[Owner, ManagedFields]:
    found = {}
    for entry in obj.get("metadata", {}).get("managedFields") or []:
        owner = (
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        found[owner] = ManagedFields(from_fields(entry.get("fieldsV1") or {}), entry.get("time", ""))
    return found


def write_managers(obj: dict[str, Any], managers: dict[Owner, ManagedFields]) -> None:
    """Write managedFields: owners of at least one field, Apply entries first, then by time."""
    entries = []
    order = sorted(managers.items(), key=lambda pair: (pair[0][1] != "Apply", pair[1].time, pair[0]))
    for (manager, operation, api_version, subresource), current in order:
        if not current.paths:
            continue
        entry = {
            "manager": manager,
            "operation": operation,
            "apiVersion": api_version,
            **({"time": current.time} if current.time else {}),
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields(current.paths),
        }
        entries.append(entry | ({"subresource": subresource} if subresource else {}))
    if entries:
        obj["metadata"]["managedFields"] = entries
    else:
        obj["metadata"].pop("managedFields", None)


def _are_managers(entries: Any) -> bool:
    """Whether entries are valid managedFields."""

    def is_set(node: Any) -> bool:
        return isinstance(node, dict) and all(
            key == "." or (key[:2] in ("f:", "k:", "v:", "i:") and is_set(child)) for key, child in node.items()
        )

    return all(
        entry.get("operation") in ("Apply", "Update")
        and bool(entry.get("apiVersion"))
        and entry.get("fieldsType") == "FieldsV1"
        and is_set(entry.get("fieldsV1") or {})
        for entry in entries
    )


def without_ownership(obj: dict[str, Any]) -> dict[str, Any]:
    return obj | {"metadata": {k: v for k, v in obj["metadata"].items() if k != "managedFields"}}


def track_update(
    old: dict[str, Any] | None, new: dict[str, Any], schema: Schema, manager: str, subresource: str, now: str
) -> None:
    """Record in `new` what `manager` changed. Called for every write that is not an apply.

    Starts from the managedFields in the body, if any (an empty list resets them), otherwise from those of the old
    object. After a reset, tracking resumes with the first apply.
    """
    stated = new["metadata"].get("managedFields")
    known = old["metadata"].get("managedFields") if old is not None else None
    odd = stated and stated != known and stated != [{}] and not _are_managers(stated)
    if (subresource and old is not None) or odd:
        stated = (old or new)["metadata"].get("managedFields") or None  # cannot be set there, or are invalid
    if stated == [] and not schema.ref:
        stated = None  # an empty list counts as absent, except for built-in types
    if stated == [] or stated == [{}]:
        managers: dict[Owner, ManagedFields] = {}
        new["metadata"].pop("managedFields", None)
        write_managers(new, managers)
        return
    if old is None and stated is None and not schema.ref:
        owner: Owner = (manager, "Update", new["apiVersion"], subresource)
        own_paths = created_paths(new, schema)
        write_managers(new, {owner: ManagedFields(own_paths, "" if subresource == "scale" else now)})
        return
    managers = read_managers({"metadata": {"managedFields": stated}} if stated is not None else old or {"metadata": {}})
    group = new["apiVersion"].rpartition("/")[0]
    managers = {owner: current for owner, current in managers.items() if owner[2].rpartition("/")[0] == group}
    if old is not None and not managers:
        new["metadata"].pop("managedFields", None)
        return
    empty = zero_of(schema.ref) if schema.ref else {}
    before = without_ownership(old) if old else {"metadata": {}} | empty | {"apiVersion": "", "kind": ""}
    added, modified, removed = compare(before, without_ownership(new), schema)
    touched = frozenset((added | modified) - NEVER_OWNED)
    gone = frozenset(removed)
    me: Owner = (manager, "Update", new["apiVersion"], subresource)
    if touched or gone:
        for owner, current in managers.items():
            if owner != me:
                current.paths -= gone | touched  # parents of touched leaves stay owned
        mine = managers.get(me, ManagedFields(frozenset(), now))
        paths = (mine.paths | touched) - gone
        if touched or me not in managers:
            managers[me] = ManagedFields(paths, "" if subresource == "scale" else now)
        else:
            mine.paths = paths
    write_managers(new, cap_updates(managers, now))


def cap_updates(managers: dict[Owner, ManagedFields], now: str) -> dict[Owner, ManagedFields]:
    """Merge the oldest Update entries into one to bound their number."""
    updates = sorted((o for o in managers if o[1] == "Update"), key=lambda owner: (managers[owner].time, owner))
    if len(updates) <= UPDATE_ENTRIES_MAX:
        return managers
    for owner in updates[: len(updates) - UPDATE_ENTRIES_MAX + 1]:
        current = managers.pop(owner)
        ancient: Owner = ("ancient-changes", "Update", owner[2], "")
        earlier = managers.get(ancient, ManagedFields(frozenset(), current.time))
        managers[ancient] = ManagedFields(earlier.paths | current.paths, current.time)
    return managers


# ---- apply


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
CLIENT = "kubectl"  # the manager whose client-side apply migrates to server-side apply
BEFORE = "before-first-apply"


@dataclass(frozen=True)
class ApplyOptions:
    """Manager, subresource, time and force of an apply, and the configuration as sent."""

    manager: str
    subresource: str
    force: bool
    now: str
    stated: dict[str, Any]


def apply_config(
    live: dict[str, Any] | None, config: dict[str, Any], schema: Schema, options: ApplyOptions
) -> dict[str, Any]:
    """Apply `config` as `options.manager` and return the object. Raises ApiError 409 listing all conflicts."""
    base = live if live is not None else {"metadata": {}}
    plain = without_ownership(base)
    managers = read_managers(base)
    if live is not None and not managers:
        managers = _owner_before_first_apply(plain, schema, config["apiVersion"], options)
    me: Owner = (options.manager, "Apply", config["apiVersion"], options.subresource)
    earlier = [owner for owner in managers if owner[:2] == me[:2] and owner[3] == options.subresource]
    last: Paths = frozenset().union(*(managers[owner].paths for owner in earlier))
    wanted = applied_paths(config, schema)
    merged = merge(plain, config, schema)
    added, modified, _ = compare(plain, merged, schema)
    changed = frozenset(added | modified)
    conflicts = [
        (owner, path)
        for owner, current in managers.items()
        if owner not in earlier
        for path in sorted(current.paths & changed, key=set_order_key)
        if any(path[:length] in wanted for length in range(1, len(path) + 1))
    ]
    if conflicts and not options.force:
        granted = (
            _client_side_applied(plain, schema, config["apiVersion"]) if options.manager == CLIENT else frozenset()
        )
        if left := [(owner, path) for owner, path in conflicts if path not in granted]:
            raise conflict_error(left)
    for loser in {owner for owner, _ in conflicts}:
        managers[loser].paths -= {path for owner, path in conflicts if owner == loser}
    others: Paths = frozenset().union(*(current.paths for owner, current in managers.items() if owner not in earlier))
    listed = with_fields(wanted | others, schema) | paths_of(config, schema, nodes=True)
    merged = remove_paths(merged, with_fields(last, schema) - listed - NEVER_OWNED, schema, listed)
    unchanged = live is not None and same_json(merged, plain)
    since = next((managers[owner].time for owner in earlier), "") if unchanged else options.now
    for owner in earlier:
        del managers[owner]
    managers[me] = ManagedFields(wanted, since)
    living = {owner: current for owner, current in managers.items() if current.paths}
    if live is not None:
        _, _, removed = compare(plain, merged, schema)
        for owner, current in living.items():
            if owner != me:
                current.paths -= frozenset(removed)
    if options.manager == CLIENT and (merged["metadata"].get("annotations") or {}).get(LAST_APPLIED):
        annotations = merged["metadata"]["annotations"] | {LAST_APPLIED: _as_last_applied(options.stated)}
        merged = merged | {"metadata": merged["metadata"] | {"annotations": annotations}}
    write_managers(merged, living)
    return drop_nulls(merged, schema) if schema.ref else merged


def _owner_before_first_apply(
    plain: dict[str, Any], schema: Schema, api_version: str, options: ApplyOptions
) -> dict[Owner, ManagedFields]:
    """Owner of all fields of an untracked object at its first apply: before-first-apply."""
    added, modified, _ = compare({"metadata": {}}, plain, schema)
    paths = frozenset((added | modified) - NEVER_OWNED)
    return {(BEFORE, "Update", api_version, options.subresource): ManagedFields(paths, options.now)} if paths else {}


def _client_side_applied(plain: dict[str, Any], schema: Schema, api_version: str) -> Paths:
    """Fields that kubectl set by client-side apply and that are unchanged: taking them over is not a conflict."""
    text = (plain["metadata"].get("annotations") or {}).get(LAST_APPLIED, "")
    try:
        last = orjson.loads(text)
    except orjson.JSONDecodeError:
        return frozenset()
    if not isinstance(last, dict) or last.get("apiVersion") != api_version:
        return frozenset()
    added, modified, removed = compare(last, plain, schema)
    return applied_paths(last, schema) - added - modified - removed


def _as_last_applied(stated: dict[str, Any]) -> str:
    meta = dict(stated.get("metadata") or {})
    if LAST_APPLIED in (meta.get("annotations") or {}):
        meta["annotations"] = {key: value for key, value in meta["annotations"].items() if key != LAST_APPLIED}
    text = errors.as_json(stated | {"metadata": meta})  # Go escapes angle brackets
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e") + "\n"


def merge(live: Any, config: Any, schema: Schema, path: Path = ()) -> Any:
    """Merge `config` into `live`: objects by field, associative lists by item; everything else is replaced."""
    if is_granular(schema, live) and is_granular(schema, config):
        merged = dict(live)
        for key, value in config.items():
            child = child_schema(schema, key, path)
            inner = (*path, f"f:{key}")
            merged[key] = merge(live[key], value, child, inner) if key in live else copy_json(value)
        return merged
    if is_associative(schema, live) and is_associative(schema, config):
        wanted = {item_element(schema, item): item for item in config}
        items = []
        for item in live:
            element = item_element(schema, item)
            if element in wanted:
                items.append(merge(item, wanted.pop(element), schema.items or ANY, (*path, element)))
            else:
                items.append(item)
        return items + [copy_json(item) for item in wanted.values()]
    return copy_json(config)


Tree = dict[str, Any]
"""A set of paths as a tree, keyed by path element."""
ITSELF = ""  # marks a node at which a path ends


def remove_paths(value: Any, doomed: Paths, schema: Schema, listed: Paths = frozenset()) -> Any:
    """Remove the `doomed` paths, which the applier gave up and nobody owns now, with everything below them.

    An object or list that becomes empty is removed too, unless it is in `listed`.
    """
    tree: Tree = {}
    for path in doomed:
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        node[ITSELF] = {}
    return _without(value, tree, schema, (), listed)


def _without(value: Any, doomed: Tree, schema: Schema, path: Path, listed: Paths) -> Any:
    if is_granular(schema, value):
        kept = {}
        for key, item in value.items():
            below = doomed.get(f"f:{key}")
            if below is None:
                kept[key] = item
            elif ITSELF not in below:
                inner = (*path, f"f:{key}")
                result = _without(item, below, child_schema(schema, key, path), inner, listed)
                if result not in ({}, []) or item in ({}, []) or inner in listed:
                    kept[key] = result  # otherwise it has become empty and is not listed: drop it
        return kept
    if is_associative(schema, value):
        items = []
        for item in value:
            element = item_element(schema, item)
            below = doomed.get(element)
            if below is None:
                items.append(item)
            elif ITSELF not in below:
                items.append(_without(item, below, schema.items or ANY, (*path, element), listed))
        return items
    return value


def conflict_error(conflicts: list[tuple[Owner, Path]]) -> ApiError:
    causes = []
    texts: dict[str, list[str]] = {}
    for (manager, operation, api_version, subresource), path in conflicts:
        who = f'"{manager}"'
        if subresource:
            who += f' with subresource "{subresource}"'
        if operation == "Update":
            who += f" using {api_version}"
        causes.append({"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": path_text(path)})
        texts.setdefault(who, []).append(path_text(path))
    count = len(conflicts)
    if count == 1:
        body = f"conflict with {next(iter(texts))}: {path_text(conflicts[0][1])}"
    else:
        body = "\n".join(f"conflicts with {who}:\n" + "\n".join(f"- {p}" for p in texts[who]) for who in sorted(texts))
    failure = errors.ApiError(
        409, "Conflict", f"Apply failed with {count} conflict{'s' if count > 1 else ''}: {body}", {"causes": causes}
    )
    return failure
