"""DaemonSets: a pod on every node that the template admits, replaced node by node when the template changes."""

import asyncio
from typing import Any

from matrixcontainer.kubeapi.controllers.runtime.event_recorder import EventRecorder
from matrixcontainer.kubeapi.controllers.runtime.informers import Informers
from matrixcontainer.kubeapi.controllers.workloads.daemon_decision import Daemons, Plan, daemon_pod, target_node
from matrixcontainer.kubeapi.controllers.workloads.pod_control import BURST_REPLICAS, PodController
from matrixcontainer.kubeapi.controllers.workloads.replica_sets import seconds_until_available
from matrixcontainer.kubeapi.controllers.workloads.rollout import template_hash
from matrixcontainer.kubeapi.kubelet.node_info import NodeInfo
from matrixcontainer.kubeapi.kubelet.pod_info import Name, PodInfo
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.meta.selectors import matches_label_selector
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.storage.objects import Change

Obj = dict[str, Any]


class DaemonSetController(PodController):
    storage = "daemonsets.apps"
    account = "daemon-set-controller"

    def __init__(self, core: Core, informers: Informers, events: EventRecorder) -> None:
        super().__init__(core, informers, events)
        self._failed_in_a_row: dict[str, dict[str, int]] = {}
        """By DaemonSet and node: how many pods have failed since one was ready there."""

    def on_pod(self, before: PodInfo | None, pod: PodInfo | None) -> None:
        for info in (before, pod):
            if info is not None and info.owner_kind == "DaemonSet":
                self.enqueue((info.key[0], info.owner_name))
        if pod is not None and not pod.owner_uid and (before is None or before.labels != pod.labels):
            for record in self.core.store.objects_of(self.storage):
                if record.key[1] == pod.key[0] and matches_label_selector(
                    record.obj["spec"].get("selector"), pod.labels or {}
                ):
                    self.enqueue(record.key[1:])

    def on_node(self, before: NodeInfo | None, node: NodeInfo | None) -> None:
        if before is None or node is None or (before.labels, before.taints) != (node.labels, node.taints):
            self.load()

    def on_change(self, change: Change) -> None:
        super().on_change(change)
        if change.type == "DELETED":
            self._failed_in_a_row.pop(change.record.uid, None)

    async def reconcile(self, key: Name) -> float | None:
        record = self.record(key)
        if record is None or "deletionTimestamp" in record.obj["metadata"]:
            return None
        failures = self._failed_in_a_row.setdefault(record.uid, {})
        for pod in self.informers.pods.owned_by(record.uid):
            if pod.ready:
                failures.pop(pod.node, None)
        ds, revision = record.obj, template_hash(record.obj["spec"]["template"], 0)
        await self.claim_pods(ds)
        failure: ApiError | None = None
        try:
            plan = self._daemons(ds, revision).placement(failures)
            failures |= {pod.node: failures.get(pod.node, 0) + 1 for pod in plan.failed}
            await self._carry_out(ds, revision, plan)
            await self._carry_out(ds, revision, self._daemons(ds, revision).update())
        except ApiError as refused:
            self.events.event(ds, "FailedCreate", f"Error creating: {refused}", self.account, warning=True)
            failure = refused
        status = self._daemons(ds, revision).status()
        if status != ds.get("status"):
            await self.write_status(key, status)
        if failure is not None:
            raise failure
        pods = [pod for pod in self.informers.pods.owned_by(record.uid) if pod.active]
        delays_s = (
            plan.retry_in_s,
            seconds_until_available(pods, ds["spec"].get("minReadySeconds") or 0, self.core.now()),
        )
        return min((each for each in delays_s if each is not None), default=None)

    def _daemons(self, ds: Obj, revision: str) -> Daemons:
        """The DaemonSet as it is now."""
        by_node: dict[str, list[PodInfo]] = {}
        for pod in self.informers.pods.owned_by(ds["metadata"]["uid"]):
            by_node.setdefault(pod.node or self._target(pod), []).append(pod)
        return Daemons(ds, revision, self.informers.nodes.all(), by_node, self.core.now())

    def _target(self, pod: PodInfo) -> str:
        record = self.core.store.get(("pods", *pod.key))
        return "" if record is None else target_node(record.obj)

    async def _carry_out(self, ds: Obj, revision: str, plan: Plan) -> None:
        for pod in plan.failed:
            text = f"Found failed daemon pod {'/'.join(pod.key)} on node {pod.node}, will try to kill it"
            self.events.event(ds, "FailedDaemonPod", text, self.account, warning=True)
        await asyncio.gather(*(self.delete_pod(ds, pod) for pod in plan.delete[:BURST_REPLICAS]))
        await self.create_pods(ds, [daemon_pod(ds, node, revision) for node in plan.create[:BURST_REPLICAS]])
