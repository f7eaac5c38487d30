"""The write path: how a new object is completed and an existing one replaced.

Every change of an object (update, patch, delete, controller) goes through `Writer`: it preserves identity, tracks field
ownership, applies defaults, admission and validation, sets the generation, and does one write with optimistic
concurrency.
"""

import random
from collections.abc import Awaitable, Callable
from typing import Any

from matrixcontainer.kubeapi.meta import errors, timestamps
from matrixcontainer.kubeapi.meta.errors import ApiError, Cause
from matrixcontainer.kubeapi.patch import apply
from matrixcontainer.kubeapi.registry import object_meta
from matrixcontainer.kubeapi.registry.options import Options, Outcome
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.registry.store_errors import store_lost
from matrixcontainer.kubeapi.registry.strategy import keep_part
from matrixcontainer.kubeapi.registry.validation import demand_valid, settle_namespace
from matrixcontainer.kubeapi.schema.structural import copy_json, same_json
from matrixcontainer.kubeapi.storage.objects import Conflict, Key, Record, StorageError, TooLarge
from matrixcontainer.kubeapi.storage.store import Store

RETRIES_MAX = 20

Obj = dict[str, Any]
AdmissionPlugin = Callable[[Resource, str, Obj | None, Obj | None, Options], Awaitable[Obj | None]]


class Writer:
    """Reads the latest state and writes one change, which succeeds only if the object has not changed meanwhile.

    `mutating` admission plugins may change or reject the object; `validating` plugins see the final, valid object and
    may reject it. `namespace_state` returns Active, Terminating, or "" if there is no such namespace.
    """

    def __init__(self, store: Store, now: Callable[[], float], rng: random.Random) -> None:
        self.store, self.now, self.rng = store, now, rng
        self.namespace_state: Callable[[str], str] = lambda name: "Active"
        self.mutating: list[AdmissionPlugin] = []
        self.validating: list[AdmissionPlugin] = []

    # ---- reading one

    def record(self, resource: Resource, namespace: str, name: str, newest: bool = False) -> Record:
        key = (resource.storage, namespace, name)
        found = self.store.latest(key) if newest else self.store.get(key)
        if found is None:
            raise errors.not_found(resource.plural, resource.group, name)
        return found

    # ---- create

    def demand_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        state = self.namespace_state(namespace)
        if state == "":
            raise errors.not_found("namespaces", "", namespace)
        if state == "Terminating":
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
            raise errors.forbidden(resource.plural, resource.group, name, why, [cause])

    def own_new(self, resource: Resource, obj: dict[str, Any], options: Options) -> None:
        """Record the creator as owner of the fields it sent and of defaults, but not of the status or of what the
        server sets."""
        resource.strategy.default(obj)
        reported = {key: value for key, value in obj.items() if key != "status" or not resource.status}
        reported["metadata"] = dict(obj["metadata"])
        now = timestamps.timestamp(self.now())
        apply.track_update(None, reported, resource.schema, options.manager, options.subresource, now)
        obj["metadata"].pop("managedFields", None)
        if "managedFields" in reported["metadata"]:
            obj["metadata"]["managedFields"] = reported["metadata"]["managedFields"]

    async def prepare_new(
        self, resource: Resource, obj: dict[str, Any], options: Options, applied: bool = False
    ) -> dict[str, Any]:
        meta = obj["metadata"]
        counted = 0 if resource.strategy.has_generation else meta.get("generation", 0)
        uid, namespace = object_meta.new_uid(self.rng), meta.get("namespace", "")
        _settle_new(resource, obj, namespace, uid)
        for plugin in self.mutating:
            if (changed := await plugin(resource, "CREATE", obj, None, options)) is not None:
                if applied:
                    self._track(resource, obj, changed, options)
                obj = changed
                resource.strategy.clean(obj, resource)
                _settle_new(resource, obj, namespace, uid)
        meta = obj["metadata"]
        meta["creationTimestamp"] = timestamps.timestamp(self.now())
        if resource.strategy.has_generation:
            meta["generation"] = 1
        elif counted:
            meta["generation"] = counted  # kinds without generation keep what the client sent
        demand_valid(resource, obj, None)
        for plugin in self.validating:
            await plugin(resource, "CREATE", obj, None, options)
        return obj

    async def insert(self, resource: Resource, namespace: str, obj: dict[str, Any], options: Options) -> Outcome:
        name = obj["metadata"]["name"]
        key = (resource.storage, namespace, name)
        self._demand_free(resource, key, obj)
        if options.dry_run:
            return Outcome(obj, created=True)
        try:
            record = await self.put(key, resource.store_form(obj), None)
        except Conflict:
            self._demand_free(resource, key, obj)
            raise errors.already_exists(resource.plural, resource.group, name) from None
        return Outcome(shown(resource, record, obj), created=True, record=record)

    def _demand_free(self, resource: Resource, key: Key, obj: dict[str, Any]) -> None:
        if (record := self.store.latest(key)) is not None:
            going = b'"deletionTimestamp"' in record.body and "deletionTimestamp" in record.obj["metadata"]
            made = bool(obj["metadata"].get("generateName"))
            raise errors.already_exists(resource.plural, resource.group, key[2], going, made)

    # ---- update

    async def modify(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[dict[str, Any]], dict[str, Any]],
        options: Options,
        stated: str = "",
        replace: bool = False,
        track: bool = True,
    ) -> Outcome:
        """Read, change and write the object, and retry on conflict. Without `track` field ownership is not updated."""
        for _ in range(RETRIES_MAX):
            record = self.record(resource, namespace, name, newest=True)
            if stated and stated != str(record.revision):
                raise errors.conflict(resource.plural, resource.group, name)
            old = resource.show(record)
            new = change(copy_json(old))
            if replace:
                _demand_same_uid(resource, old, new)
            else:
                wanted = object_meta.stated_revision(new, resource, name)
                if not wanted and not resource.strategy.unconditional_update:
                    raise without_revision(resource, name)
                if wanted and wanted != str(record.revision):
                    raise errors.conflict(resource.plural, resource.group, name)
            try:
                return await self._replace(resource, record, old, copy_json(new) if replace else new, options, track)
            except Conflict:
                if stated:
                    break
        raise errors.conflict(resource.plural, resource.group, name)

    async def _replace(
        self,
        resource: Resource,
        record: Record,
        old: dict[str, Any],
        new: dict[str, Any],
        options: Options,
        track: bool = True,
    ) -> Outcome:
        """Replace an existing object: keep immutable parts, default, admit, validate, set the generation, write."""
        name, namespace = record.key[2], record.key[1]
        strategy = resource.strategy
        self._keep_identity(resource, old, new)
        if track:
            self._claim(resource, old, new, options)
        self._keep_other_parts(resource, old, new, options)
        strategy.default(new)
        for plugin in self.mutating:
            if (changed := await plugin(resource, "UPDATE", new, old, options)) is not None:
                self._track(resource, new, changed, options)
                new = changed
                strategy.clean(new, resource)
                self._keep_identity(resource, old, new)
                self._keep_other_parts(resource, old, new, options)
                strategy.default(new)
        demand_valid(resource, new, old, options.subresource == "status")
        for plugin in self.validating:
            await plugin(resource, "UPDATE", new, old, options)
        if (
            strategy.has_generation
            and options.subresource != "status"
            and not same_json(spec_for_generation(resource, old), spec_for_generation(resource, new))
        ):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if not differs(old, new):
            return Outcome(resource.show(record), record=record)
        ends = bool(new["metadata"].get("deletionTimestamp")) and not pending_work(new)
        if options.dry_run:
            new["metadata"]["resourceVersion"] = str(record.revision)
            return Outcome(new, gone=ends)
        if ends:  # watchers see the last stored state, the caller its own
            gone = await self.erase(resource, record, old)
            new["metadata"]["resourceVersion"] = gone.obj["metadata"]["resourceVersion"]
            return Outcome(new, gone=True)
        kept = await self.put((resource.storage, namespace, name), resource.store_form(new), record)
        return Outcome(shown(resource, kept, new), record=kept)

    def _claim(self, resource: Resource, old: dict[str, Any], new: dict[str, Any], options: Options) -> None:
        """Make the writer the owner of what it sends, even of fields that the strategy resets afterwards, but not of
        fields that its endpoint never writes: the status on the main endpoint, everything else on /status.
        """
        resource.strategy.default(new)
        reported = new | {"metadata": dict(new["metadata"])}
        if options.subresource == "status":
            for key in (set(reported) | set(old)) - {"apiVersion", "kind", "metadata", "status"}:
                keep_part(reported, old, key)
        elif resource.status and not options.from_controller:
            keep_part(reported, old, "status")
        self._track(resource, old, reported, options)
        new["metadata"].pop("managedFields", None)
        if "managedFields" in reported["metadata"]:
            new["metadata"]["managedFields"] = reported["metadata"]["managedFields"]

    def _track(self, resource: Resource, old: dict[str, Any], new: dict[str, Any], options: Options) -> None:
        now = timestamps.timestamp(self.now())
        apply.track_update(old, new, resource.schema, options.manager, options.subresource, now)

    def _keep_identity(self, resource: Resource, old: dict[str, Any], new: dict[str, Any]) -> None:
        before, after = old["metadata"], new["metadata"]
        name = before["name"]
        if after.get("name", name) != name:
            raise errors.bad_request(
                f"the name of the object ({after['name']}) does not match the name on the URL ({name})"
            )
        if found := object_meta.check_identity(after, before):
            raise errors.unprocessable(resource.kind, resource.group, name, found)
        for key in (*object_meta.SERVER_OWNED, "name", "namespace"):
            if key in before:
                after[key] = before[key]
            else:
                after.pop(key, None)

    def _keep_other_parts(self, resource: Resource, old: dict[str, Any], new: dict[str, Any], options: Options) -> None:
        if options.subresource == "status":
            resource.strategy.prepare_status_update(new, old)
        elif not options.from_controller:
            resource.strategy.prepare_update(new, old, resource)

    # ---- to the store

    async def erase(self, resource: Resource, record: Record, last: dict[str, Any]) -> Outcome:
        try:
            gone = await self.store.remove(record.key, resource.store_form(last), record)
        except StorageError as failure:
            raise store_lost(failure) from failure
        return Outcome(resource.show(gone), gone=True, record=gone)

    async def put(self, key: Key, obj: dict[str, Any], expected: Record | None) -> Record:
        try:
            return await self.store.put(key, obj, expected)
        except TooLarge as failure:
            raise errors.untyped("etcdserver: request is too large") from failure
        except StorageError as failure:
            raise store_lost(failure) from failure


def _settle_new(resource: Resource, obj: Obj, namespace: str, uid: str) -> None:
    """Set what neither the client nor admission may: a new object's identity, namespace and initial status."""
    meta = obj["metadata"]
    for key in object_meta.SERVER_OWNED:
        meta.pop(key, None)
    meta["uid"] = uid
    settle_namespace(resource, namespace, meta)
    resource.strategy.prepare_create(obj, resource)
    resource.strategy.default(obj)


def without_revision(resource: Resource, name: str) -> ApiError:
    cause = errors.invalid("metadata.resourceVersion", errors.Spelled("0x0"), "must be specified for an update")
    return errors.unprocessable(resource.plural, resource.group, name, [cause])


def _demand_same_uid(resource: Resource, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Raise 409 if a replacement states another object's uid."""
    stated, before = new["metadata"].get("uid"), old["metadata"]
    if stated and stated != before["uid"]:
        group = f"{resource.group}/" if resource.custom else ""
        key = "/".join(part for part in (before.get("namespace", ""), before["name"]) if part)
        why = (
            f"StorageError: invalid object, Code: 4, Key: /registry/{group}{resource.plural}/{key}, "
            "ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
            f"UID in precondition: {stated}, UID in object meta: {before['uid']}"
        )
        raise errors.conflict(resource.plural, resource.group, before["name"], why)


def shown(resource: Resource, record: Record, obj: dict[str, Any]) -> dict[str, Any]:
    """The object just stored, without parsing it again: `obj` with its new resourceVersion."""
    if resource.from_storage is not None:
        return resource.show(record)
    obj["metadata"]["resourceVersion"] = str(record.revision)
    return obj


def pending_work(obj: dict[str, Any]) -> bool:
    """Whether finalizers or a grace period still keep a deleted object."""
    meta = obj["metadata"]
    return bool(
        meta.get("finalizers")
        or meta.get("deletionGracePeriodSeconds", 0) > 0
        or (obj["kind"] == "Namespace" and obj["apiVersion"] == "v1" and obj.get("spec", {}).get("finalizers"))
    )


def spec_for_generation(resource: Resource, obj: dict[str, Any]) -> dict[str, Any]:
    """The fields whose changes increment the generation: all but metadata and, with a status subresource, status."""
    skip = {"metadata", "apiVersion", "kind"} | ({"status"} if resource.status else set())
    return {key: value for key, value in obj.items() if key not in skip}


def differs(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether a write would change anything; timestamps in managedFields alone do not count."""

    def plain(obj: dict[str, Any]) -> dict[str, Any]:
        meta = dict(obj["metadata"])
        meta.pop("resourceVersion", None)
        if "managedFields" in meta:
            meta["managedFields"] = [{k: v for k, v in entry.items() if k != "time"} for entry in meta["managedFields"]]
        return obj | {"metadata": meta}

    return not same_json(plain(old), plain(new))
