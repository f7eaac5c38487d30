"""Scale-in: drain the deployments on the members that will leave before those members are released.

MatrixCompute knows which members would leave but nothing of workloads; CloudMatrix-Infer knows what runs where but
nothing of sizes; the operator knows both. It keeps no state and reads everything again on each pass: while the resource
asks for fewer nodes than the instance has, the members that would leave are drained; once every deployment on the
instance reports Drained, the resize names those members. After a crash between any two steps, the next pass continues
with the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matrixcommon.model.errors import Conflict, NotFound
from matrixcommon.model.resource_key import name_of, project_of, resolve
from matrixcommon.model.resource_model import Condition
from matrixcompute.autoscaling.policy import draining_text, resource_owner
from matrixcompute.client import ComputeClient
from matrixcompute.contract import InstanceRequest, InstanceView
from matrixcontainer.client.client import INFER, INSTANCE, KubeClient
from matrixcontainer.client.events import record_event
from matrixcontainer.operator.decision import cancelled_change, desired_nodes, key_of_resource, namespace_of
from matrixcontainer.operator.ports import Inference
from matrixcontainer.operator.status import resource_event


@dataclass(frozen=True)
class MemberDrain:
    """The members that will leave, and what they still wait for, if anything."""

    nodes: Sequence[str] = ()
    waiting: str = ""

    def with_progress(self, observed: InstanceView) -> InstanceView:
        """The observed instance with this drain as its Progressing condition."""
        draining = Condition(type="Progressing", status="True", reason="Draining", message=self.waiting)
        others = [each for each in observed.conditions if each.type != draining.type]
        return observed.model_copy(update={"conditions": [*others, draining]})


class ScaleIn:
    """Drains members before an instance shrinks."""

    def __init__(
        self, kube: KubeClient, compute: ComputeClient, inference: Inference, wall: Callable[[], float]
    ) -> None:
        self._kube = kube
        self._compute = compute
        self._inference = inference
        self._wall = wall

    async def drain_leaving_members(
        self, body: dict[str, Any], observed: InstanceView | None, request: InstanceRequest
    ) -> MemberDrain:
        """Drain the members that the change would remove and return them; none if the instance does not shrink or
        nothing is deployed on it."""
        members = _members(observed)
        if observed is None or request.nodes >= len(members) or _placement_changed(request, observed):
            return MemberDrain()
        deployments = await self._deployments(body)
        if not deployments:
            return MemberDrain()
        plan = await self._compute.ensure_instance(key_of_resource(body), request, validate_only=True)
        leaving = sorted(members - _members(plan))
        if not leaving:
            return MemberDrain()  # they have left already and are only still listed as members
        try:
            by = resource_owner(key_of_resource(body))
            drains = {name: await self._request_drain(name, leaving, by) for name in deployments}
        except Conflict as busy:  # another owner is draining, for example a repair or a move
            return MemberDrain(leaving, f"the nodes to remove cannot drain yet: {busy.message}")
        running = {name: drain for name, drain in drains.items() if drain.get("state", "Drained") != "Drained"}
        requests_at_start = sum(drain.get("requestsAtStart", 0) for drain in drains.values())
        nodes = ", ".join(leaving)
        if requests_at_start:
            await self._record_event(body, "Draining", draining_text(requests_at_start, nodes))
        if not running:
            await self._record_event(body, "Drained", f"nothing runs any more on the nodes to remove: {nodes}")
            return MemberDrain(leaving)
        remaining = ", ".join(
            f"{name_of(name)} has {drain['requests']} requests there" for name, drain in running.items()
        )
        return MemberDrain(leaving, f"draining nodes before they are removed: {remaining}")

    async def _request_drain(self, deployment: str, leaving: list[str], by: str) -> dict[str, Any]:
        """Ask the deployment to drain and return the drain's progress; {} if there is no such deployment."""
        try:
            return (await self._inference.drain(deployment, leaving, by=by)).get("drain") or {}
        except NotFound:
            return {}

    async def undrain_unneeded(
        self, infer: dict[str, Any], deployment: dict[str, Any], instance: InstanceView | None
    ) -> None:
        """End the operator's own drain once it is no longer needed: the instance keeps its nodes, or a scaling policy
        drains them itself."""
        key, drain = resolve(infer["spec"]["instance"], namespace_of(infer)), deployment.get("drain") or {}
        if drain.get("by") != resource_owner(key) or instance is None:
            return
        if instance.generation != instance.observed_generation or instance.state != "Active":
            return  # a resize is under way
        if instance.scaling_policy is not None:
            await self._inference.undrain(key_of_resource(infer))
            return
        resource = await self._kube.find(INSTANCE, name_of(key), project_of(key))
        draining = _members(instance) & set(drain["nodes"])
        if not draining or resource is None:
            return
        if desired_nodes(resource) >= len(_members(instance)) or cancelled_change(resource, instance) is not None:
            await self._inference.undrain(key_of_resource(infer))

    async def _deployments(self, body: dict[str, Any]) -> list[str]:
        resources, _ = await self._kube.list(INFER)
        key = key_of_resource(body)
        return [
            key_of_resource(each) for each in resources if resolve(each["spec"]["instance"], namespace_of(each)) == key
        ]

    async def _record_event(self, body: dict[str, Any], reason: str, message: str) -> None:
        """Record an event on the resource, once per generation and set of nodes."""
        await record_event(self._kube, resource_event(INSTANCE, body, "Normal", reason, message, self._wall()))


def _members(view: InstanceView | None) -> set[str]:
    return set() if view is None else {member.node for member in view.members if member.role == "member"}


def _placement_changed(request: InstanceRequest, observed: InstanceView) -> bool:
    """Whether the placement changes: then the instance moves make-before-break, and members serve until their
    replacements do."""
    desired = (request.placement, request.affinity, request.anti_affinity)
    return desired != (observed.placement, observed.affinity, observed.anti_affinity)
