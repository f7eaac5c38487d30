"""Allocations: requests and views."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.resource_key import reference_to
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixresource.contract.fields import NpuCount
from matrixresource.contract.nodes import InPlaceRepair, Power
from matrixresource.contract.requested_capacity import (
    Affinity,
    CapacityRequest,
    ExcludedNodes,
    PlacementPolicy,
    TopologyVersion,
)

REPLACEMENT_LABEL, RESERVATION_LABEL = "cloudmatrix.io/last-replacement", "cloudmatrix.io/reservation"
"""Labels that MatrixResource itself sets on allocations; a request replaces all others."""
GROWN_CONDITION = "Grown"
"""The condition of an allocation that grew in place. Its message is how many of the new members had been spares, its
observedGeneration the growth it is about."""
DEPLOYMENT_LABEL = "cloudmatrix.io/deployment"
"""The deployment of CloudMatrix-Infer that an allocation serves, for example one of memory for its caches."""
CACHING_ON_LABEL = "cloudmatrix.io/caching-on"
"""The instance on whose nodes cache memory is allocated. Without that instance the memory is useless, whoever requested
it."""


def belongs_to_earlier_instance(memory: AllocationView, created_at: str) -> bool:
    """Whether cache memory predates the instance it is labelled with, or the allocation of that instance's nodes, and
    so belongs to an earlier instance of the same name."""
    return memory.created_at < created_at


def system_labels(labels: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name in (REPLACEMENT_LABEL, RESERVATION_LABEL)}


class AllocationRequest(CapacityRequest):
    """What an allocation is to hold, and for how long: until it is released, or until its lease ends."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"nodes": 3, "spares": 1, "placement": {"policy": "pack", "level": "cabinet"}},
    )

    preemption: Literal["Never", "LowerPriority"] = Field(
        "Never", description="whether it may preempt lower priorities"
    )
    lease_s: Annotated[float | None, Field(gt=0, le=1e9, description="seconds until release unless renewed")] = None
    reservation: str | None = Field(None, max_length=127, description="draw on this reservation")
    topology_version: TopologyVersion = ""
    exclude_nodes: ExcludedNodes = Field(default_factory=empty_list)

    REFERENCES: ClassVar[tuple[str, ...]] = (*CapacityRequest.REFERENCES, "reservation")

    def spec_dict(self) -> dict[str, Any]:
        """The spec alone, without labels, excluded nodes and the topology version it was planned on."""
        return self.model_copy(update={"labels": {}, "exclude_nodes": [], "topology_version": ""}).wire()

    def request_for(self, project: str) -> dict[str, Any]:
        """The spec as a member of that project would request it again: defaults omitted, the project's own names
        unqualified."""
        affinities = {"affinity": self.affinity, "anti_affinity": self.anti_affinity}
        shown: dict[str, Any] = {name: each.shown_to(project) for name, each in affinities.items() if each is not None}
        if self.reservation is not None:
            shown["reservation"] = reference_to(self.reservation, project)
        own = {"project", "labels", "exclude_nodes", "topology_version"}
        return self.model_copy(update=shown).model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=own)

    @model_validator(mode="after")
    def _named_memory_is_free(self) -> Self:
        if self.memory_gib_by_node and (self.preemption != "Never" or self.reservation is not None):
            raise ValueError("memoryGibByNode cannot preempt and cannot draw on a reservation")
        return self


class RenewRequest(ApiModel):
    """How long the lease lasts from now."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"leaseS": 7200},)

    lease_s: float = Field(gt=0, le=1e9, description="length of the new lease, from now on (s, emulated)")


class BindingRequest(ApiModel):
    """Whether the nodes of an allocation are deployed and running, or switched off and kept."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"power": "On"},)

    power: Power = Field("On", description="Off: the nodes are stopped and switched off; their disks are kept")


class ReplaceRequest(ApiModel):
    """Which member to replace, and why (recorded in the allocation's history)."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"node": "sn0-c00-n0", "reason": "its fan is loud"},)

    node: NodeName = Field(description="the member to give up; a spare, or else a free node, takes its rank")
    reason: str = Field(
        "Requested",
        max_length=200,
        description="why, as one word; kept with the node in the label cloudmatrix.io/last-replacement",
    )


class RepairRequest(ApiModel):
    """Which member to repair in place, and how."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"node": "sn0-c00-n0", "task": "restart"},)

    node: NodeName = Field(description="the member to repair; it stays a member")
    task: InPlaceRepair = Field(description="what its agent does: restart its processes, reset its NPUs, or reboot it")


class MemberView(ApiModel):
    """One node of an allocation, or the allocation's part of it. `state` is the node's; `ready` is true once its agent
    has reported the requested state.

    While an allocation moves, a successor is deployed beside the member whose rank it will take over. `dies` lists the
    dies of a partial node (NPU k is dies 2k and 2k+1, or die k where it is one); `pool` members contribute only CPU
    sockets and memory.
    """

    node: str = Field(description="the node")
    cabinet: str = Field(description="the node's cabinet")
    role: Literal["member", "spare", "successor", "pool"] = Field(description="its role in the allocation")
    rank: int | None = Field(None, description="its position among the members")
    state: str = Field(description="the node's state")
    agent: str = Field(description="the agent's connection: Connected, Stale or Lost")
    health: str = Field(description="hardware health: Healthy, SubHealthy, Unhealthy or Unknown")
    fault: str = Field("", description="component, code and level of the fault behind its health")
    level: str | None = Field(None, description="the worst level among its faults")
    ready: bool = Field(description="whether its agent has reported the requested state")
    stage: str | None = Field(None, description="the stage the node's agent is at, or the one that failed")
    message: str | None = Field(None, description="details of that stage, or why the node is out of service")
    failed_at: str | None = Field(
        None, description="when a lost or unhealthy node failed: its last report, or the first of the fault"
    )  # fmt: skip
    detected_at: str | None = Field(None, description="when the node was declared lost, or the fault first reported")
    npus: NpuCount | None = Field(None, description="NPUs it holds of the node, where that is not all of it")
    dies: list[int] | None = Field(None, description="dies it holds, by number within the node")
    cpus: int | None = Field(None, description="CPU sockets it holds")
    memory_gib: int | None = Field(None, description="memory it holds, GiB")

    @property
    def gone(self) -> bool:
        """Whether the allocation has lost it: its agent is Lost, or the node is Quarantined or Retired."""
        return self.agent == "Lost" or self.state in ("Quarantined", "Retired")


class AllocationView(ResourceView):
    """One allocation. `nodes` counts members and `npus` the NPUs they hold; `request` is the spec as granted, and is
    itself a valid request."""

    nodes: int = Field(description="number of members")
    npus: NpuCount = Field(description="NPUs that the members hold, a single die counting as a half")
    npus_per_node: NpuCount | None = Field(
        None, description="NPUs of each member, as requested; null: all of the node, or what divides the NPUs requested"
    )
    cpus: int | None = Field(None, description="CPU sockets that it holds from any nodes, as requested; null: none")
    memory_gib: int | None = Field(
        None, description="memory that it holds from any nodes, as requested, GiB; null: none"
    )
    spares: int = Field(description="number of spares that it is to have; `members` has those that it has")
    placement: PlacementPolicy = Field(description="where its members may be placed")
    affinity: Affinity | None = Field(None, description="it is placed only in domains that all these allocations use")
    anti_affinity: Affinity | None = Field(
        None, description="it is placed in no domain that any of these allocations uses"
    )
    priority: int = Field(0, description="allocations with a higher priority may preempt this one")
    preemption: str = Field(
        "Never", description="Never, or LowerPriority: it may preempt allocations of lower priority"
    )
    expires_at: str | None = Field(
        None, description="when its lease ends and it is released, in emulated time; null: it has no lease"
    )
    topology_version: str = Field(description="topology version on which it was first placed")
    bound: bool = Field(description="whether its nodes are to be deployed, not only reserved")
    power: Power = Field("On", description="Off: its nodes are stopped and switched off, but stay its own")
    members: list[MemberView] = Field(
        default_factory=empty_list, description="its nodes and parts of nodes: members, spares, successors and pools"
    )
    preempts: list[str] = Field(
        default_factory=empty_list,
        description="allocations preempted that have no capacity again yet; with validateOnly those it would preempt",
    )
    request: dict[str, Any] = Field(default_factory=empty_dict, description="the spec as last granted")

    @property
    def growth(self) -> str:
        """How many of the members added by the last change had been spares, as text; empty if it added none."""
        found = (
            each
            for each in self.conditions
            if each.type == GROWN_CONDITION and each.observed_generation == self.generation
        )
        return next((each.message for each in found), "")
