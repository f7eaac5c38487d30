"""The wire contract of MatrixCompute: instances, their shape, events, faults and reliability figures."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_key import resolve
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixresource.contract.allocations import MemberView
from matrixresource.contract.fields import MEMBERS_MAX
from matrixresource.contract.nodes import Power
from matrixresource.contract.requested_capacity import Affinity, PlacementPolicy

NOT_SERVING = "NotServing"
"""Reason of the condition Ready: the instance is Active but has lost something it needs to serve."""


class PlaneShare(ApiModel):
    """What an instance is promised on one plane. Rates are GB/s per NPU, in one direction."""

    qos_class: Literal["Guaranteed", "Burstable", "BestEffort"] = Field(
        "Burstable", description="when links run short, BestEffort yields bandwidth first, then Burstable"
    )
    floor_gbps_per_npu: float = Field(
        0.0, ge=0, le=1e6, description="GB/s guaranteed on every link that the members use"
    )
    ceiling_gbps_per_npu: float | None = Field(None, gt=0, le=1e6, description="GB/s it may never exceed")

    @model_validator(mode="after")
    def _ordered(self) -> PlaneShare:
        ceiling = self.ceiling_gbps_per_npu
        if ceiling is not None and ceiling < self.floor_gbps_per_npu:
            raise ValueError("ceilingGbpsPerNpu is below floorGbpsPerNpu")
        if self.qos_class == "BestEffort" and self.floor_gbps_per_npu:
            raise ValueError("BestEffort promises nothing: omit floorGbpsPerNpu, or use Burstable")
        return self


class Network(ApiModel):
    """The instance's share of each of the three planes; every instance has a slice on each."""

    ub: PlaneShare = Field(
        PlaneShare(qos_class="Burstable", floor_gbps_per_npu=40.0), description="scale-up: NPUs and CPUs of a supernode"
    )
    rdma: PlaneShare = Field(
        PlaneShare(qos_class="Burstable", floor_gbps_per_npu=5.0),
        description="scale-out: KV transfer and traffic between supernodes",
    )
    vpc: PlaneShare = Field(
        PlaneShare(qos_class="BestEffort"), description="the data centre network: control, storage and tenant traffic"
    )

    def share(self, plane: Plane) -> PlaneShare:
        return {Plane.UB: self.ub, Plane.RDMA: self.rdma, Plane.VPC: self.vpc}[plane]


class InstanceAffinity(ApiModel):
    """Affinity keeps to domains that all the named instances use; anti-affinity avoids every domain that any uses."""

    instances: list[Annotated[str, Field(min_length=1, max_length=57)]] = Field(
        min_length=1, max_length=64, description="names of the other instances"
    )
    level: Literal["node", "cabinet", "supernode"] = Field(
        "cabinet", description="the kind of domain to share or avoid"
    )
    required: bool = Field(True, description="true: a placement that breaks the rule is refused; false: a preference")

    def affinity(self) -> Affinity:
        """The same rule for MatrixResource, where an instance's allocation has the instance's name."""
        return Affinity(allocations=list(self.instances), level=self.level, required=self.required)


class InstanceShape(ApiModel):
    """A logical supernode: whole nodes composed into one, with spares and a share of the three planes.

    The spec of a CloudMatrixInstance is generated from this class.
    """

    project: str = Field(
        "default", min_length=1, max_length=63, description="the project that owns it; cannot be changed"
    )
    nodes: int = Field(
        ge=1, le=MEMBERS_MAX, description="number of whole nodes, eight NPUs each; `kubectl scale` sets it"
    )
    min_nodes: int | None = Field(
        None,
        ge=1,
        le=MEMBERS_MAX,
        description="the floor: with this many members it keeps running while lost ones cannot be replaced; "
        "by default all nodes",
    )
    spares: int = Field(0, ge=0, le=48, description="nodes kept booted and ready to replace a lost member")
    placement: PlacementPolicy = Field(
        PlacementPolicy(), description="where nodes may be placed; changing it moves the instance"
    )
    affinity: InstanceAffinity | None = Field(
        None, description="place it only in domains that all these instances use; changing it moves the instance"
    )
    anti_affinity: InstanceAffinity | None = Field(
        None, description="place it in no domain that any of these instances uses; changing it moves the instance"
    )
    priority: int = Field(
        0, ge=-1_000_000_000, le=1_000_000_000, description="instances with a higher priority may preempt this one"
    )
    preemption: Literal["Never", "LowerPriority"] = Field(
        "Never", description="LowerPriority: may preempt instances of lower priority when there is no room for it"
    )
    power: Power = Field(
        "On", description="Off: its nodes are switched off but stay allocated; `:stop` and `:start` set it"
    )
    suspend: bool = Field(
        False,
        description="true: release its nodes and slices, which also ends the slices' peerings, but keep the spec; "
        "false again: provision it anew, without these peerings",
    )
    lease_s: float | None = Field(
        None, gt=0, le=1e9, description="delete it this many seconds after its nodes were allocated, unless renewed"
    )
    network: Network = Field(Network(), description="its share of each plane")

    @field_validator("min_nodes")
    @classmethod
    def _within_nodes(cls, min_nodes: int | None, given: ValidationInfo) -> int | None:
        nodes = given.data.get("nodes")
        if min_nodes is not None and nodes is not None and min_nodes > nodes:
            raise ValueError(f"minNodes has to be between 1 and nodes, which is {nodes}")
        return min_nodes

    @property
    def floor(self) -> int:
        """The fewest members with which the instance keeps running."""
        return self.nodes if self.min_nodes is None else self.min_nodes


class InstanceRequest(InstanceShape):
    """A shape, and the instance's labels."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"nodes": 3, "spares": 1, "labels": {"team": "search"}},)

    labels: dict[str, str] = Field(default_factory=empty_dict, description="its labels; a request replaces all of them")

    @property
    def references(self) -> list[str]:
        """The keys of the instances named in its affinity and anti-affinity."""
        sides = (self.affinity, self.anti_affinity)
        return [resolve(each, self.project) for side in sides if side is not None for each in side.instances]


class SliceSummary(ApiModel):
    """One of the instance's network slices, as MatrixLink last reported it."""

    name: str = Field(description="the slice")
    plane: Plane = Field(description="ub, rdma or vpc")
    state: str = Field(description="the slice's state")
    generation: int = Field(description="generation of the slice's spec")
    programmed: bool = Field(description="whether every member's agent has programmed its routes")
    floors_kept: bool = Field(description="whether the links still have the bandwidth that was promised")
    message: str = Field("", description="what differs from the spec")


class CancelledChange(ApiModel):
    """A change of an instance that was cancelled; the instance went back to its previous shape."""

    operation: str = Field(description="the operation that was cancelled")
    shape: InstanceShape = Field(description="the shape that the instance would have had")


class RecoveryTimes(ApiModel):
    """How long a recovery took, or has taken so far, by consecutive part (s, emulated)."""

    detect_s: float | None = Field(None, description="from the failure, as far as reports show, until it was declared")
    fence_s: float | None = Field(None, description="until the nodes were closed to new placements")
    tell_s: float | None = Field(None, description="until the workload there was asked to drain, where it can")
    drain_s: float | None = Field(None, description="until the workload had drained, or the deadline passed")
    replace_s: float | None = Field(None, description="until replacement nodes were allocated")
    boot_s: float | None = Field(None, description="until every member was deployed")
    serve_s: float | None = Field(None, description="until every route was programmed and the workload served again")
    total_s: float = Field(description="the sum of the parts")


class RungView(ApiModel):
    """A rung of the recovery ladder (`recovery_rules.yaml`) that was begun for a failed member."""

    node: str = Field(description="the member")
    rung: str = Field(description="restart, reset-npu, reboot, replace or degrade")
    at: str = Field(description="when it was begun, in emulated time")
    why: str = Field(description="the fault, or why the previous rung was not enough")


class Reliability(ApiModel):
    """What failures have cost an instance since it first became Active. Times are emulated seconds.

    `mttrS` is the mean time to recovery and `means` its parts. `ettr` is the effective training time ratio (0 to 1):
    the share of the time the instance should have been on in which every member served (arXiv 2410.21680; work lost
    since a checkpoint is not counted).
    """

    name: str = Field(description="name of the instance")
    project: str = Field(description="the project that owns the instance")
    since: str | None = Field(None, description="when it first became Active")
    recoveries: int = Field(0, description="how often it lost members and recovered")
    mttr_s: float | None = Field(None, description="mean time from failure to recovery; null: no recoveries yet")
    means: RecoveryTimes | None = Field(
        None, description="mean length of each part of a recovery; null: no recoveries yet"
    )
    down_s: float = Field(0.0, description="how long it was missing a member or waiting for nodes")
    ettr: float | None = Field(
        None,
        description="share of the time it should have been on in which every member served, 0 to 1; null: never Active",
    )


class InstanceView(ResourceView):
    """One instance: its spec and its status."""

    nodes: int = Field(description="number of members that it is to have, whole nodes")
    min_nodes: int | None = Field(None, description="fewest members with which it keeps running; null: all nodes")
    spares: int = Field(description="nodes to be kept booted and ready to replace a lost member")
    npus: int = Field(0, description="NPUs of all its members; 0 until nodes are reserved")
    placement: PlacementPolicy = Field(description="where its nodes may be placed")
    affinity: InstanceAffinity | None = Field(
        None, description="it is placed only in domains that all these instances use"
    )
    anti_affinity: InstanceAffinity | None = Field(
        None, description="it is placed in no domain that any of these instances uses"
    )
    priority: int = Field(0, description="instances with a higher priority may preempt this one")
    preemption: Literal["Never", "LowerPriority"] = Field(
        "Never", description="LowerPriority: it may preempt instances of lower priority when there is no room for it"
    )
    power: Power = Field("On", description="Off: its nodes are to be switched off but stay allocated")
    suspend: bool = Field(
        False,
        description="true: it is to release its nodes and slices, which also ends their peerings, but keep its spec",
    )
    lease_s: float | None = Field(
        None, description="length of its lease when its nodes are allocated (s, emulated); null: it has no lease"
    )
    network: Network = Field(description="its share of each plane")
    allocation: str = Field(description="its allocation at MatrixResource, which has its name")
    expires_at: str | None = Field(
        None, description="when its lease ends and it is deleted, in emulated time; null: no lease, or no nodes yet"
    )
    preempts: list[str] = Field(default_factory=empty_list, description="in a plan: the instances it would preempt")
    operation: str | None = Field(None, description="its latest operation, in progress or ended; null: none yet")
    observed_generation: int = Field(0, description="generation of the spec that was last carried out")
    ready_nodes: int = Field(
        0, description="members that are ready; 0 while its nodes are not deployed, or switched off"
    )
    members: list[MemberView] = Field(
        default_factory=empty_list, description="nodes of its allocation: members, spares and successors"
    )
    slices: list[SliceSummary] = Field(
        default_factory=empty_list, description="its network slices, as MatrixLink shows them"
    )
    repairs: int = Field(0, description="how often it was repaired; attempts after the first are not counted")
    last_recovery: RecoveryTimes | None = Field(None, description="how long its last recovery took, by part")
    cancelled: CancelledChange | None = Field(None, description="the last change, if it was cancelled")
    scaling_policy: str | None = Field(None, description="the scaling policy that sets its number of nodes")

    def request(self) -> InstanceRequest:
        """The request that would create the same instance."""
        return InstanceRequest.from_stored({field: getattr(self, field) for field in InstanceRequest.model_fields})


class DetectedFault(ResourceView):
    """A fault the control plane knows of, on any node, whether an instance holds it or not.

    `level` is MatrixResource's assessment. `action` is the consequence: None; NoNewWork (nothing new is placed there);
    Repair (the member is repaired in place, and replaced if that does not help); or Replace (another node takes the
    member's place, unless the safety stop holds). State Inactive: the fault is gone but still counts, by the rule
    named in `raisedBy`.
    """

    node: str = Field(description="the node it is on")
    component: str = Field(description="what is faulty, such as npu5, npu5-die1, l1p3 or node")
    code: str = Field(description="code that the agent reported; NodeLost: the agent is lost")
    level: str = Field(description="its seriousness, from NotHandle and SubHealth to Separate and ManuallySeparate")
    action: Literal["None", "NoNewWork", "Repair", "Replace"] = Field(
        description="what follows: None, NoNewWork, Repair in place, or Replace the node"
    )
    since: str = Field(
        description="since when it is present or, once over, when a rule raised it or it went, in emulated time"
    )
    message: str = Field("", description="details, as reported")
    raised_by: str | None = Field(
        None,
        description="rule that raised it above the level of its code: Frequency, Duration or Uplinks; null: none did",
    )
    instance: str | None = Field(None, description="the instance that holds the node; null: none")
