"""Serves what CustomResourceDefinitions describe.

Level-based: `reconcile(name)` looks at the CRD as it is and makes the registry, its conditions and its finalizer
agree with it. Accepted names and the served resources come first, Established=True after them, because clients that
see the condition ask for discovery at once. A deleted CRD empties its pile, waits for finalizers of the objects, and
only then lets go.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi.apiextensions import crds
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.registry.options import Deletion, Options
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.storage.objects import Change

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.server import KubeApi

STORAGE = "customresourcedefinitions.apiextensions.k8s.io"
AS_CONTROLLER = Options(user="system:apiserver", field_manager="kube-apiserver", from_controller=True)


def controller_options(subresource: str = "status") -> Options:
    return Options(
        user="system:apiserver", field_manager="kube-apiserver", from_controller=True, subresource=subresource
    )


class Definitions:
    def __init__(self, api: "KubeApi") -> None:
        self.api = api
        self._waiting: set[str] = set()
        self._wake = asyncio.Event()

    @property
    def resource(self) -> Resource:
        found = self.api.registry.find(crds.GROUP, "v1", "customresourcedefinitions")
        assert found is not None
        return found

    def load(self) -> None:
        """Serve at start what was established before, without writing anything."""
        for record in self.api.store.objects_of(STORAGE):
            crd = record.obj
            if _condition(crd, "Established") == "True":
                try:
                    self._serve(crd, record.revision)
                except Exception as failure:  # one definition nobody can serve must not keep the others from it
                    self.api.report(failure, f"customresourcedefinition {record.key[2]}")
            self._waiting.add(record.key[2])
        self._wake.set()

    def notice(self, change: Change) -> None:
        storage = change.record.key[0]
        if storage == STORAGE:
            crd = change.record.obj
            if change.type == "DELETED":
                self._withdraw(crd)
                self._waiting |= {record.key[2] for record in self.api.store.objects_of(STORAGE)}  # names came free
            elif _condition(crd, "Established") == "True" and (
                change.previous is None or change.previous.obj.get("spec") != crd.get("spec")
            ):
                self._serve(crd, change.revision)
            self._waiting.add(change.record.key[2])
            self._wake.set()
        elif change.type == "DELETED" and (change.record.key[0] in self._going()):
            self._waiting |= self._going()[change.record.key[0]]
            self._wake.set()

    def _going(self) -> dict[str, set[str]]:
        return {name: {name} for name in self._terminating}

    @property
    def _terminating(self) -> set[str]:
        return {
            record.key[2]
            for record in self.api.store.objects_of(STORAGE)
            if b'"deletionTimestamp"' in record.body and "deletionTimestamp" in record.obj["metadata"]
        }

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                name = self._waiting.pop()
                try:
                    await self.reconcile(name)
                except ApiError as failure:
                    if failure.code != 404:
                        self._waiting.add(name)
                        self._wake.set()
                        raise

    async def reconcile(self, name: str) -> None:
        record = self.api.store.latest((STORAGE, "", name))
        if record is None:
            return
        crd = record.obj
        if "deletionTimestamp" in crd["metadata"]:
            await self._empty(crd)
            return
        names, reason, message = crds.judge_names(crd, self.api.registry)
        if reason:
            reported = [("NamesAccepted", "False", reason, message)]
            if _condition(crd, "Established") != "True":
                reported.append(("Established", "False", "NotAccepted", "not all names are accepted"))
            await self._set_all(name, reported, names)
            await self._keep_until_empty(crd)
            return
        await self._set(name, "NamesAccepted", "True", "NoConflicts", "no conflicts found", names)
        await self._keep_until_empty(crd)
        latest = self.api.store.get((STORAGE, "", name))
        if latest is None:
            return
        if _condition(latest.obj, "Established") != "True":
            self._serve(latest.obj, latest.revision)
            await self._set(name, "Established", "True", "InitialNamesAccepted", "the initial names have been accepted")

    async def _keep_until_empty(self, crd: dict[str, Any]) -> None:
        if crds.CLEANUP not in (crd["metadata"].get("finalizers") or []):
            name = crd["metadata"]["name"]
            await self.api.verbs.modify(self.resource, "", name, _add_finalizer, controller_options(""))

    async def _set(
        self, name: str, kind: str, value: str, reason: str, message: str, names: dict[str, Any] | None = None
    ) -> None:
        await self._set_all(name, [(kind, value, reason, message)], names)

    async def _set_all(
        self, name: str, reported: list[tuple[str, str, str, str]], names: dict[str, Any] | None = None
    ) -> None:
        """Conditions as (type, status, reason, message), in one write: nobody sees one without the others."""

        def change(crd: dict[str, Any]) -> dict[str, Any]:
            status = crd.setdefault("status", {})
            for kind, value, reason, message in reported:
                current: dict[str, Any] = next((c for c in status.get("conditions") or [] if c["type"] == kind), {})
                if (current.get("status"), current.get("reason")) != (value, reason):
                    crds.set_condition(status, kind, value, reason, message, self.api.now())
            if names is not None:
                status["acceptedNames"] = names
            return crd

        await self.api.verbs.modify(self.resource, "", name, change, controller_options())

    def _serve(self, crd: dict[str, Any], revision: int) -> None:
        spec = crd["spec"]
        for current in self.api.registry.all():
            if current.group == spec["group"] and current.plural == spec["names"]["plural"]:
                self.api.registry.remove(current.group, current.plural, current.version)
        for resource in crds.resources_of(crd, revision):
            self.api.registry.add(resource)
        self.api.end_watches_of_the_gone(f"{spec['names']['plural']}.{spec['group']}")

    def _withdraw(self, crd: dict[str, Any]) -> None:
        spec = crd["spec"]
        self.api.registry.remove(spec["group"], spec["names"]["plural"])
        self.api.end_watches_of_the_gone(f"{spec['names']['plural']}.{spec['group']}")

    async def _empty(self, crd: dict[str, Any]) -> None:
        """Delete every object of a CRD that goes; let the CRD go when none is left."""
        name = crd["metadata"]["name"]
        await self._set(
            name, "Terminating", "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"
        )
        for current in self.api.registry.all():
            current.ending = current.ending or current.storage == name
        resource = self.api.registry.by_storage(name)
        left = list(self.api.store.objects_of(name))
        if resource is None and left:
            self._serve(crd, self.api.store.revision)
            resource = self.api.registry.by_storage(name)
        for record in left:
            assert resource is not None
            try:
                await self.api.verbs.delete(resource, record.key[1], record.key[2], Deletion(), controller_options(""))
            except ApiError as failure:
                if failure.code != 404:
                    raise
        if not self.api.store.count(name):
            await self.api.verbs.modify(self.resource, "", name, _drop_finalizer, controller_options(""))


def _condition(crd: dict[str, Any], kind: str) -> str:
    conditions = (crd.get("status") or {}).get("conditions") or []
    return next((str(c["status"]) for c in conditions if c["type"] == kind), "")


def _add_finalizer(crd: dict[str, Any]) -> dict[str, Any]:
    crd["metadata"].setdefault("finalizers", []).append(crds.CLEANUP)
    return crd


def _drop_finalizer(crd: dict[str, Any]) -> dict[str, Any]:
    crd["metadata"]["finalizers"] = [f for f in crd["metadata"].get("finalizers") or [] if f != crds.CLEANUP]
    if not crd["metadata"]["finalizers"]:
        del crd["metadata"]["finalizers"]
    return crd
