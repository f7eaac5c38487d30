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
from matrixcontainer.kubeapi.registry.store_errors import storage_api_error
from matrixcontainer.kubeapi.registry.strategy import restore_field
from matrixcontainer.kubeapi.registry.validation import set_namespace, validate_object
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

    def require_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        state = self.namespace_state(namespace)
        if state == "":
            raise errors.not_found("namespaces", "", namespace)
        if state == "Terminating":
            message = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
            raise errors.forbidden(resource.plural, resource.group, name, message, [cause])

    def track_new(self, resource: Resource, obj: dict[str, Any], options: Options) -> None:
        """Record the creator as owner of the fields it sent and of defaults, but not of the status or of what the
        server sets."""
        resource.strategy.default(obj)
        owned = {key: value for key, value in obj.items() if key != "status" or not resource.status}
        owned["metadata"] = dict(obj["metadata"])
        now = timestamps.timestamp(self.now())
        apply.track_update(None, owned, resource.schema, options.manager, options.subresource, now)
        obj["metadata"].pop("managedFields", None)
        if "managedFields" in owned["metadata"]:
            obj["metadata"]["managedFields"] = owned["metadata"]["managedFields"]

    async def prepare_new(
        self, resource: Resource, obj: dict[str, Any], options: Options, applied: bool = False
    ) -> dict[str, Any]:
        meta = obj["metadata"]
        client_generation = 0 if resource.strategy.has_generation else meta.get("generation", 0)
        uid, namespace = object_meta.new_uid(self.rng), meta.get("namespace", "")
        _initialise_new(resource, obj, namespace, uid)
        for plugin in self.mutating:
            if (changed := await plugin(resource, "CREATE", obj, None, options)) is not None:
                if applied:
                    self._track(resource, obj, changed, options)
                obj = changed
                resource.strategy.clean(obj, resource)
                _initialise_new(resource, obj, namespace, uid)
        meta = obj["metadata"]
        meta["creationTimestamp"] = timestamps.timestamp(self.now())
        if resource.strategy.has_generation:
            meta["generation"] = 1
        elif client_generation:
            meta["generation"] = client_generation  # kinds without generation keep what the client sent
        validate_object(resource, obj, None)
        for plugin in self.validating:
            await plugin(resource, "CREATE", obj, None, options)
        return obj

    async def insert(self, resource: Resource, namespace: str, obj: dict[str, Any], options: Options) -> Outcome:
        name = obj["metadata"]["name"]
        key = (resource.storage, namespace, name)
        self._require_absent(resource, key, obj)
        if options.dry_run:
            return Outcome(obj, created=True)
        try:
            record = await self.put(key, resource.stored_object(obj), None)
        except Conflict:
            self._require_absent(resource, key, obj)
            raise errors.already_exists(resource.plural, resource.group, name) from None
        return Outcome(stored_result(resource, record, obj), created=True, record=record)

    def _require_absent(self, resource: Resource, key: Key, obj: dict[str, Any]) -> None:
        if (record := self.store.latest(key)) is not None:
            terminating = b'"deletionTimestamp"' in record.body and "deletionTimestamp" in record.obj["metadata"]
            generated = bool(obj["metadata"].get("generateName"))
            raise errors.already_exists(resource.plural, resource.group, key[2], terminating, generated)

    # ---- update

    async def modify(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[dict[str, Any]], dict[str, Any]],
        options: Options,
        expected_revision: str = "",
        replace: bool = False,
        track: bool = True,
    ) -> Outcome:
        """Read, change and write the object, and retry on conflict. Without `track` field ownership is not updated."""
        for _ in range(RETRIES_MAX):
            record = self.record(resource, namespace, name, newest=True)
            if expected_revision and expected_revision != str(record.revision):
                raise errors.conflict(resource.plural, resource.group, name)
            old = resource.served_object(record)
            new = change(copy_json(old))
            if replace:
                _require_same_uid(resource, old, new)
            else:
                requested = object_meta.requested_revision(new, resource, name)
                if not requested and not resource.strategy.unconditional_update:
                    raise missing_revision_error(resource, name)
                if requested and requested != str(record.revision):
                    raise errors.conflict(resource.plural, resource.group, name)
            try:
                return await self._replace(resource, record, old, copy_json(new) if replace else new, options, track)
            except Conflict:
                if expected_revision:
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
        self._restore_identity(resource, old, new)
        if track:
            self._track_sent_fields(resource, old, new, options)
        self._restore_other_fields(resource, old, new, options)
        strategy.default(new)
        for plugin in self.mutating:
            if (changed := await plugin(resource, "UPDATE", new, old, options)) is not None:
                self._track(resource, new, changed, options)
                new = changed
                strategy.clean(new, resource)
                self._restore_identity(resource, old, new)
                self._restore_other_fields(resource, old, new, options)
                strategy.default(new)
        validate_object(resource, new, old, options.subresource == "status")
        for plugin in self.validating:
            await plugin(resource, "UPDATE", new, old, options)
        if (
            strategy.has_generation
            and options.subresource != "status"
            and not same_json(spec_for_generation(resource, old), spec_for_generation(resource, new))
        ):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if not has_changed(old, new):
            return Outcome(resource.served_object(record), record=record)
        is_final = bool(new["metadata"].get("deletionTimestamp")) and not is_kept(new)
        if options.dry_run:
            new["metadata"]["resourceVersion"] = str(record.revision)
            return Outcome(new, deleted=is_final)
        if is_final:  # watchers see the last stored state, the caller its own
            deleted = await self.erase(resource, record, old)
            new["metadata"]["resourceVersion"] = deleted.obj["metadata"]["resourceVersion"]
            return Outcome(new, deleted=True)
        stored = await self.put((resource.storage, namespace, name), resource.stored_object(new), record)
        return Outcome(stored_result(resource, stored, new), record=stored)

    def _track_sent_fields(
        self, resource: Resource, old: dict[str, Any], new: dict[str, Any], options: Options
    ) -> None:
        """Make the writer the owner of what it sends, even of fields that the strategy resets afterwards, but not of
        fields that its endpoint never writes: the status on the main endpoint, everything else on /status.
        """
        resource.strategy.default(new)
        owned = new | {"metadata": dict(new["metadata"])}
        if options.subresource == "status":
            for key in (set(owned) | set(old)) - {"apiVersion", "kind", "metadata", "status"}:
                restore_field(owned, old, key)
        elif resource.status and not options.from_controller:
            restore_field(owned, old, "status")
        self._track(resource, old, owned, options)
        new["metadata"].pop("managedFields", None)
        if "managedFields" in owned["metadata"]:
            new["metadata"]["managedFields"] = owned["metadata"]["managedFields"]

    def _track(self, resource: Resource, old: dict[str, Any], new: dict[str, Any], options: Options) -> None:
        now = timestamps.timestamp(self.now())
        apply.track_update(old, new, resource.schema, options.manager, options.subresource, now)

    def _restore_identity(self, resource: Resource, old: dict[str, Any], new: dict[str, Any]) -> None:
        before, after = old["metadata"], new["metadata"]
        name = before["name"]
        if after.get("name", name) != name:
            raise errors.bad_request(
                f"the name of the object ({after['name']}) does not match the name on the URL ({name})"
            )
        if causes := object_meta.check_identity(after, before):
            raise errors.unprocessable(resource.kind, resource.group, name, causes)
        for key in (*object_meta.SERVER_OWNED, "name", "namespace"):
            if key in before:
                after[key] = before[key]
            else:
                after.pop(key, None)

    def _restore_other_fields(
        self, resource: Resource, old: dict[str, Any], new: dict[str, Any], options: Options
    ) -> None:
        if options.subresource == "status":
            resource.strategy.prepare_status_update(new, old)
        elif not options.from_controller:
            resource.strategy.prepare_update(new, old, resource)

    # ---- to the store

    async def erase(self, resource: Resource, record: Record, last: dict[str, Any]) -> Outcome:
        try:
            deleted = await self.store.remove(record.key, resource.stored_object(last), record)
        except StorageError as failure:
            raise storage_api_error(failure) from failure
        return Outcome(resource.served_object(deleted), deleted=True, record=deleted)

    async def put(self, key: Key, obj: dict[str, Any], expected: Record | None) -> Record:
        try:
            return await self.store.put(key, obj, expected)
        except TooLarge as failure:
            raise errors.untyped("etcdserver: request is too large") from failure
        except StorageError as failure:
            raise storage_api_error(failure) from failure


def _initialise_new(resource: Resource, obj: Obj, namespace: str, uid: str) -> None:
    """Set what neither the client nor admission may: a new object's identity, namespace and initial status."""
    meta = obj["metadata"]
    for key in object_meta.SERVER_OWNED:
        meta.pop(key, None)
    meta["uid"] = uid
    set_namespace(resource, namespace, meta)
    resource.strategy.prepare_create(obj, resource)
    resource.strategy.default(obj)


def missing_revision_error(resource: Resource, name: str) -> ApiError:
    cause = errors.invalid("metadata.resourceVersion", errors.Verbatim("0x0"), "must be specified for an update")
    return errors.unprocessable(resource.plural, resource.group, name, [cause])


def _require_same_uid(resource: Resource, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Raise 409 if a replacement states another object's uid."""
    requested_uid, before = new["metadata"].get("uid"), old["metadata"]
    if requested_uid and requested_uid != before["uid"]:
        group = f"{resource.group}/" if resource.custom else ""
        key = "/".join(part for part in (before.get("namespace", ""), before["name"]) if part)
        message = (
            f"StorageError: invalid object, Code: 4, Key: /registry/{group}{resource.plural}/{key}, "
            "ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
            f"UID in precondition: {requested_uid}, UID in object meta: {before['uid']}"
        )
        raise errors.conflict(resource.plural, resource.group, before["name"], message)


def stored_result(resource: Resource, record: Record, obj: dict[str, Any]) -> dict[str, Any]:
    """The object just stored, without parsing it again: `obj` with its new resourceVersion."""
    if resource.from_storage is not None:
        return resource.served_object(record)
    obj["metadata"]["resourceVersion"] = str(record.revision)
    return obj


def is_kept(obj: dict[str, Any]) -> bool:
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


def has_changed(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether a write would change anything; timestamps in managedFields alone do not count."""

    def plain(obj: dict[str, Any]) -> dict[str, Any]:
        meta = dict(obj["metadata"])
        meta.pop("resourceVersion", None)
        if "managedFields" in meta:
            meta["managedFields"] = [{k: v for k, v in entry.items() if k != "time"} for entry in meta["managedFields"]]
        return obj | {"metadata": meta}

    return not same_json(plain(old), plain(new))
