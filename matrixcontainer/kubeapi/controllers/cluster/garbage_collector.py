"""Garbage collection of dependents by ownerReferences.

An index of owners and dependents is maintained from the store's changes. A dependent whose owners are all gone is
deleted; one that still has an owner only loses the dangling references. Foreground deletion keeps the owner, with the
`foregroundDeletion` finalizer, until its blocking dependents are gone; `orphan` first removes the references to it.
Owners are matched by uid; a namespaced owner counts as absent for dependents in other namespaces or of cluster scope.
"""

from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi.controllers.runtime.workqueue import Workqueue, filter_list
from matrixcontainer.kubeapi.meta.attempts import attempt_all
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.options import Deletion
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.storage.objects import Change, Key, Record

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


class GarbageCollector(Workqueue[Key]):
    max_concurrent_reconciles = 1
    account = "generic-garbage-collector"

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._uids: dict[str, Key] = {}
        self._owners: dict[Key, frozenset[str]] = {}
        self._dependents: dict[str, set[Key]] = {}

    # ---- the index

    def load(self) -> None:
        for storage in list(self.core.store.resources()):
            for record in self.core.store.objects_of(storage):
                self._index(record)

    def on_change(self, change: Change) -> None:
        key = change.record.key
        if change.type == "DELETED":
            self._uids.pop(change.record.uid, None)
            self._set_owners(key, frozenset())
            for dependent in self._dependents.get(change.record.uid, ()):
                self.enqueue(dependent)
            for uid in _owner_uids(change.record):
                if (owner := self._uids.get(uid)) is not None:
                    self.enqueue(owner)
        else:
            self._index(change.record)

    def _index(self, record: Record) -> None:
        self._uids[record.uid] = record.key
        owners = _owner_uids(record)
        previous_owners = self._owners.get(record.key, frozenset())
        self._set_owners(record.key, owners)
        if owners or (
            b'"deletionTimestamp"' in record.body and (b'"orphan"' in record.body or FOREGROUND.encode() in record.body)
        ):
            self.enqueue(record.key)
            for uid in owners:
                if (owner := self._uids.get(uid)) is not None:
                    self.enqueue(owner)
        for uid in previous_owners - owners:  # the owner may have been waiting for this one
            if (owner := self._uids.get(uid)) is not None:
                self.enqueue(owner)

    def _set_owners(self, key: Key, owners: frozenset[str]) -> None:
        previous = self._owners.get(key, frozenset())
        for uid in previous - owners:
            current = self._dependents.get(uid)
            if current is not None:
                current.discard(key)
                if not current:
                    del self._dependents[uid]
        for uid in owners - previous:
            self._dependents.setdefault(uid, set()).add(key)
        if owners:
            self._owners[key] = owners
        else:
            self._owners.pop(key, None)

    # ---- the work

    async def reconcile(self, key: Key) -> float | None:
        record = self.core.store.get(key)
        resource = self.core.registry.by_storage(key[0])
        if record is None or resource is None:
            return None
        meta = record.obj["metadata"]
        if "deletionTimestamp" in meta:
            finalizers = meta.get("finalizers") or []
            if ORPHAN in finalizers:
                await self._process_orphan(resource, record)
            elif FOREGROUND in finalizers:
                await self._process_foreground(resource, record)
        if meta.get("ownerReferences"):
            await self._process_dependent(resource, record, meta)
        return None

    async def _process_dependent(self, resource: Resource, record: Record, meta: dict[str, Any]) -> None:
        solid, dangling, waiting = [], [], []
        for reference in meta["ownerReferences"]:
            owner = self._owner(reference, record)
            if owner is None:
                dangling.append(reference)
            elif _in_foreground_deletion(owner):
                waiting.append(reference)
            else:
                solid.append(reference)
        if solid:
            if dangling or waiting:
                uids = {reference["uid"] for reference in dangling + waiting}
                await self._remove_references(resource, record, uids)
        elif "deletionTimestamp" in meta:
            return
        elif waiting and self._dependents.get(record.uid):
            await self._delete(resource, record, "Foreground")
        else:
            finalizers = meta.get("finalizers") or []
            propagation = (
                "Orphan" if ORPHAN in finalizers else "Foreground" if FOREGROUND in finalizers else "Background"
            )
            await self._delete(resource, record, propagation)

    def _owner(self, reference: dict[str, Any], dependent: Record) -> Record | None:
        """The existing owner that a reference names; None if it is gone or cannot own this dependent."""
        key = self._uids.get(reference.get("uid", ""))
        if key is None or key[2] != reference.get("name"):
            kind = self.core.registry.by_kind(reference.get("apiVersion", ""), reference.get("kind", ""))
            if kind is None and not self._is_group_version_served(reference):
                return dependent  # an unknown kind: never collect because of it
            return None
        if key[1] and key[1] != dependent.key[1]:
            return None
        return self.core.store.get(key)

    def _is_group_version_served(self, reference: dict[str, Any]) -> bool:
        group, _, version = reference.get("apiVersion", "").rpartition("/")
        return bool(self.core.registry.in_group_version(group, version))

    async def _process_foreground(self, resource: Resource, record: Record) -> None:
        """Delete the dependents of an owner in foreground deletion; remove its finalizer once none blocks it."""
        blocked = False
        for key in list(self._dependents.get(record.uid, ())):
            dependent = self.core.store.get(key)
            if dependent is None:
                continue
            meta = dependent.obj["metadata"]
            reference = next((r for r in meta.get("ownerReferences") or [] if r["uid"] == record.uid), None)
            if reference is None or self._owner(reference, dependent) is None:
                continue
            if reference.get("blockOwnerDeletion"):
                blocked = True
            self.enqueue(key)
        if not blocked or self._in_cycle(record):
            await self._drop_finalizer(resource, record, FOREGROUND)

    def _in_cycle(self, record: Record) -> bool:
        """Whether this owner is part of a cycle of owners in foreground deletion."""
        seen: set[str] = set()
        waiting = [record.uid]
        while waiting:
            uid = waiting.pop()
            for key in self._dependents.get(uid, ()):
                dependent = self.core.store.get(key)
                if dependent is None or not _in_foreground_deletion(dependent):
                    continue
                if dependent.uid == record.uid:
                    return True
                if dependent.uid not in seen:
                    seen.add(dependent.uid)
                    waiting.append(dependent.uid)
        return False

    async def _process_orphan(self, resource: Resource, record: Record) -> None:
        dependents = [
            (kind, dependent)
            for key in self._dependents.get(record.uid, ())
            if (dependent := self.core.store.get(key)) and (kind := self.core.registry.by_storage(key[0]))
        ]
        await attempt_all(
            (self._remove_references(kind, dependent, {record.uid}) for kind, dependent in dependents), 404
        )
        await self._drop_finalizer(resource, record, ORPHAN)

    async def _remove_references(self, resource: Resource, record: Record, uids: set[str]) -> None:
        await self._filter_list(resource, record, "ownerReferences", lambda one: one["uid"] not in uids)

    async def _drop_finalizer(self, resource: Resource, record: Record, finalizer: str) -> None:
        await self._filter_list(resource, record, "finalizers", lambda one: one != finalizer)

    async def _filter_list(self, resource: Resource, record: Record, key: str, keep: Callable[[Any], bool]) -> None:
        def change(obj: dict[str, Any]) -> dict[str, Any]:
            filter_list(obj["metadata"], key, keep)
            return obj

        await self.core.verbs.modify(resource, record.key[1], record.key[2], change, self.options())

    async def _delete(self, resource: Resource, record: Record, propagation: str) -> None:
        request = Deletion(propagation=propagation, uid=record.uid)
        await self.core.verbs.delete(resource, record.key[1], record.key[2], request, self.options())


def _owner_uids(record: Record) -> frozenset[str]:
    if b'"ownerReferences"' not in record.body:
        return frozenset()
    return frozenset(r.get("uid", "") for r in record.obj["metadata"].get("ownerReferences") or [])


def _in_foreground_deletion(record: Record) -> bool:
    if b'"deletionTimestamp"' not in record.body:
        return False
    meta = record.obj["metadata"]
    return "deletionTimestamp" in meta and FOREGROUND in (meta.get("finalizers") or [])
