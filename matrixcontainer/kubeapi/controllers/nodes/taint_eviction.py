"""Eviction of pods from nodes with NoExecute taints that they do not tolerate, or no longer tolerate.

tolerationSeconds count from the taint's `timeAdded`, or else from when it was first seen here, so after a restart such
a pod may stay a little longer. If the node's kubelet does not respond, the pod is only marked as deleted, which is
enough for its ReplicaSet to create a replacement.
"""

from typing import Any

from matrixcontainer.kubeapi.controllers.runtime.event_recorder import EventRecorder
from matrixcontainer.kubeapi.controllers.runtime.informers import Informers
from matrixcontainer.kubeapi.controllers.runtime.node_fit import tolerates
from matrixcontainer.kubeapi.controllers.runtime.workqueue import WorkloadController
from matrixcontainer.kubeapi.kubelet.node_info import NodeInfo
from matrixcontainer.kubeapi.kubelet.pod_info import Name, PodInfo
from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.options import Deletion

Obj = dict[str, Any]


def toleration_seconds(tolerations: list[Obj], taint: Obj) -> float | None:
    """Seconds that a pod with these tolerations may stay under the taint: None is for ever, 0 means evict now."""
    matching = [toleration for toleration in tolerations if tolerates([toleration], taint)]
    if not matching:
        return 0.0
    limits = [float(t["tolerationSeconds"]) for t in matching if t.get("tolerationSeconds") is not None]
    return max(min(limits), 0.0) if limits else None


class TaintEvictionController(WorkloadController):
    storage = "pods"
    account = "taint-eviction-controller"

    def __init__(self, core: Core, informers: Informers, events: EventRecorder) -> None:
        super().__init__(core, informers, events)
        self._first_seen: dict[tuple[str, str, str], float] = {}  # node, taint key and value: first seen

    def load(self) -> None:
        for node in self.informers.nodes.all():
            self.on_node(None, node)

    def on_pod(self, before: PodInfo | None, pod: PodInfo | None) -> None:
        if pod is not None and pod.node and pod.active and (before is None or not before.node):
            node = self.informers.nodes.get(pod.node)
            if node is not None and node.no_execute_taints:
                self.enqueue(pod.key)

    def on_node(self, before: NodeInfo | None, node: NodeInfo | None) -> None:
        name = node.name if node is not None else before.name if before is not None else ""
        current_keys = {
            (name, taint["key"], taint.get("value", "")) for taint in (node.no_execute_taints if node else [])
        }
        for taint_key in [
            taint_key for taint_key in self._first_seen if taint_key[0] == name and taint_key not in current_keys
        ]:
            del self._first_seen[taint_key]
        if node is not None and node.no_execute_taints and (before is None or before.taints != node.taints):
            for taint_key in current_keys:
                self._first_seen.setdefault(taint_key, self.core.now())
            for pod in self.informers.pods.on_node(name):
                self.enqueue(pod.key)

    async def reconcile(self, key: Name) -> float | None:
        pod = self.informers.pods.get(key)
        node = self.informers.nodes.get(pod.node) if pod is not None and pod.active else None
        if pod is None or node is None or not node.no_execute_taints:
            return None
        record = self.record(key)
        if record is None:
            return None
        now = self.core.now()
        remaining_s = self._seconds_until_eviction(record.obj["spec"].get("tolerations") or [], node, now)
        if remaining_s is None or remaining_s > 0:
            return remaining_s
        await self.core.verbs.delete(
            self.resource, *key, Deletion(propagation="Background", uid=pod.uid), self.options()
        )
        text = f"Marking for deletion Pod {'/'.join(key)}"
        self.events.event(record.obj, "TaintManagerEviction", text, self.account)
        return None

    def _seconds_until_eviction(self, tolerations: list[Obj], node: NodeInfo, now: float) -> float | None:
        """Seconds until the node's first taint evicts the pod; None if none does."""
        delays_s = []
        for taint in node.no_execute_taints:
            if (tolerated_s := toleration_seconds(tolerations, taint)) is not None:
                first_seen = self._first_seen.get((node.name, taint["key"], taint.get("value", "")), now)
                since = parse_timestamp(taint["timeAdded"]) if taint.get("timeAdded") else first_seen
                delays_s.append(since + tolerated_s - now)
        return min(delays_s, default=None)
