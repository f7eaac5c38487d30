"""Places pods that ask for NPUs under `schedulerName: matrix-scheduler`, gangs whole, on nodes MatrixResource chooses.

A gang gets an allocation of its own; a pod is bound once its node's agent has reported it active. What stands in the
way is recorded as an event and as the pod's PodScheduled condition, in MatrixResource's own words. When the last pod of
a gang is gone, so is its allocation. Works through bindings, on any Kubernetes API.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from itertools import chain
from typing import Any

from matrixcommon.model.errors import Conflict, InsufficientCapacity, MatrixError, NotFound
from matrixcommon.model.hardware_names import NPUS_PER_NODE, NodeName
from matrixcommon.model.quantities import counted
from matrixcontainer.client.client import POD, KubeClient
from matrixcontainer.client.events import event_on, record
from matrixcontainer.kubeapi.meta.attempts import attempt_all
from matrixcontainer.scheduler.gangs import SCHEDULER_NAME, Gang, bindings, gangs_of
from matrixcontainer.scheduler.pod_groups import pod_groups
from matrixresource.client import ResourceClient
from matrixresource.contract.allocations import AllocationView
from matrixresource.contract.defragmentations import POD_LABEL

log = logging.getLogger(__name__)

GANG_LABEL = POD_LABEL
COMPONENT = "matrix-scheduler"


class PodScheduler:
    """`reconcile` does everything there is to do once; run at every change of pods and on a period."""

    def __init__(self, kube: KubeClient, resource: ResourceClient, wall: Callable[[], float]) -> None:
        self._kube = kube
        self._resource = resource
        self._wall = wall
        self._reported: dict[str, str] = {}

    async def reconcile(self) -> str:
        """Place what waits, release what is over. A sentence about what was done.

        What is refused of one gang keeps no other from its turn; the first refusal is raised afterwards.
        """
        pods, _ = await self._kube.list(POD)
        ours = [pod for pod in pods if pod["spec"].get("schedulerName") == SCHEDULER_NAME]
        gangs = gangs_of(ours, await pod_groups(self._kube, ours), await self._node_npus(ours))
        current = {each.key: each for each in await self._resource.allocations() if GANG_LABEL in each.labels}
        uids = {pod["metadata"]["uid"] for pod in ours}
        self._reported = {uid: message for uid, message in self._reported.items() if uid in uids}
        waiting = [gang for gang in gangs if gang.alive()]
        over = set(current) - {gang.allocation for gang in waiting}
        placed = (self._try_to_place(gang, current.get(gang.allocation)) for gang in waiting)
        released = (self._release(name) for name in over)
        bound = sum(await attempt_all(chain(placed, released)))
        return f"{bound} pods bound, {len(over)} gangs released"

    async def _try_to_place(self, gang: Gang, allocation: AllocationView | None) -> int:
        """How many of its pods were bound; one gang that cannot be read explains itself."""
        try:
            return await self._place(gang, allocation)
        except MatrixError:
            raise
        except Exception as wrong:
            log.exception("a gang cannot be placed", extra={"gang": f"{gang.namespace}/{gang.name}"})
            await self._explain(gang, "Unreadable", f"{type(wrong).__name__}: {wrong}")
            return 0

    async def _release(self, name: str) -> int:
        """A gang that is over; it binds no pods."""
        await self._resource.release(name)
        return 0

    async def _node_npus(self, ours: list[dict[str, Any]]) -> int:
        """NPUs of a node, which is the same in the whole machine; read each time, for another machine may be there."""
        machine = await self._resource.supernodes() if ours else []
        return next((each.npus // each.nodes for each in machine if each.nodes), NPUS_PER_NODE)

    async def _place(self, gang: Gang, allocation: AllocationView | None) -> int:
        pods = gang.alive()
        try:
            gang.check()
            if len(pods) < gang.size:
                await self._explain(gang, "Waiting", f"{len(pods)} of the gang's {gang.size} pods are there")
                return 0
            if await self._preempt(gang, allocation):
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
            await self._explain(gang, refused.reason, _words(refused))
            return 0
        await self._replace_lost(gang, allocation)
        members = [NodeName(m.node) for m in allocation.members if m.role == "member"]
        ready = {NodeName(m.node) for m in allocation.members if m.role == "member" and m.ready}
        placed = bindings(pods, members, ready, max(1, int(allocation.npus_per_node or gang.node_npus) // gang.each))
        for name, node in placed.items():
            await self._bind(gang, name, node)
        missing = sum(not pod["spec"].get("nodeName") for pod in pods) - len(placed)
        if missing:
            await self._explain(
                gang,
                "Deploying",
                f"{counted(allocation.nodes, 'node')} committed, {missing} of them still being deployed",
            )
        return len(placed)

    async def _bind(self, gang: Gang, name: str, node: NodeName) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"metadata": {"name": name, "namespace": gang.namespace}, "target": target}
        with contextlib.suppress(Conflict, NotFound):  # bound or gone meanwhile: the next pass sees it
            await self._kube.bind(name, gang.namespace, body)
            await self._record_event(gang, name, "Normal", "Scheduled", f"assigned {gang.namespace}/{name} to {node}")

    async def _preempt(self, gang: Gang, allocation: AllocationView | None) -> bool:
        """Whether its nodes were revoked (somebody of higher priority came): its pods leave, and it waits anew."""
        bound = [pod for pod in gang.alive() if pod["spec"].get("nodeName")]
        if allocation is not None and allocation.state != "Releasing":
            return False
        why = (
            next((c.message for c in allocation.conditions if c.type == "Preempted"), "")
            if allocation is not None
            else ""
        )
        message = why or "its nodes were revoked"
        for pod in bound:
            name = pod["metadata"]["name"]
            await self._record_event(gang, name, "Warning", "Preempted", message)
            await self._evict(pod)
        if allocation is not None:
            await self._explain(gang, "Preempted", message)
        return allocation is not None or bool(bound)

    async def _replace_lost(self, gang: Gang, allocation: AllocationView) -> None:
        """A node that was lost under a gang is replaced; its pod is removed, for its owner to make it again.

        The pod goes first: once the node is no member any more, nothing tells the next pass that it was on one.
        """
        for member in allocation.members:
            if member.role == "member" and (member.agent == "Lost" or member.health == "Unhealthy"):
                with contextlib.suppress(InsufficientCapacity):
                    await self._resource.replace(allocation.key, member.node, "NodeLost", validate_only=True)
                    for pod in gang.alive():
                        if pod["spec"].get("nodeName") == member.node:
                            await self._evict(pod)
                    await self._resource.replace(allocation.key, member.node, "NodeLost")

    async def _evict(self, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        with contextlib.suppress(Conflict):  # its owner has made another of that name by now
            await self._kube.delete(POD, metadata["name"], metadata["namespace"], grace_s=0, uid=metadata["uid"])

    async def _explain(self, gang: Gang, reason: str, message: str) -> None:
        """Why the gang waits, on each of its unbound pods; recorded once until it changes."""
        for pod in gang.alive():
            name = pod["metadata"]["name"]
            if pod["spec"].get("nodeName") or self._reported.get(pod["metadata"]["uid"]) == message:
                continue
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            version = {"resourceVersion": pod["metadata"]["resourceVersion"]}
            body = {"metadata": version, "status": {"conditions": [condition]}}
            with contextlib.suppress(NotFound, Conflict):  # gone or changed since: the next pass sees it
                await self._kube.merge(POD, name, body, gang.namespace, "status")
                await self._record_event(gang, name, "Warning", "FailedScheduling", f"{reason}: {message}")
                self._reported[pod["metadata"]["uid"]] = message

    async def _record_event(self, gang: Gang, name: str, type: str, reason: str, message: str) -> None:
        pod = next(pod for pod in gang.pods if pod["metadata"]["name"] == name)
        mark = f"{reason} {message}"
        event = event_on(POD, pod, type, reason, message, component=COMPONENT, at=self._wall(), mark=mark)
        await record(self._kube, event)


def _words(refused: MatrixError) -> str:
    """The refusal, with the domains that come closest."""
    domains = [entry for entry in refused.blocking if "domain" in entry]
    domains.sort(key=lambda entry: -entry.get("free", 0))
    near = ", ".join(f"{entry['domain']} has {entry['free']} of {entry['nodes']} free" for entry in domains[:3])
    return f"{refused.message} ({near})" if near else refused.message
