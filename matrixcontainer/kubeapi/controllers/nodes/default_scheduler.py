"""A simple default scheduler: binds pods with schedulerName `default-scheduler` and ignores all others.

One reconcile places all pending pods, by priority and age, so that capacity is never assigned twice. A pod that fits no
node gets one event and is retried when a node changes, capacity becomes free, or a pod is placed that it depends on.
"""

from dataclasses import replace
from typing import Any

from matrixcontainer.kubeapi.builtin.pods import BINDING, bind
from matrixcontainer.kubeapi.controllers.nodes.inter_pod_rules import InterPodRules
from matrixcontainer.kubeapi.controllers.runtime.event_recorder import EventRecorder
from matrixcontainer.kubeapi.controllers.runtime.informers import Informers
from matrixcontainer.kubeapi.controllers.runtime.node_fit import select_node
from matrixcontainer.kubeapi.controllers.runtime.workqueue import WorkloadController
from matrixcontainer.kubeapi.kubelet.node_info import NodeInfo
from matrixcontainer.kubeapi.kubelet.pod_info import Name, PodInfo
from matrixcontainer.kubeapi.kubelet.pod_lifecycle import set_condition
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.attempts import attempt_all
from matrixcontainer.kubeapi.meta.errors import ignoring
from matrixcontainer.kubeapi.meta.timestamps import timestamp
from matrixcontainer.kubeapi.registry.core import Core

NAME = "default-scheduler"
ALL: Name = ("", "")


class DefaultScheduler(WorkloadController):
    storage = "pods"
    account = NAME
    max_concurrent_reconciles = 1

    def __init__(self, core: Core, informers: Informers, events: EventRecorder) -> None:
        super().__init__(core, informers, events)
        self._queued: set[Name] = set()

    def load(self) -> None:
        self._requeue_pending()

    def on_pod(self, before: PodInfo | None, pod: PodInfo | None) -> None:
        if pod is not None and self._is_pending(pod):
            if before is None or before.gated or before.labels != pod.labels:
                self._queued.add(pod.key)
                self.enqueue(ALL)
        elif before is not None and before.node and not before.ended and (pod is None or pod.ended):
            self._requeue_pending()
        if pod is not None and pod.node and (before is None or (before.node, before.labels) != (pod.node, pod.labels)):
            self._requeue_pending(relative=True)

    def on_node(self, before: NodeInfo | None, node: NodeInfo | None) -> None:
        if node is not None and node != before:
            self._requeue_pending()

    def _requeue_pending(self, relative: bool = False) -> None:
        """Try all pending pods again; `relative`: only those whose placement depends on other pods."""
        found = {key: self.informers.pods.get(key) for key in self.informers.pods.unbound}
        pending = {
            key
            for key, pod in found.items()
            if self._is_pending(pod) and (not relative or (pod is not None and pod.relative))
        }
        if pending - self._queued:
            self._queued |= pending
            self.enqueue(ALL)

    def _is_pending(self, pod: PodInfo | None) -> bool:
        return pod is not None and not pod.node and pod.active and not pod.gated and pod.scheduler in ("", NAME)

    async def reconcile(self, key: Name) -> float | None:
        queued, self._queued = self._queued, set()
        pods = [pod for name in queued if self._is_pending(pod := self.informers.pods.get(name))]
        nodes = self.informers.nodes.all()
        ordered = sorted((pod for pod in pods if pod), key=lambda p: (-p.priority, p.created, p.key))
        await attempt_all(self._try_schedule(pod, nodes) for pod in ordered)
        return None

    async def _try_schedule(self, pod: PodInfo, nodes: list[NodeInfo]) -> None:
        """Place one pod; if that fails, retry it later."""
        try:
            with ignoring(404, 409):
                await self._schedule(pod, nodes)
        except Exception:
            self._queued.add(pod.key)
            raise

    async def _schedule(self, info: PodInfo, nodes: list[NodeInfo]) -> None:
        record = self.record(info.key)
        if record is None:
            return
        pod = record.obj
        rules = InterPodRules(nodes, self.informers.pods, self._namespace_labels).filters(pod, info)
        node, message = select_node(pod, info.requests or {}, nodes, self.informers.pods.requested_by_node, rules)
        resource, now = self.resource, self.core.now()
        if node:

            def assign(obj: dict[str, Any]) -> dict[str, Any]:
                if obj["spec"].get("nodeName") or "deletionTimestamp" in obj["metadata"]:
                    raise errors.conflict("pods", "", info.key[1])
                return bind(obj, node, timestamp(now))

            await self.core.verbs.modify(replace(resource, strategy=BINDING), *info.key, assign, self.options())
            text = f"Successfully assigned {'/'.join(info.key)} to {node}"
            self.events.event(pod, "Scheduled", text, NAME)
            return
        current: dict[str, Any] = next(
            (c for c in pod["status"].get("conditions") or [] if c["type"] == "PodScheduled"), {}
        )
        if current.get("message") != message:

            def set_unschedulable(obj: dict[str, Any]) -> dict[str, Any]:
                set_condition(obj["status"], "PodScheduled", False, now, "Unschedulable", message)
                return obj

            await self.modify(info.key, set_unschedulable, "status")
            self.events.event(pod, "FailedScheduling", message, NAME, warning=True)

    def _namespace_labels(self, namespace: str) -> dict[str, str]:
        record = self.core.store.get(("namespaces", "", namespace))
        return (record.obj["metadata"].get("labels") or {}) if record is not None else {}
