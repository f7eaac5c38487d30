"""Scaling in: what is served on members that are to leave is drained before they are released.

MatrixCompute knows who would leave and nothing of workloads, CloudMatrix-Infer knows what runs where and nothing of
sizes; the operator knows both. Everything is read anew each time: as long as the resource asks for fewer nodes than the
instance has, who would leave is drained; when every deployment on it says Drained, those members are named in the
resize. A crash between any two steps finds the same next step.
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
from matrixcontainer.client.events import record
from matrixcontainer.operator.decision import cancelled_change, desired_nodes, key_of_resource, namespace_of
from matrixcontainer.operator.ports import Inference
from matrixcontainer.operator.status import reported_of


@dataclass(frozen=True)
class Leave:
    """The members that go, and what still keeps them."""

    nodes: Sequence[str] = ()
    waiting: str = ""

    def shown_in(self, observed: InstanceView) -> InstanceView:
        """The instance as it is, its progress reported to be this drain."""
        draining = Condition(type="Progressing", status="True", reason="Draining", message=self.waiting)
        others = [each for each in observed.conditions if each.type != draining.type]
        return observed.model_copy(update={"conditions": [*others, draining]})


class ScaleIn:
    """What the operator does before an instance shrinks."""

    def __init__(
        self, kube: KubeClient, compute: ComputeClient, inference: Inference, wall: Callable[[], float]
    ) -> None:
        self._kube = kube
        self._compute = compute
        self._inference = inference
        self._wall = wall

    async def leave(self, body: dict[str, Any], observed: InstanceView | None, request: InstanceRequest) -> Leave:
        """Who is to be named in the change; nobody where it does not shrink, or nobody serves there."""
        members = _members(observed)
        if observed is None or request.nodes >= len(members) or _moves(request, observed):
            return Leave()
        deployments = await self._deployments(body)
        if not deployments:
            return Leave()
        plan = await self._compute.ensure_instance(key_of_resource(body), request, validate_only=True)
        leaving = sorted(members - _members(plan))
        if not leaving:
            return Leave()  # who left is still shown as a member
        try:
            by = resource_owner(key_of_resource(body))
            drains = {name: await self._drained(name, leaving, by) for name in deployments}
        except Conflict as busy:  # others drain there, for a repair or a move say
            return Leave(leaving, f"nodes are to leave, and have to wait: {busy.message}")
        running = {name: drain for name, drain in drains.items() if drain.get("state", "Drained") != "Drained"}
        began = sum(drain.get("requestsAtStart", 0) for drain in drains.values())
        nodes = ", ".join(leaving)
        if began:
            await self._tell(body, "Draining", draining_text(began, nodes))
        if not running:
            await self._tell(body, "Drained", f"nothing runs any more on nodes that are to leave: {nodes}")
            return Leave(leaving)
        left = ", ".join(f"{name_of(name)} has {drain['requests']} requests there" for name, drain in running.items())
        return Leave(leaving, f"nodes drain before they leave: {left}")

    async def _drained(self, deployment: str, leaving: list[str], by: str) -> dict[str, Any]:
        """How far the drain of that deployment is; {} where there is no such deployment."""
        try:
            return (await self._inference.drain(deployment, leaving, by=by)).get("drain") or {}
        except NotFound:
            return {}

    async def withdraw(self, infer: dict[str, Any], deployment: dict[str, Any], instance: InstanceView | None) -> None:
        """End a drain of the operator's own that nobody asks for any more: the instance is to keep its nodes, or a
        scaling policy has them drained by itself."""
        key, drain = resolve(infer["spec"]["instance"], namespace_of(infer)), deployment.get("drain") or {}
        if drain.get("by") != resource_owner(key) or instance is None:
            return
        if instance.generation != instance.observed_generation or instance.state != "Active":
            return  # a resize is under way
        if instance.scaling_policy is not None:
            await self._inference.undrain(key_of_resource(infer))
            return
        resource = await self._kube.find(INSTANCE, name_of(key), project_of(key))
        still = _members(instance) & set(drain["nodes"])
        if not still or resource is None:
            return
        if desired_nodes(resource) >= len(_members(instance)) or cancelled_change(resource, instance) is not None:
            await self._inference.undrain(key_of_resource(infer))

    async def _deployments(self, body: dict[str, Any]) -> list[str]:
        resources, _ = await self._kube.list(INFER)
        key = key_of_resource(body)
        return [
            key_of_resource(each) for each in resources if resolve(each["spec"]["instance"], namespace_of(each)) == key
        ]

    async def _tell(self, body: dict[str, Any], reason: str, message: str) -> None:
        """An event, once for each generation and those nodes."""
        await record(self._kube, reported_of(INSTANCE, body, "Normal", reason, message, self._wall()))


def _members(view: InstanceView | None) -> set[str]:
    return set() if view is None else {member.node for member in view.members if member.role == "member"}


def _moves(request: InstanceRequest, observed: InstanceView) -> bool:
    """Whether it is to lie elsewhere: who moves serves on until its successors do."""
    desired = (request.placement, request.affinity, request.anti_affinity)
    return desired != (observed.placement, observed.affinity, observed.anti_affinity)
