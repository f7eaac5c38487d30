"""A simple default scheduler: binds pods with schedulerName `default-scheduler` and ignores all others.

One reconcile places all pending pods, by priority and age, so that capacity is never assigned twice. A pod that fits no
node gets one event and is retried when a node changes or capacity becomes free.
"""

from dataclasses import replace
from typing import Any

from matrixcontainer.kubeapi.builtin.pods import BINDING, bind
from matrixcontainer.kubeapi.controllers.nodes.node_fit import choose_node
from matrixcontainer.kubeapi.controllers.runtime.event_recorder import EventRecorder
from matrixcontainer.kubeapi.controllers.runtime.informers import Informers
from matrixcontainer.kubeapi.controllers.runtime.workqueue import WorkloadController
from matrixcontainer.kubeapi.kubelet.node_info import NodeFacts
from matrixcontainer.kubeapi.kubelet.pod_info import Name, PodFacts
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
        self._fresh: set[Name] = set()

    def load(self) -> None:
        self._retry_waiting()

    def on_pod(self, before: PodFacts | None, pod: PodFacts | None) -> None:
        if pod is not None and self._is_pending(pod):
            if before is None or before.gated or before.labels != pod.labels:
                self._fresh.add(pod.key)
                self.enqueue(ALL)
        elif before is not None and before.node and not before.ended and (pod is None or pod.ended):
            self._retry_waiting()

    def on_node(self, before: NodeFacts | None, node: NodeFacts | None) -> None:
        if node is not None and node != before:
            self._retry_waiting()

    def _retry_waiting(self) -> None:
        waiting = {key for key in self.informers.pods.unbound if self._is_pending(self.informers.pods.get(key))}
        if waiting - self._fresh:
            self._fresh |= waiting
            self.enqueue(ALL)

    def _is_pending(self, pod: PodFacts | None) -> bool:
        return pod is not None and not pod.node and pod.active and not pod.gated and pod.scheduler in ("", NAME)

    async def reconcile(self, key: Name) -> float | None:
        fresh, self._fresh = self._fresh, set()
        pods = [pod for name in fresh if self._is_pending(pod := self.informers.pods.get(name))]
        nodes = self.informers.nodes.all()
        ordered = sorted((pod for pod in pods if pod), key=lambda p: (-p.priority, p.created, p.key))
        await attempt_all(self._try_to_place(pod, nodes) for pod in ordered)
        return None

    async def _try_to_place(self, pod: PodFacts, nodes: list[NodeFacts]) -> None:
        """Place one pod; if that fails, retry it later."""
        try:
            with ignoring(404, 409):
                await self._place(pod, nodes)
        except Exception:
            self._fresh.add(pod.key)
            raise

    async def _place(self, facts: PodFacts, nodes: list[NodeFacts]) -> None:
        record = self.record(facts.key)
        if record is None:
            return
        pod = record.obj
        node, why = choose_node(pod, facts.asks or {}, nodes, self.informers.pods.taken)
        resource, at = self.resource, self.core.now()
        if node:

            def take(obj: dict[str, Any]) -> dict[str, Any]:
                if obj["spec"].get("nodeName") or "deletionTimestamp" in obj["metadata"]:
                    raise errors.conflict("pods", "", facts.key[1])
                return bind(obj, node, timestamp(at))

            await self.core.verbs.modify(replace(resource, strategy=BINDING), *facts.key, take, self.options())
            text = f"Successfully assigned {'/'.join(facts.key)} to {node}"
            self.events.event(pod, "Scheduled", text, NAME)
            return
        current: dict[str, Any] = next(
            (c for c in pod["status"].get("conditions") or [] if c["type"] == "PodScheduled"), {}
        )
        if current.get("message") != why:

            def refuse(obj: dict[str, Any]) -> dict[str, Any]:
                set_condition(obj["status"], "PodScheduled", False, at, "Unschedulable", why)
                return obj

            await self.modify(facts.key, refuse, "status")
            self.events.event(pod, "FailedScheduling", why, NAME, warning=True)
