"""Serves the resources that CustomResourceDefinitions define.

Level-triggered: `reconcile` brings the registry and the CRD's conditions and finalizer in line with the CRD. Names are
accepted and resources served before Established=True is set, because clients that see the condition start discovery
immediately. Deleting a CRD first deletes its objects and waits for their finalizers.
"""

from typing import Any

from matrixcontainer.kubeapi.apiextensions import crds
from matrixcontainer.kubeapi.controllers.runtime.workqueue import Controller, filter_list
from matrixcontainer.kubeapi.kubelet.pod_info import Name
from matrixcontainer.kubeapi.meta.attempts import attempt_all
from matrixcontainer.kubeapi.meta.conditions import set_condition
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.registry.options import Deletion
from matrixcontainer.kubeapi.schema.structural import same_json
from matrixcontainer.kubeapi.storage.objects import Change, Record

STORAGE = "customresourcedefinitions.apiextensions.k8s.io"


class CustomResourceDefinitionController(Controller):
    storage = STORAGE
    account = "system:apiserver"
    max_concurrent_reconciles = 1

    def load(self) -> None:
        """Serve the established CRDs at start, without writing anything."""
        for record in self.core.store.objects_of(STORAGE):
            crd = record.obj
            if _condition(crd, "Established") == "True":
                try:
                    self._serve(crd, record.revision)
                except Exception as failure:  # one broken definition must not affect the others
                    self.core.record_failure(failure, f"customresourcedefinition {record.key[2]}")
            self.enqueue(record.key[1:])

    def on_change(self, change: Change) -> None:
        storage = change.record.key[0]
        if storage == STORAGE:
            crd = change.record.obj
            if change.type == "DELETED":
                self._stop_serving(crd)
                super().load()  # names have become available
            elif _condition(crd, "Established") == "True" and (
                change.previous is None or not same_json(_served_fields(change.previous.obj), _served_fields(crd))
            ):
                self._serve(crd, change.revision)
            self.enqueue(change.record.key[1:])
        elif change.type == "DELETED" and self._is_terminating(storage):
            self.enqueue(("", storage))

    def _is_terminating(self, name: str) -> bool:
        record = self.core.store.get((STORAGE, "", name))
        return record is not None and b'"deletionTimestamp"' in record.body

    async def reconcile(self, key: Name) -> float | None:
        record = self.core.store.latest((STORAGE, *key))
        if record is None:
            return None
        if "deletionTimestamp" in record.obj["metadata"]:
            await self._delete_objects(record.obj)
        else:
            await self._establish(key[1], record.obj)
        return None

    async def _establish(self, name: str, crd: dict[str, Any]) -> None:
        names, reason, message = crds.accepted_names(crd, self.core.registry)
        if reason:
            conditions = [("NamesAccepted", "False", reason, message)]
            if _condition(crd, "Established") != "True":
                conditions.append(("Established", "False", "NotAccepted", "not all names are accepted"))
            await self._set_conditions(name, conditions, names)
            await self._ensure_finalizer(crd)
            return
        await self._set_condition(name, "NamesAccepted", "True", "NoConflicts", "no conflicts found", names)
        await self._ensure_finalizer(crd)
        latest = self.core.store.get((STORAGE, "", name))
        if latest is None:
            return
        if _condition(latest.obj, "Established") != "True":
            self._serve(latest.obj, latest.revision)
            await self._set_condition(
                name, "Established", "True", "InitialNamesAccepted", "the initial names have been accepted"
            )

    async def _ensure_finalizer(self, crd: dict[str, Any]) -> None:
        if crds.CLEANUP_FINALIZER not in (crd["metadata"].get("finalizers") or []):
            await self.modify(("", crd["metadata"]["name"]), _add_finalizer)

    async def _set_condition(
        self, name: str, kind: str, value: str, reason: str, message: str, names: dict[str, Any] | None = None
    ) -> None:
        await self._set_conditions(name, [(kind, value, reason, message)], names)

    async def _set_conditions(
        self, name: str, conditions: list[tuple[str, str, str, str]], names: dict[str, Any] | None = None
    ) -> None:
        """Set conditions, given as (type, status, reason, message), atomically in one write."""

        def change(crd: dict[str, Any]) -> dict[str, Any]:
            status = crd.setdefault("status", {})
            for kind, value, reason, message in conditions:
                current: dict[str, Any] = next((c for c in status.get("conditions") or [] if c["type"] == kind), {})
                if (current.get("status"), current.get("reason")) != (value, reason):
                    set_condition(status, kind, value, reason, message, self.core.now())
            if names is not None:
                status["acceptedNames"] = names
            return crd

        await self.modify(("", name), change, "status")

    def _is_built_in(self, crd: dict[str, Any]) -> bool:
        """Whether its plural is a built-in resource, which the definition must not touch, nor its objects."""
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        return any(r.group == group and r.plural == plural and not r.custom for r in self.core.registry.all())

    def _serve(self, crd: dict[str, Any], revision: int) -> None:
        spec = crd["spec"]
        if self._is_built_in(crd):
            return
        for current in self.core.registry.all():
            if current.group == spec["group"] and current.plural == spec["names"]["plural"]:
                self.core.registry.remove(current.group, current.plural, current.version)
        for resource in crds.served_resources(crd, revision):
            self.core.registry.add(resource)
        self.core.wake_watches(f"{spec['names']['plural']}.{spec['group']}")

    def _stop_serving(self, crd: dict[str, Any]) -> None:
        spec = crd["spec"]
        if self._is_built_in(crd):
            return
        self.core.registry.remove(spec["group"], spec["names"]["plural"])
        self.core.wake_watches(f"{spec['names']['plural']}.{spec['group']}")

    async def _delete_objects(self, crd: dict[str, Any]) -> None:
        """Delete all objects of a CRD that is being deleted; remove its finalizer when none is left."""
        name = crd["metadata"]["name"]
        progress = "Terminating", "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"
        if _condition(crd, "Terminating") != "True":
            await self._set_condition(name, *progress)
        if _condition(crd, "Established") != "True" or self._is_built_in(crd):
            await self.modify(("", name), _drop_finalizer)  # it has no objects of its own
            return
        for current in self.core.registry.all():
            current.terminating = current.terminating or current.storage == name
        resource = self.core.registry.by_storage(name) or crds.stored_resource(crd, self.core.store.revision)
        records = list(self.core.store.objects_of(name))

        async def delete(record: Record) -> None:
            await self.core.verbs.delete(resource, record.key[1], record.key[2], Deletion(), self.options())

        try:
            await attempt_all(map(delete, records), 404)
        except ApiError as refused:
            message = f"could not issue all deletes: {refused}"
            await self._set_condition(name, "Terminating", "True", "InstanceDeletionFailed", message)
            raise  # to retry
        await self._set_condition(name, *progress)
        if not self.core.store.count(name):
            await self.modify(("", name), _drop_finalizer)


def _served_fields(crd: dict[str, Any]) -> list[Any]:
    """The parts of a definition that determine what is served: its spec and accepted names."""
    return [crd.get("spec"), (crd.get("status") or {}).get("acceptedNames")]


def _condition(crd: dict[str, Any], kind: str) -> str:
    conditions = (crd.get("status") or {}).get("conditions") or []
    return next((str(c["status"]) for c in conditions if c["type"] == kind), "")


def _add_finalizer(crd: dict[str, Any]) -> dict[str, Any]:
    crd["metadata"].setdefault("finalizers", []).append(crds.CLEANUP_FINALIZER)
    return crd


def _drop_finalizer(crd: dict[str, Any]) -> dict[str, Any]:
    filter_list(crd["metadata"], "finalizers", lambda finalizer: finalizer != crds.CLEANUP_FINALIZER)
    return crd
