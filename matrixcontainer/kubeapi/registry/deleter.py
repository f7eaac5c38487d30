"""Deletion: immediate, or marked and completed later by finalizers, grace periods and controllers."""

from dataclasses import replace
from typing import Any

from matrixcontainer.kubeapi.meta import errors, timestamps
from matrixcontainer.kubeapi.registry.options import Deletion, Options, Outcome
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.registry.writer import RETRIES_MAX, Writer, has_changed, is_kept
from matrixcontainer.kubeapi.schema.structural import copy_json
from matrixcontainer.kubeapi.storage.objects import Conflict, Record


class Deleter:
    """Removes an object, or sets its deletionTimestamp while finalizers or a grace period keep it."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def delete(
        self, resource: Resource, namespace: str, name: str, request: Deletion, options: Options
    ) -> Outcome:
        for _ in range(RETRIES_MAX):
            record = self._writer.record(resource, namespace, name, newest=True)
            obj = resource.served_object(record)
            meta = obj["metadata"]
            for text, current, word in (
                (request.uid, meta["uid"], "UID"),
                (request.revision, str(record.revision), "ResourceVersion"),
            ):
                if text and text != current:
                    message = f"the {word} in the precondition ({text}) does not match the {word} in record ({current})"
                    likely_change = "deleted and then recreated" if word == "UID" else "modified"
                    message += f". The object might have been {likely_change}"
                    raise errors.conflict(resource.kind, resource.group, name, message)
            for plugin in (*self._writer.mutating, *self._writer.validating):
                await plugin(
                    resource, "DELETE", None, obj, replace(options, dry_run=options.dry_run or request.dry_run)
                )
            try:
                return await self._delete_once(resource, record, obj, request)
            except Conflict:
                continue
        raise errors.conflict(resource.plural, resource.group, name)

    async def _delete_once(self, resource: Resource, record: Record, obj: dict[str, Any], request: Deletion) -> Outcome:
        meta = obj["metadata"]
        before = copy_json(obj)
        finalizers = [f for f in meta.get("finalizers") or [] if f not in ("foregroundDeletion", "orphan")]
        propagation_finalizers = [f for f in meta.get("finalizers") or [] if f in ("foregroundDeletion", "orphan")]
        if request.propagation == "Foreground":
            finalizers.append("foregroundDeletion")
        elif request.propagation == "Orphan":
            finalizers.append("orphan")
        elif not request.propagation:
            finalizers += propagation_finalizers
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
        grace = 0
        if resource.strategy.grace is not None:
            grace = resource.strategy.grace(obj, request.grace_s)
        first = "deletionTimestamp" not in meta
        if first or grace < meta.get("deletionGracePeriodSeconds", 0):
            started = timestamps.parse_timestamp(meta["deletionTimestamp"]) if not first else self._writer.now()
            base = started - meta.get("deletionGracePeriodSeconds", 0) if not first else started
            meta["deletionTimestamp"] = timestamps.timestamp(base + grace)
            if resource.strategy.sets_grace_period:
                meta["deletionGracePeriodSeconds"] = grace
            if first and meta.get("generation", 0) > 0:
                meta["generation"] += 1
            resource.strategy.mark_deleted(obj)
        if not is_kept(obj):
            if request.dry_run:
                return Outcome(before, deleted=True)
            was_marked = not first or resource.strategy.grace is not None
            return await self._writer.erase(resource, record, obj if grace == 0 and was_marked else before)
        if request.dry_run:
            return Outcome(obj)
        if not has_changed(before, obj):
            return Outcome(obj, record=record)
        stored = await self._writer.put(record.key, resource.stored_object(obj), record)
        return Outcome(resource.served_object(stored), record=stored)
