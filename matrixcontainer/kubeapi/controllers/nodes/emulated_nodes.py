"""Status of Nodes annotated as emulated, and garbage collection of pods whose Node is gone.

A Node annotated `kubelet.cloudmatrix.io/emulated: "true"` gets the status that a kubelet would report: Ready, an
address, and a capacity, by default or from `kubelet.cloudmatrix.io/capacity:
cpu=64,memory=512Gi,huawei.com/Ascend910=8`. All other Nodes are left to whoever writes their status. A pod is deleted
forty seconds after its Node is gone, as no kubelet will report its end.
"""

from typing import Any

from matrixcontainer.kubeapi.controllers.runtime.workqueue import Controller, WorkloadController
from matrixcontainer.kubeapi.kubelet.container_script import pod_annotation
from matrixcontainer.kubeapi.kubelet.node_info import NodeInfo, node_info, synthetic_address
from matrixcontainer.kubeapi.kubelet.pod_info import Name, PodInfo
from matrixcontainer.kubeapi.meta.quantities import milli
from matrixcontainer.kubeapi.meta.timestamps import timestamp
from matrixcontainer.kubeapi.registry.options import Deletion

Obj = dict[str, Any]

CAPACITY = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}
ORPHAN_GRACE_S = 40.0


def node_capacity(node: Obj) -> dict[str, str]:
    """The default capacity with the annotation's values; invalid quantities are ignored."""
    capacity = dict(CAPACITY)
    for part in filter(None, pod_annotation(node, "capacity").split(",")):
        name, _, text = part.strip().partition("=")
        try:
            milli(text)
        except ValueError:
            continue
        capacity[name.strip()] = text.strip()
    return capacity


def node_status(node: Obj, now: float) -> Obj:
    """The status of an emulated node; other conditions are kept."""
    current = node.get("status") or {}
    capacity = node_capacity(node)
    conditions = [c for c in current.get("conditions") or [] if c["type"] != "Ready"]
    ready: Obj = next((c for c in current.get("conditions") or [] if c["type"] == "Ready"), {})
    if ready.get("status") != "True":
        at = timestamp(now)
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "an emulated kubelet serves this node",
            "lastHeartbeatTime": at,
            "lastTransitionTime": at,
        }
    name = node["metadata"]["name"]
    addresses = [{"type": "InternalIP", "address": synthetic_address(name)}, {"type": "Hostname", "address": name}]
    return current | {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": [*conditions, ready],
        "addresses": addresses,
        "nodeInfo": node_info(name),
    }


class EmulatedNodeController(Controller):
    storage = "nodes"
    account = "kubelet"

    async def reconcile(self, key: Name) -> float | None:
        record = self.record(key)
        if record is None:
            return None
        node = record.obj
        if pod_annotation(node, "emulated") != "true" or "deletionTimestamp" in node["metadata"]:
            return None
        status = node_status(node, self.core.now())
        if status != node.get("status"):
            await self.write_status(key, status)
        return None


class PodGarbageCollector(WorkloadController):
    """Deletes pods of nodes that no longer exist."""

    storage = "pods"
    account = "pod-garbage-collector"

    def load(self) -> None:
        for record in self.core.store.objects_of("pods"):
            self.on_pod(None, self.informers.pods.get(record.key[1:]))

    def on_pod(self, before: PodInfo | None, pod: PodInfo | None) -> None:
        if pod is not None and self._is_orphaned(pod):
            self.enqueue_after(pod.key, ORPHAN_GRACE_S)

    def on_node(self, before: NodeInfo | None, node: NodeInfo | None) -> None:
        if node is None and before is not None:
            for pod in self.informers.pods.on_node(before.name):
                self.enqueue_after(pod.key, ORPHAN_GRACE_S)

    def _is_orphaned(self, pod: PodInfo | None) -> bool:
        if pod is None or not pod.node:
            return False
        return self.informers.nodes.get(pod.node) is None

    async def reconcile(self, key: Name) -> float | None:
        pod = self.informers.pods.get(key)
        if pod is None or not self._is_orphaned(pod):
            return None
        record = self.record(key)
        if record is None or record.obj["metadata"].get("deletionGracePeriodSeconds") == 0:
            return None
        await self.delete_object(self.resource, *key, Deletion(grace_s=0, uid=pod.uid))
        return None
