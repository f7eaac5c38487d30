"""Emulated kubelets for nodes without a real one: run and terminate pods as kubelet/virtual_kubelet.py decides.

Pods on a node that is not Ready stay as they are, as their kubelet would not be working. A node with a Lease in
kube-node-lease has a real kubelet, or another emulation of one, and is left to it.
"""

from typing import Any

from matrixcontainer.kubeapi.controllers.runtime.event_recorder import EventRecorder
from matrixcontainer.kubeapi.controllers.runtime.informers import Informers
from matrixcontainer.kubeapi.controllers.runtime.workqueue import WorkloadController
from matrixcontainer.kubeapi.kubelet.node_info import NodeInfo
from matrixcontainer.kubeapi.kubelet.pod_info import Name, PodInfo
from matrixcontainer.kubeapi.kubelet.pod_references import MissingReferences, missing_references
from matrixcontainer.kubeapi.kubelet.stage_delays import StageDelays, load_stage_delays
from matrixcontainer.kubeapi.kubelet.virtual_kubelet import PodSync, pod_address, sync_pod
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.options import Deletion, Options
from matrixcontainer.kubeapi.storage.objects import Change, Record

LEASES, LEASE_NAMESPACE = "leases.coordination.k8s.io", "kube-node-lease"
REFERENCED = ("configmaps", "secrets")


class Kubelets(WorkloadController):
    """Runs the pods of emulated nodes. A pod that waits for a ConfigMap or Secret is tried again when one of its
    namespace changes."""

    storage = "pods"
    account = "kubelet"
    max_concurrent_reconciles = 64
    watched = (LEASES, *REFERENCED)
    _delays: StageDelays | None = None

    def __init__(self, core: Core, informers: Informers, events: EventRecorder) -> None:
        super().__init__(core, informers, events)
        self._waiting: set[Name] = set()
        """Pods that wait for a ConfigMap or Secret."""

    @property
    def delays(self) -> StageDelays:
        if self._delays is None:
            self._delays = load_stage_delays()
        return self._delays

    def on_change(self, change: Change) -> None:
        if change.record.key[:2] == (LEASES, LEASE_NAMESPACE) and change.type != "MODIFIED":
            self._enqueue_pods_of(change.record.key[2])
        if change.record.key[0] in REFERENCED:
            for key in self._waiting:
                if key[0] == change.record.key[1]:
                    self.enqueue(key)

    def on_pod(self, before: PodInfo | None, pod: PodInfo | None) -> None:
        if pod is None and before is not None:
            self._waiting.discard(before.key)
        if pod is not None and pod.node:
            self.enqueue(pod.key)

    def on_node(self, before: NodeInfo | None, node: NodeInfo | None) -> None:
        if node is not None and (before is None or before.ready != node.ready):
            self._enqueue_pods_of(node.name)

    def _enqueue_pods_of(self, name: str) -> None:
        for pod in self.informers.pods.on_node(name):
            self.enqueue(pod.key)

    def drives_node(self, node: str) -> bool:
        """Whether the node's kubelet is emulated here and the node is Ready."""
        info = self.informers.nodes.get(node)
        if info is None or not info.ready:
            return False
        return self.core.store.get((LEASES, LEASE_NAMESPACE, node)) is None

    def options(self, subresource: str = "") -> Options:
        return Options(
            user="system:node", field_manager="kubelet", from_controller=not subresource, subresource=subresource
        )

    async def reconcile(self, key: Name) -> float | None:
        info = self.informers.pods.get(key)
        if info is None or not self.drives_node(info.node):
            return None
        if info.ended and not info.deleting:
            return None
        record = self.record(key)
        if record is None:
            return None
        pod, now = record.obj, self.core.now()
        node = self.informers.nodes.get(info.node)
        assert node is not None
        sync = sync_pod(pod, now, self.delays, node.address, self._address(info), self._missing(key, pod))
        await self._apply_sync(key, record, pod, sync)
        return sync.requeue_after_s

    def _missing(self, key: Name, pod: dict[str, Any]) -> MissingReferences:
        """The ConfigMaps and Secrets that keep containers of the pod from starting."""

        def find(storage: str, name: str) -> dict[str, Any] | None:
            record = self.core.store.get((storage, key[0], name))
            return record.obj if record is not None else None

        missing = missing_references(pod, find)
        if missing:
            self._waiting.add(key)
        else:
            self._waiting.discard(key)
        return missing

    def _address(self, pod: PodInfo) -> str:
        """The pod's address, or a new one that no live pod has: derived from its uid, or the next free one."""
        attempt, address = 0, pod.ip
        while not address:
            address = self.informers.pods.assign_address(pod, pod_address(pod.uid, attempt))
            attempt += 1
        return address

    async def _apply_sync(self, key: Name, record: Record, pod: dict[str, Any], sync: PodSync) -> None:
        if sync.status is not None:
            status, revision = sync.status, record.revision

            def change(obj: dict[str, Any]) -> dict[str, Any]:
                if obj["metadata"]["resourceVersion"] != str(revision):
                    raise errors.conflict("pods", "", key[1])
                return obj | {"status": status}

            await self.modify(key, change, "status")
            for event in sync.events:
                self.events.event(pod, event.reason, event.message, "kubelet", warning=event.warning)
        if sync.remove:
            await self.delete_object(self.resource, *key, Deletion(grace_s=0, uid=record.uid))
