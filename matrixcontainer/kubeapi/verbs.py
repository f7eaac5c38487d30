"""The verbs every kind shares: create, update, patch, apply, delete, deletecollection.

`Verbs` loads the newest state, decides, and hands the store one change that holds only if nobody was faster; a patch
without a stated resourceVersion tries again. Reading is in listing.py, the life after a delete (garbage collection,
namespaces) in controllers. Nothing here knows of HTTP: options come in as `Options`, refusals leave as ApiError.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from matrixcontainer.kubeapi import apply, errors, object_meta, patches
from matrixcontainer.kubeapi.errors import Cause
from matrixcontainer.kubeapi.resources import Resource
from matrixcontainer.kubeapi.schema import copy_json
from matrixcontainer.kubeapi.store import Key, Record, Stale, Store, StoreLost

RETRIES_MAX = 20

Check = Callable[[dict[str, Any] | None, dict[str, Any] | None], None]


@dataclass
class Options:
    """What a request says beside its body. `warnings` is filled on the way and becomes Warning headers."""

    user: str = "system:admin"
    field_manager: str = ""
    user_agent: str = ""
    field_validation: str = "Warn"  # Strict, Warn, Ignore
    dry_run: bool = False
    force: bool = False
    subresource: str = ""
    warnings: list[str] = field(default_factory=list)
    from_controller: bool = False

    @property
    def manager(self) -> str:
        return self.field_manager or self.user_agent.split("/", 1)[0] or "unknown"


@dataclass
class Deletion:
    """DeleteOptions, from the body or the query."""

    propagation: str = ""  # Background, Foreground, Orphan
    grace_s: int | None = None
    uid: str = ""
    revision: str = ""
    dry_run: bool = False


@dataclass
class Outcome:
    """The object after the verb, in the version of the request; `created` and `gone` tell what became of it."""

    obj: dict[str, Any]
    created: bool = False
    gone: bool = False
    record: Record | None = None


class Verbs:
    def __init__(self, store: Store, now: Callable[[], float], chance: random.Random) -> None:
        self.store = store
        self.now = now
        self.chance = chance
        self.namespace_state: Callable[[str], str] = lambda name: "Active"
        self.gates: list[Callable[[Resource, str, dict[str, Any] | None, dict[str, Any] | None, Options], Any]] = []

    # ---- reading one

    def record(self, resource: Resource, namespace: str, name: str, newest: bool = False) -> Record:
        key = (resource.storage, namespace, name)
        found = self.store.latest(key) if newest else self.store.get(key)
        if found is None:
            raise errors.not_found(resource.plural, resource.group, name)
        return found

    def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        return resource.show(self.record(resource, namespace, name))

    # ---- create

    async def create(self, resource: Resource, namespace: str, body: dict[str, Any], options: Options) -> Outcome:
        if resource.ending:
            raise errors.method_not_allowed("create not allowed while custom resource definition is terminating")
        obj = self.decode(resource, body, options)
        meta = obj["metadata"]
        if meta.get("resourceVersion"):
            raise errors.internal("resourceVersion should not be set on objects to be created")
        self._settle_namespace(resource, namespace, meta)
        generated = not meta.get("name") and bool(meta.get("generateName"))
        for attempt in range(8):
            if generated:
                meta["name"] = object_meta.generated_name(meta["generateName"], self.chance)
            name = meta.get("name", "")
            if resource.namespaced:
                self._demand_namespace(resource, namespace, name)
            if not generated or self.store.latest((resource.storage, namespace, name)) is None or attempt == 7:
                break
        if name and self.store.latest((resource.storage, namespace, name)) is not None:
            raise errors.already_exists(resource.plural, resource.group, name)
        obj = await self._prepare_new(resource, obj, options)
        manager, now = options.manager, object_meta.timestamp(self.now())
        apply.track_update(None, obj, resource.schema, manager, options.subresource, now)
        return await self._insert(resource, namespace, obj, options)

    async def _prepare_new(self, resource: Resource, obj: dict[str, Any], options: Options) -> dict[str, Any]:
        meta = obj["metadata"]
        for key in object_meta.SERVER_OWNED:
            meta.pop(key, None)
        meta["uid"] = uid = object_meta.new_uid(self.chance)
        resource.strategy.prepare_create(obj, resource)
        resource.strategy.default(obj)
        for gate in self.gates:
            if (changed := await gate(resource, "CREATE", obj, None, options)) is not None:
                obj = changed
                resource.strategy.clean(obj, resource)
                resource.strategy.default(obj)
        meta = obj["metadata"]
        meta["uid"] = uid
        meta["creationTimestamp"] = object_meta.timestamp(self.now())
        if resource.strategy.has_generation:
            meta["generation"] = 1
        self._demand_valid(resource, obj, None)
        return obj

    async def _insert(self, resource: Resource, namespace: str, obj: dict[str, Any], options: Options) -> Outcome:
        name = obj["metadata"]["name"]
        if options.dry_run:
            return Outcome(obj, created=True)
        try:
            record = await self._put((resource.storage, namespace, name), resource.store_form(obj), None)
        except Stale:
            raise errors.already_exists(resource.plural, resource.group, name) from None
        return Outcome(resource.show(record), created=True, record=record)

    def decode(self, resource: Resource, body: dict[str, Any], options: Options) -> dict[str, Any]:
        """A body as an object of this resource: kind and version checked; unknown fields refused, warned of or dropped."""  # noqa: E501
        if not isinstance(body, dict):
            raise errors.bad_request("the object provided is unrecognized (must be of type Object)")
        kind, api_version = body.get("kind"), body.get("apiVersion")
        if resource.custom and not kind:
            raise errors.bad_request("Object 'Kind' is missing in the body of the request")
        if (kind and kind != resource.kind) or (api_version and api_version != resource.api_version):
            raise errors.bad_request(
                f"the API version in the data ({api_version}, Kind={kind}) does not match the expected API version "
                f"({resource.api_version}, Kind={resource.kind})"
            )
        obj = {"apiVersion": resource.api_version, "kind": resource.kind} | {
            key: value for key, value in body.items() if key not in ("apiVersion", "kind")
        }
        unknown = resource.strategy.clean(obj, resource)
        unknown += [path for path in object_meta.clean_metadata(obj, resource) if path not in unknown]
        self.report_unknown([f'unknown field "{path}"' for path in sorted(unknown)], resource, options)
        return obj

    def report_unknown(self, texts: list[str], resource: Resource, options: Options) -> None:
        if not texts or options.field_validation == "Ignore":
            return
        if options.field_validation == "Strict":
            raise errors.bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
                f"strict decoding error: {', '.join(texts)}"
            )
        options.warnings.extend(texts)

    def _settle_namespace(self, resource: Resource, namespace: str, meta: dict[str, Any]) -> None:
        stated = meta.get("namespace", "")
        if stated and stated != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if resource.namespaced:
            meta["namespace"] = namespace
        else:
            meta.pop("namespace", None)

    def _demand_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        state = self.namespace_state(namespace)
        if state == "":
            raise errors.not_found("namespaces", "", namespace)
        if state == "Terminating":
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
            raise errors.forbidden(resource.plural, resource.group, name, why, [cause])

    def _demand_valid(self, resource: Resource, obj: dict[str, Any], old: dict[str, Any] | None) -> None:
        found = object_meta.check_metadata(obj, resource)
        if old is not None:
            known = set(object_meta.check_metadata(old, resource))
            found = [cause for cause in found if cause not in known] + object_meta.check_metadata_update(obj, old)
        found += resource.strategy.validate(obj, old)
        if found:
            raise errors.unprocessable(resource.kind, resource.group, obj["metadata"].get("name", ""), found)

    # ---- update

    async def update(
        self, resource: Resource, namespace: str, name: str, body: dict[str, Any], options: Options
    ) -> Outcome:
        new = self.decode(resource, body, options)
        meta = new["metadata"]
        if meta.get("name", name) != name:
            raise errors.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
            )
        meta["name"] = name
        self._settle_namespace(resource, namespace, meta)
        stated = object_meta.stated_revision(new, resource, name)
        record = self.store.latest((resource.storage, namespace, name))
        if record is None:
            if resource.strategy.create_on_update:
                meta.pop("resourceVersion", None)
                return await self.create(resource, namespace, new, options)
            raise errors.not_found(resource.plural, resource.group, name)
        if not stated and not resource.strategy.unconditional_update:
            cause = errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise errors.unprocessable(resource.kind, resource.group, name, [cause])
        return await self._retrying(resource, namespace, name, lambda old: new, options, stated=stated, replace=True)

    async def modify(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[dict[str, Any]], dict[str, Any]],
        options: Options,
    ) -> Outcome:
        """Read, change, write, again if somebody was faster; for patches and for the server's own controllers."""
        return await self._retrying(resource, namespace, name, change, options)

    async def _retrying(
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
        for _ in range(RETRIES_MAX):
            record = self.record(resource, namespace, name, newest=True)
            if stated and stated != str(record.revision):
                raise errors.conflict(resource.plural, resource.group, name)
            old = resource.show(record)
            new = change(copy_json(old))
            if not replace:
                wanted = str(new.get("metadata", {}).get("resourceVersion", ""))
                if wanted and wanted != str(record.revision):
                    raise errors.conflict(resource.plural, resource.group, name)
            try:
                return await self._replace(resource, record, old, copy_json(new) if replace else new, options, track)
            except Stale:
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
        """The one way an existing object becomes another: keep what is fixed, default, check, count, write."""
        name, namespace = record.key[2], record.key[1]
        strategy = resource.strategy
        self._keep_identity(resource, old, new)
        self._keep_other_parts(resource, old, new, options)
        strategy.default(new)
        for gate in self.gates:
            if (changed := await gate(resource, "UPDATE", new, old, options)) is not None:
                new = changed
                strategy.clean(new, resource)
                self._keep_identity(resource, old, new)
                self._keep_other_parts(resource, old, new, options)
                strategy.default(new)
        if track:
            now = object_meta.timestamp(self.now())
            apply.track_update(old, new, resource.schema, options.manager, options.subresource, now)
        self._demand_valid(resource, new, old)
        if strategy.has_generation and options.subresource != "status" and _wish(resource, old) != _wish(resource, new):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if not _differs(old, new):
            return Outcome(resource.show(record), record=record)
        ends = bool(new["metadata"].get("deletionTimestamp")) and not _pending_work(new)
        if options.dry_run:
            new["metadata"]["resourceVersion"] = str(record.revision)
            return Outcome(new, gone=ends)
        if ends:
            return await self._erase(resource, record, new)
        kept = await self._put((resource.storage, namespace, name), resource.store_form(new), record)
        return Outcome(resource.show(kept), record=kept)

    def _keep_identity(self, resource: Resource, old: dict[str, Any], new: dict[str, Any]) -> None:
        before, after = old["metadata"], new["metadata"]
        name = before["name"]
        if after.get("name", name) != name:
            cause = errors.invalid("metadata.name", after.get("name"), "field is immutable")
            raise errors.unprocessable(resource.kind, resource.group, name, [cause])
        if after.get("uid") and after["uid"] != before["uid"]:
            why = f"Precondition failed: UID in precondition: {after['uid']}, UID in object meta: {before['uid']}"
            raise errors.conflict(resource.plural, resource.group, name, why)
        for key in (*object_meta.SERVER_OWNED, "name", "namespace", "generateName"):
            if key in before:
                after[key] = before[key]
            else:
                after.pop(key, None)

    def _keep_other_parts(self, resource: Resource, old: dict[str, Any], new: dict[str, Any], options: Options) -> None:
        if options.subresource == "status":
            resource.strategy.prepare_status_update(new, old)
        elif not options.from_controller:
            resource.strategy.prepare_update(new, old, resource)

    # ---- patch

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch_type: str,
        patch: Any,
        options: Options,
    ) -> Outcome:
        """`patch_type` is json, merge or strategic; the patch is already parsed."""
        warned = len(options.warnings)

        def change(old: dict[str, Any]) -> dict[str, Any]:
            del options.warnings[warned:]
            if patch_type == "json":
                new = patches.json_patch(old, patch)
            elif not isinstance(patch, dict):
                raise errors.bad_request("the patch must be an object")
            elif patch_type == "merge":
                new = patches.merge_patch(old, patch)
            else:
                new = patches.strategic_patch(old, patch, resource.schema)
            return self.decode(resource, new, options)

        return await self._retrying(resource, namespace, name, change, options)

    async def apply(
        self, resource: Resource, namespace: str, name: str, config: dict[str, Any], options: Options
    ) -> Outcome:
        """Server-side apply: creates the object when it is not there."""
        if not options.field_manager:
            cause = errors.required("fieldManager", "is required for apply patch")
            raise errors.unprocessable("PatchOptions", "meta.k8s.io", "", [cause])
        if not isinstance(config, dict):
            raise errors.bad_request("the applied configuration must be an object")
        if not config.get("kind") or not config.get("apiVersion"):
            raise errors.bad_request("the applied configuration must state apiVersion and kind")
        if (config.get("metadata") or {}).get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        config = self.decode(resource, config, options)
        meta = config["metadata"]
        if meta.get("name", name) != name:
            raise errors.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
            )
        meta["name"] = name
        stated = object_meta.stated_revision(config, resource, name)
        meta.pop("resourceVersion", None)
        self._settle_namespace(resource, namespace, meta)
        self._narrow(resource, config, options)
        record = self.store.latest((resource.storage, namespace, name))
        if record is None:
            if options.subresource or meta.get("uid"):
                raise errors.not_found(resource.plural, resource.group, name)
            if resource.namespaced:
                self._demand_namespace(resource, namespace, name)
            obj = apply.apply_config(
                None,
                config,
                resource.schema,
                options.manager,
                "",
                options.force,
                object_meta.timestamp(self.now()),
            )
            return await self._insert(resource, namespace, await self._prepare_new(resource, obj, options), options)

        def change(old: dict[str, Any]) -> dict[str, Any]:
            now = object_meta.timestamp(self.now())
            sub = options.subresource
            return apply.apply_config(old, config, resource.schema, options.manager, sub, options.force, now)

        return await self._retrying(resource, namespace, name, change, options, stated=stated, track=False)

    def _narrow(self, resource: Resource, config: dict[str, Any], options: Options) -> None:
        """An apply owns only what its endpoint writes: status on /status, everything else on the main one."""
        if options.subresource == "status":
            for key in set(config) - {"apiVersion", "kind", "metadata", "status"}:
                del config[key]
            config["metadata"] = {k: v for k, v in config["metadata"].items() if k in ("name", "namespace", "uid")}
        elif resource.status:
            config.pop("status", None)

    # ---- delete

    async def delete(self, resource: Resource, namespace: str, name: str, wish: Deletion, options: Options) -> Outcome:
        for _ in range(RETRIES_MAX):
            record = self.record(resource, namespace, name, newest=True)
            obj = resource.show(record)
            meta = obj["metadata"]
            for said, held, word in (
                (wish.uid, meta["uid"], "UID"),
                (wish.revision, str(record.revision), "ResourceVersion"),
            ):
                if said and said != held:
                    why = f"Precondition failed: {word} in precondition: {said}, {word} in object meta: {held}"
                    raise errors.conflict(resource.plural, resource.group, name, why)
            for gate in self.gates:
                await gate(resource, "DELETE", None, obj, options)
            try:
                return await self._delete_once(resource, record, obj, wish)
            except Stale:
                continue
        raise errors.conflict(resource.plural, resource.group, name)

    async def _delete_once(self, resource: Resource, record: Record, obj: dict[str, Any], wish: Deletion) -> Outcome:
        meta = obj["metadata"]
        before = copy_json(obj)
        finalizers = [f for f in meta.get("finalizers") or [] if f not in ("foregroundDeletion", "orphan")]
        standing = [f for f in meta.get("finalizers") or [] if f in ("foregroundDeletion", "orphan")]
        if wish.propagation == "Foreground":
            finalizers.append("foregroundDeletion")
        elif wish.propagation == "Orphan":
            finalizers.append("orphan")
        elif not wish.propagation:
            finalizers += standing
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
        grace = 0
        if resource.strategy.grace is not None:
            grace = resource.strategy.grace(obj, wish.grace_s)
        first = "deletionTimestamp" not in meta
        if first or grace < meta.get("deletionGracePeriodSeconds", 0):
            started = object_meta.parse_timestamp(meta["deletionTimestamp"]) if not first else self.now()
            base = started - meta.get("deletionGracePeriodSeconds", 0) if not first else started
            meta["deletionTimestamp"] = object_meta.timestamp(base + grace)
            meta["deletionGracePeriodSeconds"] = grace
            if first and resource.strategy.has_generation and "generation" in meta:
                meta["generation"] += 1
            resource.strategy.mark_deleted(obj)
        if not _pending_work(obj):
            if wish.dry_run:
                return Outcome(before, gone=True)
            if first and not resource.strategy.returns_deleted:
                return await self._erase(resource, record, before)
            return await self._erase(resource, record, obj if grace == 0 and not first else before)
        if wish.dry_run or not _differs(before, obj):
            return Outcome(obj, record=record)
        kept = await self._put(record.key, resource.store_form(obj), record)
        return Outcome(resource.show(kept), record=kept)

    async def _erase(self, resource: Resource, record: Record, last: dict[str, Any]) -> Outcome:
        try:
            gone = await self.store.remove(record.key, resource.store_form(last), record)
        except StoreLost as failure:
            raise errors.internal(str(failure)) from failure
        return Outcome(resource.show(gone), gone=True, record=gone)

    async def _put(self, key: Key, obj: dict[str, Any], expected: Record | None) -> Record:
        try:
            return await self.store.put(key, obj, expected)
        except StoreLost as failure:
            raise errors.internal(str(failure)) from failure


def _pending_work(obj: dict[str, Any]) -> bool:
    """Whether something still has to happen before a deleted object may go."""
    meta = obj["metadata"]
    return bool(
        meta.get("finalizers")
        or meta.get("deletionGracePeriodSeconds", 0) > 0
        or (obj["kind"] == "Namespace" and obj["apiVersion"] == "v1" and obj.get("spec", {}).get("finalizers"))
    )


def _wish(resource: Resource, obj: dict[str, Any]) -> dict[str, Any]:
    """What generation counts: everything but metadata and, where it has its own endpoint, status."""
    skip = {"metadata", "apiVersion", "kind"} | ({"status"} if resource.status else set())
    return {key: value for key, value in obj.items() if key not in skip}


def _differs(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether a write would change anything; moments in managedFields alone do not count."""

    def plain(obj: dict[str, Any]) -> dict[str, Any]:
        meta = dict(obj["metadata"])
        meta.pop("resourceVersion", None)
        if "managedFields" in meta:
            meta["managedFields"] = [{k: v for k, v in entry.items() if k != "time"} for entry in meta["managedFields"]]
        return obj | {"metadata": meta}

    return plain(old) != plain(new)
