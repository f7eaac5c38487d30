"""A stand-in for the default scheduler: binds pods that ask for `default-scheduler` and leaves all others alone.

One turn places all pods that wait, by priority and age, so that no two are given the same room. A pod that fits
nowhere is told so once and looked at again when a node changes or room is freed.
"""

from dataclasses import replace
from typing import Any

from matrixcontainer.kubeapi.builtin.pods import BINDING, bind
from matrixcontainer.kubeapi.controllers.node_fit import choose_node
from matrixcontainer.kubeapi.controllers.workqueue import Controller
from matrixcontainer.kubeapi.kubelet.node_info import NodeFacts
from matrixcontainer.kubeapi.kubelet.pod_info import Name, PodFacts
from matrixcontainer.kubeapi.kubelet.pod_lifecycle import set_condition
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.meta.timestamps import timestamp
from matrixcontainer.kubeapi.storage.objects import Change

NAME = "default-scheduler"
ALL: Name = ("", "")


class DefaultScheduler(Controller):
    storage = "pods"
    account = NAME
    turns_at_once = 1

    def __init__(self, workloads: Any) -> None:
        super().__init__(workloads)
        self._fresh: set[Name] = set()

    def load(self) -> None:
        self._again()

    def notice(self, change: Change) -> None:
        pass

    def notice_pod(self, before: PodFacts | None, pod: PodFacts | None) -> None:
        if pod is not None and self._waits(pod):
            if before is None or before.gated or before.labels != pod.labels:
                self._fresh.add(pod.key)
                self.look(ALL)
        elif before is not None and before.node and not before.ended and (pod is None or pod.ended):
            self._again()

    def notice_node(self, before: NodeFacts | None, node: NodeFacts | None) -> None:
        if node is not None and node != before:
            self._again()

    def _again(self) -> None:
        waiting = {key for key in self.workloads.pods.unbound if self._waits(self.workloads.pods.get(key))}
        if waiting - self._fresh:
            self._fresh |= waiting
            self.look(ALL)

    def _waits(self, pod: PodFacts | None) -> bool:
        return pod is not None and not pod.node and pod.active and not pod.gated and pod.scheduler in ("", NAME)

    async def reconcile(self, key: Name) -> float | None:
        fresh, self._fresh = self._fresh, set()
        pods = [pod for name in fresh if self._waits(pod := self.workloads.pods.get(name))]
        nodes = self.workloads.nodes.all()
        for pod in sorted((pod for pod in pods if pod), key=lambda p: (-p.priority, p.created, p.key)):
            try:
                await self._place(pod, nodes)
            except ApiError as failure:
                if failure.code not in (404, 409):
                    self._fresh |= fresh
                    raise
        return None

    async def _place(self, facts: PodFacts, nodes: list[NodeFacts]) -> None:
        record = self.record(facts.key)
        if record is None:
            return
        pod = record.obj
        node, why = choose_node(pod, facts.asks or {}, nodes, self.workloads.pods.taken)
        resource, at = self.workloads.pod_resource, self.api.now()
        if node:

            def take(obj: dict[str, Any]) -> dict[str, Any]:
                if obj["spec"].get("nodeName") or "deletionTimestamp" in obj["metadata"]:
                    raise errors.conflict("pods", "", facts.key[1])
                return bind(obj, node, timestamp(at))

            await self.api.verbs.modify(replace(resource, strategy=BINDING), *facts.key, take, self.options())
            text = f"Successfully assigned {'/'.join(facts.key)} to {node}"
            self.workloads.tell(pod, "Scheduled", text, NAME)
            return
        current: dict[str, Any] = next(
            (c for c in pod["status"].get("conditions") or [] if c["type"] == "PodScheduled"), {}
        )
        if current.get("message") != why:

            def refuse(obj: dict[str, Any]) -> dict[str, Any]:
                set_condition(obj["status"], "PodScheduled", False, at, "Unschedulable", why)
                return obj

            await self.api.verbs.modify(resource, *facts.key, refuse, self.options("status"))
            self.workloads.tell(pod, "FailedScheduling", why, NAME, warning=True)
