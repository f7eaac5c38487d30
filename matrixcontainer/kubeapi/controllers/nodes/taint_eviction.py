"""Eviction of pods from nodes with NoExecute taints that they do not tolerate, or no longer tolerate.

tolerationSeconds count from the taint's `timeAdded`, or else from when it was first seen here, so after a restart such
a pod may stay a little longer. If the node's kubelet does not respond, the pod is only marked as deleted, which is
enough for its ReplicaSet to create a replacement.
"""

from typing import Any

from matrixcontainer.kubeapi.controllers.nodes.node_fit import tolerates
from matrixcontainer.kubeapi.controllers.runtime.event_recorder import EventRecorder
from matrixcontainer.kubeapi.controllers.runtime.informers import Informers
from matrixcontainer.kubeapi.controllers.runtime.workqueue import WorkloadController
from matrixcontainer.kubeapi.kubelet.node_info import NodeFacts
from matrixcontainer.kubeapi.kubelet.pod_info import Name, PodFacts
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


class TaintEviction(WorkloadController):
    storage = "pods"
    account = "taint-eviction-controller"

    def __init__(self, core: Core, informers: Informers, events: EventRecorder) -> None:
        super().__init__(core, informers, events)
        self._seen: dict[tuple[str, str, str], float] = {}  # node, taint key and value: first seen

    def load(self) -> None:
        for node in self.informers.nodes.all():
            self.on_node(None, node)

    def on_pod(self, before: PodFacts | None, pod: PodFacts | None) -> None:
        if pod is not None and pod.node and pod.active and (before is None or not before.node):
            node = self.informers.nodes.get(pod.node)
            if node is not None and node.evicting:
                self.enqueue(pod.key)

    def on_node(self, before: NodeFacts | None, node: NodeFacts | None) -> None:
        name = node.name if node is not None else before.name if before is not None else ""
        current = {(name, taint["key"], taint.get("value", "")) for taint in (node.evicting if node else [])}
        for mark in [mark for mark in self._seen if mark[0] == name and mark not in current]:
            del self._seen[mark]
        if node is not None and node.evicting and (before is None or before.taints != node.taints):
            for mark in current:
                self._seen.setdefault(mark, self.core.now())
            for pod in self.informers.pods.on_node(name):
                self.enqueue(pod.key)

    async def reconcile(self, key: Name) -> float | None:
        pod = self.informers.pods.get(key)
        node = self.informers.nodes.get(pod.node) if pod is not None and pod.active else None
        if pod is None or node is None or not node.evicting:
            return None
        record = self.record(key)
        if record is None:
            return None
        now = self.core.now()
        left = self._seconds_until_eviction(record.obj["spec"].get("tolerations") or [], node, now)
        if left is None or left > 0:
            return left
        await self.core.verbs.delete(
            self.resource, *key, Deletion(propagation="Background", uid=pod.uid), self.options()
        )
        text = f"Marking for deletion Pod {'/'.join(key)}"
        self.events.event(record.obj, "TaintManagerEviction", text, self.account)
        return None

    def _seconds_until_eviction(self, tolerations: list[Obj], node: NodeFacts, now: float) -> float | None:
        """Seconds until the node's first taint evicts the pod; None if none does."""
        moments = []
        for taint in node.evicting:
            if (stay := toleration_seconds(tolerations, taint)) is not None:
                seen = self._seen.get((node.name, taint["key"], taint.get("value", "")), now)
                since = parse_timestamp(taint["timeAdded"]) if taint.get("timeAdded") else seen
                moments.append(since + stay - now)
        return min(moments, default=None)
