"""The life of namespaces: the standing ones, what each is born with, and how a deleted one is emptied.

Level-based: a Terminating namespace is emptied, pods before everything else, every kind including custom ones;
conditions tell what is still there; when nothing is left, the `kubernetes` finalizer goes and the namespace with it.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi.apiextensions.crds import set_condition
from matrixcontainer.kubeapi.builtin.core import IMMUTABLE_NAMESPACES
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.meta.timestamps import timestamp
from matrixcontainer.kubeapi.registry.options import Deletion, Options
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.storage.objects import Change, Record

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.server import KubeApi

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
TOKENS_TRACKED = "kube-apiserver-legacy-service-account-token-tracking"  # since when old tokens are looked after
CA_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)
WELL = {  # what the conditions of a namespace that goes say where nothing stands in its way
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}


def options(subresource: str = "") -> Options:
    return Options(
        user="system:serviceaccount:kube-system:namespace-controller",
        field_manager="kube-controller-manager",
        from_controller=True,
        subresource=subresource,
    )


class Namespaces:
    def __init__(self, api: "KubeApi") -> None:
        self.api = api
        self._waiting: set[str] = set()
        self._going: set[str] = set()
        self._wake = asyncio.Event()

    @property
    def resource(self) -> Resource:
        return self._builtin("", "namespaces")

    def _builtin(self, group: str, plural: str) -> Resource:
        found = self.api.registry.find(group, "v1", plural)
        assert found is not None
        return found

    def state(self, name: str) -> str:
        """Active, Terminating, or "" when there is none; the batch under way counts."""
        record = self.api.store.latest(("namespaces", "", name))
        if record is None:
            return ""
        return "Terminating" if name in self._going or b'"phase":"Terminating"' in record.body else "Active"

    async def gate(
        self, resource: Resource, verb: str, new: dict[str, Any] | None, old: dict[str, Any] | None, asked: Options
    ) -> None:
        if verb == "DELETE" and resource.storage == "namespaces" and old is not None:
            name = old["metadata"]["name"]
            if name in IMMUTABLE_NAMESPACES:
                raise errors.forbidden("namespaces", "", name, "this namespace may not be deleted")

    async def ensure_system(self) -> None:
        for name in SYSTEM_NAMESPACES:
            if self.api.store.get(("namespaces", "", name)) is None:
                await self.api.verbs.create(self.resource, "", {"metadata": {"name": name}}, options())
        for record in self.api.store.objects_of("namespaces"):
            self._waiting.add(record.key[2])
        await self._settle()

    def notice(self, change: Change) -> None:
        storage, namespace, name = change.record.key
        if storage == "namespaces":
            if change.type == "DELETED":
                self._going.discard(name)
            else:
                self._waiting.add(name)
                self._wake.set()
        elif change.type == "DELETED" and (namespace in self._going or storage in ("configmaps", "serviceaccounts")):
            self._waiting.add(namespace)
            self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._settle()

    async def _settle(self) -> None:
        while self._waiting:
            name = self._waiting.pop()
            try:
                await self.reconcile(name)
            except ApiError as failure:
                if failure.code not in (403, 404, 409):
                    self._waiting.add(name)
                    self._wake.set()
                    raise

    async def reconcile(self, name: str) -> None:
        record = self.api.store.latest(("namespaces", "", name))
        if record is None:
            return
        obj = record.obj
        if "deletionTimestamp" not in obj["metadata"]:
            await self._furnish(name)
        else:
            self._going.add(name)
            await self._empty(name)

    async def _furnish(self, name: str) -> None:
        """A service account to run as and the CA to trust, as every namespace has them."""
        if self.api.store.latest(("serviceaccounts", name, "default")) is None:
            account = {"metadata": {"name": "default"}}
            await self.api.verbs.create(self._builtin("", "serviceaccounts"), name, account, options())
        if self.api.root_ca and self.api.store.latest(("configmaps", name, "kube-root-ca.crt")) is None:
            meta = {"name": "kube-root-ca.crt", "annotations": {"kubernetes.io/description": CA_DESCRIPTION}}
            bundle = {"metadata": meta, "data": {"ca.crt": self.api.root_ca}}
            await self.api.verbs.create(self._builtin("", "configmaps"), name, bundle, options())
        if name == "kube-system" and self.api.store.latest(("configmaps", name, TOKENS_TRACKED)) is None:
            since = timestamp(self.api.now())[:10]
            tracked = {"metadata": {"name": TOKENS_TRACKED}, "data": {"since": since}}
            await self.api.verbs.create(self._builtin("", "configmaps"), name, tracked, options())

    async def _empty(self, name: str) -> None:
        left: list[tuple[Resource, Record]] = []
        kinds = sorted((r for r in self.api.registry.preferred() if r.namespaced), key=lambda r: r.storage != "pods")
        for resource in kinds:
            left += [(resource, record) for record in self.api.store.objects_of(resource.storage, name)]
        pods = [pair for pair in left if pair[0].storage == "pods"]
        for resource, record in pods or left:
            if b'"deletionTimestamp"' in record.body and "deletionTimestamp" in record.obj["metadata"]:
                continue
            try:
                await self.api.verbs.delete(
                    resource, name, record.key[2], Deletion(propagation="Background"), options()
                )
            except ApiError as failure:
                if failure.code not in (404, 409):
                    raise
        remaining = [
            (resource, record) for resource in kinds for record in self.api.store.objects_of(resource.storage, name)
        ]
        if remaining:
            await self._report(name, remaining)
            if pods and not self.api.store.objects_of("pods", name):
                self._waiting.add(name)
            return
        await self.api.verbs.modify(self.resource, "", name, _release, options("finalize"), track=False)

    async def _report(self, name: str, remaining: list[tuple[Resource, Record]]) -> None:
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

        reported = {"NamespaceContentRemaining": ("SomeResourcesRemain", f"Some resources are remaining: {content}")}
        if current:
            text = f"Some content in the namespace has finalizers remaining: {current}"
            reported["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", text)

        def change(obj: dict[str, Any]) -> dict[str, Any]:
            status = obj.setdefault("status", {})
            for kind, well in WELL.items():
                reason, text = reported.get(kind, well)
                set_condition(status, kind, "True" if kind in reported else "False", reason, text, self.api.now())
            return obj

        await self.api.verbs.modify(self.resource, "", name, change, options("status"))


def _release(obj: dict[str, Any]) -> dict[str, Any]:
    spec = obj.setdefault("spec", {})
    spec["finalizers"] = [f for f in spec.get("finalizers") or [] if f != "kubernetes"]
    return obj
