"""The verbs of every kind: get, create, update, patch, apply, modify, delete.

`Verbs` combines them: a `Decoder` decodes bodies, a `Writer` does all writes to the store, a `Patcher` patches and a
`Deleter` deletions. Lists and watches are in list.py and watch.py; controllers complete deletions. Nothing here knows
HTTP: options come in as `Options`, errors are raised as ApiError.
"""

import random
from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.registry import object_meta
from matrixcontainer.kubeapi.registry.decoder import Decoder
from matrixcontainer.kubeapi.registry.deleter import Deleter
from matrixcontainer.kubeapi.registry.options import Options, Outcome
from matrixcontainer.kubeapi.registry.patcher import Patcher
from matrixcontainer.kubeapi.registry.resource import Registry, Resource
from matrixcontainer.kubeapi.registry.validation import require_name, set_namespace
from matrixcontainer.kubeapi.registry.writer import Writer, missing_revision_error
from matrixcontainer.kubeapi.storage.store import Store


class Verbs:
    """All verbs. `modify` is a read-modify-write for the server's own controllers and for subresources."""

    def __init__(self, store: Store, registry: Registry, now: Callable[[], float], rng: random.Random) -> None:
        self.writer = Writer(store, now, rng)
        self.decoder = Decoder(registry)
        patcher = Patcher(self.decoder, self.writer)
        self.record, self.modify = self.writer.record, self.writer.modify
        self.patch, self.apply = patcher.patch, patcher.apply
        self.delete = Deleter(self.writer).delete

    def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        return resource.served_object(self.record(resource, namespace, name))

    async def create(self, resource: Resource, namespace: str, body: dict[str, Any], options: Options) -> Outcome:
        if resource.terminating:
            raise errors.method_not_allowed("create not allowed while custom resource definition is terminating")
        obj = self.decoder.decode(resource, body, options)
        meta = obj["metadata"]
        if meta.get("resourceVersion"):
            raise errors.untyped("resourceVersion should not be set on objects to be created")
        set_namespace(resource, namespace, meta)
        generated = not meta.get("name") and bool(meta.get("generateName"))
        for attempt in range(8):
            if generated:
                meta["name"] = object_meta.generated_name(meta["generateName"], self.writer.rng)
            name = meta.get("name", "")
            if resource.namespaced:
                self.writer.require_namespace(resource, namespace, name)
            if not generated or self.writer.store.latest((resource.storage, namespace, name)) is None or attempt == 7:
                break
        self.writer.track_new(resource, obj, options)
        obj = await self.writer.prepare_new(resource, obj, options)
        return await self.writer.insert(resource, namespace, obj, options)

    async def update(
        self, resource: Resource, namespace: str, name: str, body: dict[str, Any], options: Options
    ) -> Outcome:
        new = self.decoder.decode(resource, body, options)
        meta = new["metadata"]
        require_name(new, "", name)
        set_namespace(resource, namespace, meta)
        expected_revision = object_meta.requested_revision(new, resource, name)
        record = self.writer.store.latest((resource.storage, namespace, name))
        if record is None:
            if resource.strategy.create_on_update:
                meta.pop("resourceVersion", None)
                return await self.create(resource, namespace, new, options)
            raise errors.not_found(resource.plural, resource.group, name)
        if not expected_revision and not resource.strategy.unconditional_update:
            raise missing_revision_error(resource, name)
        return await self.writer.modify(
            resource, namespace, name, lambda old: new, options, expected_revision=expected_revision, replace=True
        )
