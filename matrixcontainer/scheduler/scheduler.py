"""Places pods with `schedulerName: matrix-scheduler`, whole gangs at a time, on nodes that MatrixResource chooses.

Each gang has its own allocation; a pod is bound once its node's agent reports the node active. What blocks a gang is
reported as an event and in the pods' PodScheduled condition, with MatrixResource's message. When the last pod of a gang
is gone, its allocation is released. Uses pod bindings, so it works on any Kubernetes API.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from itertools import chain
from typing import Any

from matrixcommon.model.errors import Conflict, InsufficientCapacity, MatrixError, NotFound
from matrixcommon.model.hardware_names import NPUS_PER_NODE, NodeName
from matrixcommon.model.quantities import pluralized
from matrixcontainer.client.client import NODE, POD, KubeClient
from matrixcontainer.client.events import event_for_object, record_event
from matrixcontainer.kubeapi.kubelet.node_info import NodeInfo, parse_node_info
from matrixcontainer.kubeapi.meta.attempts import attempt_all
from matrixcontainer.operator.decision import MANAGED_BY, MANAGED_LABEL
from matrixcontainer.scheduler.gangs import SCHEDULER_NAME, Gang, assign_pods, group_into_gangs
from matrixcontainer.scheduler.pod_groups import pod_groups
from matrixcontainer.scheduler.pod_rules import selects_nodes, validate_rules
from matrixresource.client import ResourceClient
from matrixresource.contract.allocations import AllocationView
from matrixresource.contract.defragmentations import POD_LABEL

log = logging.getLogger(__name__)

GANG_LABEL = POD_LABEL
COMPONENT = "matrix-scheduler"


class PodScheduler:
    """Call `reconcile` at every change of pods and periodically; each call does everything that is due."""

    def __init__(self, kube: KubeClient, resource: ResourceClient, wall: Callable[[], float]) -> None:
        self._kube = kube
        self._resource = resource
        self._wall = wall
        self._reported: dict[str, str] = {}

    async def reconcile(self) -> str:
        """Place waiting gangs and release finished ones; return a summary.

        An error in one gang does not hold up the others; the first is raised afterwards.
        """
        pods, _ = await self._kube.list(POD)
        ours = [pod for pod in pods if pod["spec"].get("schedulerName") == SCHEDULER_NAME]
        gangs = group_into_gangs(ours, await pod_groups(self._kube, ours), await self._node_npus(ours))
        current = {each.key: each for each in await self._resource.allocations() if GANG_LABEL in each.labels}
        uids = {pod["metadata"]["uid"] for pod in ours}
        self._reported = {uid: message for uid, message in self._reported.items() if uid in uids}
        active = [gang for gang in gangs if gang.active_pods()]
        finished = set(current) - {gang.allocation for gang in active}
        placed = (self._try_place(gang, current.get(gang.allocation)) for gang in active)
        released = (self._release(name) for name in finished)
        bound = sum(await attempt_all(chain(placed, released)))
        return f"{bound} pods bound, {len(finished)} gangs released"

    async def _try_place(self, gang: Gang, allocation: AllocationView | None) -> int:
        """Place the gang and return how many of its pods were bound. An unexpected error is reported on its pods."""
        try:
            return await self._place(gang, allocation)
        except MatrixError:
            raise
        except Exception as error:
            log.exception("placing a gang failed", extra={"gang": f"{gang.namespace}/{gang.name}"})
            await self._report_unschedulable(gang, "Unreadable", f"{type(error).__name__}: {error}")
            return 0

    async def _release(self, name: str) -> int:
        """Release the allocation of a finished gang; binds no pods."""
        await self._resource.release(name)
        return 0

    async def _node_npus(self, ours: list[dict[str, Any]]) -> int:
        """NPUs per node, the same throughout the machine. Read on each pass, as the machine may be replaced."""
        machine = await self._resource.supernodes() if ours else []
        return next((each.npus // each.nodes for each in machine if each.nodes), NPUS_PER_NODE)

    async def _nodes(self) -> list[NodeInfo]:
        """The mirrored Nodes, which MatrixResource allocates."""
        nodes, _ = await self._kube.list(NODE, labels=f"{MANAGED_LABEL}={MANAGED_BY}")
        return [parse_node_info(node) for node in nodes]

    async def _place(self, gang: Gang, allocation: AllocationView | None) -> int:
        pods = gang.active_pods()
        try:
            gang.validate()
            if allocation is None:
                whole_nodes = gang.npus_per_pod == gang.node_npus
                validate_rules(pods, await self._nodes() if any(map(selects_nodes, pods)) else [], whole_nodes)
            if len(pods) < gang.size:
                await self._report_unschedulable(gang, "Waiting", f"{len(pods)} of the gang's {gang.size} pods exist")
                return 0
            if await self._evict_if_revoked(gang, allocation):
                return 0
            request = gang.request(allocation).model_copy(
                update={"labels": {GANG_LABEL: f"{gang.namespace}.{gang.name}"[:63]}}
            )
            if allocation is None or (allocation.nodes, allocation.spares, allocation.priority) != (
                request.nodes,
                request.spares,
                request.priority,
            ):
                allocation = await self._resource.reserve(gang.allocation, request)
            if not allocation.bound:
                allocation = await self._resource.bind(gang.allocation)
        except MatrixError as refused:
            if refused.retryable:
                raise
            await self._report_unschedulable(gang, refused.reason, _describe_refusal(refused))
            return 0
        await self._replace_lost(gang, allocation)
        members = [NodeName(m.node) for m in allocation.members if m.role == "member"]
        ready = {NodeName(m.node) for m in allocation.members if m.role == "member" and m.ready}
        placed = assign_pods(
            pods, members, ready, max(1, int(allocation.npus_per_node or gang.node_npus) // gang.npus_per_pod)
        )
        for name, node in placed.items():
            await self._bind(gang, name, node)
        missing = sum(not pod["spec"].get("nodeName") for pod in pods) - len(placed)
        if missing:
            await self._report_unschedulable(
                gang,
                "Deploying",
                f"{pluralized(allocation.nodes, 'node')} committed, "
                f"{pluralized(missing, 'pod')} waiting for deployment",
            )
        return len(placed)

    async def _bind(self, gang: Gang, name: str, node: NodeName) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"metadata": {"name": name, "namespace": gang.namespace}, "target": target}
        with contextlib.suppress(Conflict, NotFound):  # bound or deleted meanwhile; the next pass sees that
            await self._kube.bind(name, gang.namespace, body)
            await self._record_event(gang, name, "Normal", "Scheduled", f"assigned {gang.namespace}/{name} to {node}")

    async def _evict_if_revoked(self, gang: Gang, allocation: AllocationView | None) -> bool:
        """If the gang's nodes were revoked (preemption by a higher priority), evict its pods; return whether they were.
        The gang then waits for a new allocation."""
        bound = [pod for pod in gang.active_pods() if pod["spec"].get("nodeName")]
        if allocation is not None and allocation.state != "Releasing":
            return False
        reason = (
            next((c.message for c in allocation.conditions if c.type == "Preempted"), "")
            if allocation is not None
            else ""
        )
        message = reason or "the gang's nodes were revoked"
        for pod in bound:
            name = pod["metadata"]["name"]
            await self._record_event(gang, name, "Warning", "Preempted", message)
            await self._evict(pod)
        if allocation is not None:
            await self._report_unschedulable(gang, "Preempted", message)
        return allocation is not None or bool(bound)

    async def _replace_lost(self, gang: Gang, allocation: AllocationView) -> None:
        """Replace the gang's lost nodes and delete their pods, so that the pods' owners recreate them.

        Pods are deleted first: once the node is no longer a member, the next pass could not tell that they were on it.
        """
        for member in allocation.members:
            if member.role == "member" and (member.agent == "Lost" or member.health == "Unhealthy"):
                with contextlib.suppress(InsufficientCapacity):
                    await self._resource.replace(allocation.key, member.node, "NodeLost", validate_only=True)
                    for pod in gang.active_pods():
                        if pod["spec"].get("nodeName") == member.node:
                            await self._evict(pod)
                    await self._resource.replace(allocation.key, member.node, "NodeLost")

    async def _evict(self, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        with contextlib.suppress(Conflict):  # its owner has already recreated it
            await self._kube.delete(POD, metadata["name"], metadata["namespace"], grace_s=0, uid=metadata["uid"])

    async def _report_unschedulable(self, gang: Gang, reason: str, message: str) -> None:
        """Report why the gang waits on each of its unbound pods, once per message."""
        for pod in gang.active_pods():
            name = pod["metadata"]["name"]
            if pod["spec"].get("nodeName") or self._reported.get(pod["metadata"]["uid"]) == message:
                continue
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            preconditions = {"resourceVersion": pod["metadata"]["resourceVersion"]}
            body = {"metadata": preconditions, "status": {"conditions": [condition]}}
            with contextlib.suppress(NotFound, Conflict):  # deleted or changed since; the next pass sees that
                await self._kube.merge(POD, name, body, gang.namespace, "status")
                await self._record_event(gang, name, "Warning", "FailedScheduling", f"{reason}: {message}")
                self._reported[pod["metadata"]["uid"]] = message

    async def _record_event(self, gang: Gang, name: str, type: str, reason: str, message: str) -> None:
        pod = next(pod for pod in gang.pods if pod["metadata"]["name"] == name)
        dedup_key = f"{reason} {message}"
        event = event_for_object(
            POD, pod, type, reason, message, component=COMPONENT, at=self._wall(), dedup_key=dedup_key
        )
        await record_event(self._kube, event)


def _describe_refusal(refused: MatrixError) -> str:
    """The refusal's message, with the three domains that come closest to fitting."""
    domains = [entry for entry in refused.blocking if "domain" in entry]
    domains.sort(key=lambda entry: -entry.get("free", 0))
    nearest = ", ".join(f"{entry['domain']} has {entry['free']} of {entry['nodes']} free" for entry in domains[:3])
    return f"{refused.message} ({nearest})" if nearest else refused.message
