"""Namespace lifecycle: system namespaces, default contents, and deletion.

Level-triggered: a Terminating namespace is emptied of every kind, custom ones included, pods first; conditions report
what remains. When nothing is left, the `kubernetes` finalizer is removed and the namespace is deleted.
"""

from typing import Any

from matrixcontainer.kubeapi.builtin.core import IMMUTABLE_NAMESPACES
from matrixcontainer.kubeapi.controllers.runtime.workqueue import Controller
from matrixcontainer.kubeapi.kubelet.pod_info import Name
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.conditions import set_condition
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.options import Deletion, Options
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.storage.objects import Change, Record

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
DEFAULT_CONDITIONS = {  # reason and message of a terminating namespace's conditions while they are False
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionContentFailure": ("ContentDeleted", "All content successfully deleted"),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}


class NamespaceController(Controller):
    storage = "namespaces"
    account = "namespace-controller"
    max_concurrent_reconciles = 1

    def __init__(self, core: Core, root_ca: str) -> None:
        super().__init__(core)
        self._root_ca = root_ca
        self._terminating: set[str] = set()

    def state(self, name: str) -> str:
        """Active, Terminating, or "" if there is none; includes pending writes."""
        record = self.core.store.latest(("namespaces", "", name))
        if record is None:
            return ""
        return "Terminating" if name in self._terminating or b'"phase":"Terminating"' in record.body else "Active"

    async def admit(
        self, resource: Resource, verb: str, new: dict[str, Any] | None, old: dict[str, Any] | None, options: Options
    ) -> None:
        """Admission plugin: rejects the deletion of system namespaces."""
        if verb == "DELETE" and resource.storage == "namespaces" and old is not None:
            name = old["metadata"]["name"]
            if name in IMMUTABLE_NAMESPACES:
                raise errors.forbidden("namespaces", "", name, "this namespace may not be deleted")

    async def ensure_system(self) -> None:
        for name in SYSTEM_NAMESPACES:
            if self.core.store.get(("namespaces", "", name)) is None:
                await self.core.verbs.create(self.resource, "", {"metadata": {"name": name}}, self.options())
        for record in list(self.core.store.objects_of("namespaces")):
            await self.process(record.key[1:])

    def on_change(self, change: Change) -> None:
        storage, namespace, name = change.record.key
        if storage == "namespaces":
            if change.type == "DELETED":
                self._terminating.discard(name)
            else:
                self.enqueue(("", name))
        elif change.type == "DELETED" and (
            namespace in self._terminating or storage in ("configmaps", "serviceaccounts")
        ):
            self.enqueue(("", namespace))

    async def reconcile(self, key: Name) -> float | None:
        name = key[1]
        record = self.core.store.latest(("namespaces", "", name))
        if record is None:
            return None
        obj = record.obj
        if "deletionTimestamp" not in obj["metadata"]:
            await self._populate(name)
        else:
            self._terminating.add(name)
            await self._delete_content(name)
        return None

    async def _populate(self, name: str) -> None:
        """Create the default service account and the root CA's ConfigMap."""
        await self._ensure(name, "serviceaccounts", {"metadata": {"name": "default"}})
        if self._root_ca:
            authority = {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": self._root_ca}}
            await self._ensure(name, "configmaps", authority)

    async def _ensure(self, namespace: str, plural: str, body: dict[str, Any]) -> None:
        if self.core.store.latest((plural, namespace, body["metadata"]["name"])) is None:
            try:
                await self.core.verbs.create(self.core.builtin("", plural), namespace, body, self.options())
            except ApiError as failure:
                if failure.reason != "AlreadyExists":
                    raise

    async def _delete_content(self, name: str) -> None:
        content: list[tuple[Resource, Record]] = []
        kinds = sorted((r for r in self.core.registry.preferred() if r.namespaced), key=lambda r: r.storage != "pods")
        for resource in kinds:
            content += [(resource, record) for record in self.core.store.objects_of(resource.storage, name)]
        pods = [pair for pair in content if pair[0].storage == "pods"]
        errors_by_kind: dict[str, ApiError] = {}  # first error of each kind; the others are still deleted
        for resource, record in pods or content:
            if b'"deletionTimestamp"' in record.body and "deletionTimestamp" in record.obj["metadata"]:
                continue
            try:
                await self.delete_object(resource, name, record.key[2], Deletion(propagation="Background"))
            except ApiError as failure:
                errors_by_kind.setdefault(resource.storage, failure)
        remaining = [
            (resource, record) for resource in kinds for record in self.core.store.objects_of(resource.storage, name)
        ]
        if remaining:
            await self._write_conditions(name, remaining, errors_by_kind)
            if pods and not self.core.store.objects_of("pods", name):
                self.enqueue(("", name))
            if errors_by_kind:
                raise next(iter(errors_by_kind.values()))  # to retry
            return
        await self.core.verbs.modify(self.resource, "", name, _remove_finalizer, self.options("finalize"), track=False)

    async def _write_conditions(
        self, name: str, remaining: list[tuple[Resource, Record]], errors_by_kind: dict[str, ApiError]
    ) -> None:
        counts: dict[str, int] = {}
        finalizers: dict[str, int] = {}
        for resource, record in remaining:
            kind = f"{resource.plural}.{resource.group}"
            counts[kind] = counts.get(kind, 0) + 1
            for finalizer in record.obj["metadata"].get("finalizers") or []:
                finalizers[finalizer] = finalizers.get(finalizer, 0) + 1
        content = ", ".join(f"{kind} has {count} resource instances" for kind, count in sorted(counts.items()))
        current = ", ".join(
            f"{finalizer} in {count} resource instances" for finalizer, count in sorted(finalizers.items())
        )

        problems = {"NamespaceContentRemaining": ("SomeResourcesRemain", f"Some resources are remaining: {content}")}
        if current:
            text = f"Some content in the namespace has finalizers remaining: {current}"
            problems["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", text)
        if errors_by_kind:
            causes = ", ".join(sorted({str(failure) for failure in errors_by_kind.values()}))
            text = f"Failed to delete all resource types, {len(errors_by_kind)} remaining: {causes}"
            problems["NamespaceDeletionContentFailure"] = ("ContentDeletionFailed", text)

        def change(obj: dict[str, Any]) -> dict[str, Any]:
            status = obj.setdefault("status", {})
            for kind, default in DEFAULT_CONDITIONS.items():
                reason, text = problems.get(kind, default)
                set_condition(status, kind, "True" if kind in problems else "False", reason, text, self.core.now())
            return obj

        await self.modify(("", name), change, "status")


def _remove_finalizer(obj: dict[str, Any]) -> dict[str, Any]:
    spec = obj.setdefault("spec", {})
    spec["finalizers"] = [f for f in spec.get("finalizers") or [] if f != "kubernetes"]
    return obj
