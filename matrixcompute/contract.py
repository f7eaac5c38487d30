"""What MatrixCompute is asked and what it shows: instances, their shape, and the operations on them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_key import resolve
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixresource.contract.allocations import Affinity, MemberView, PlacementPolicy
from matrixresource.contract.fields import MEMBERS_MAX
from matrixresource.contract.nodes import Power

NOT_SERVING = "NotServing"
"""The reason of the condition Ready of an instance that is Active and has lost what it needs to serve."""


class PlaneShare(ApiModel):
    """What an instance is promised of one plane. Rates are GB/s one way for each NPU."""

    qos_class: Literal["Guaranteed", "Burstable", "BestEffort"] = Field(
        "Burstable", description="who yields first when links are short: BestEffort, then Burstable"
    )
    floor_gbps_per_npu: float = Field(0.0, ge=0, le=1e6, description="promised on every link the members need")
    ceiling_gbps_per_npu: float | None = Field(None, gt=0, le=1e6, description="never more than this")

    @model_validator(mode="after")
    def _ordered(self) -> PlaneShare:
        ceiling = self.ceiling_gbps_per_npu
        if ceiling is not None and ceiling < self.floor_gbps_per_npu:
            raise ValueError("ceilingGbpsPerNpu is below floorGbpsPerNpu")
        if self.qos_class == "BestEffort" and self.floor_gbps_per_npu:
            raise ValueError("BestEffort promises nothing: leave floorGbpsPerNpu out, or ask for Burstable")
        return self


class Network(ApiModel):
    """The instance's share of each of the three planes; every instance has a slice on each."""

    ub: PlaneShare = Field(
        PlaneShare(qos_class="Burstable", floor_gbps_per_npu=40.0), description="scale-up: NPUs and CPUs of a supernode"
    )
    rdma: PlaneShare = Field(
        PlaneShare(qos_class="Burstable", floor_gbps_per_npu=5.0),
        description="scale-out: KV transfer, other supernodes",
    )
    vpc: PlaneShare = Field(
        PlaneShare(qos_class="BestEffort"), description="the data centre's network: control, storage, tenants"
    )

    def share(self, plane: Plane) -> PlaneShare:
        return {Plane.UB: self.ub, Plane.RDMA: self.rdma, Plane.VPC: self.vpc}[plane]


class InstanceAffinity(ApiModel):
    """Toward other instances: only in domains that all of them use, or in none that any of them uses."""

    instances: list[Annotated[str, Field(min_length=1, max_length=57)]] = Field(
        min_length=1, max_length=64, description="the instances that are meant"
    )
    level: Literal["node", "cabinet", "supernode"] = Field("cabinet", description="the domain that is shared or not")
    required: bool = Field(True, description="refuse rather than compromise")

    def affinity(self) -> Affinity:
        """The same in MatrixResource's words: an instance's allocation bears its name."""
        return Affinity(allocations=list(self.instances), level=self.level, required=self.required)


class InstanceShape(ApiModel):
    """A logical supernode: whole nodes composed into one, with spares and a share of the three planes.

    The spec of a CloudMatrixInstance is printed from this class.
    """

    project: str = Field("default", min_length=1, max_length=63, description="whose instance it is; cannot be changed")
    nodes: int = Field(ge=1, le=MEMBERS_MAX, description="whole nodes, eight NPUs each; what `kubectl scale` sets")
    min_nodes: int | None = Field(
        None,
        ge=1,
        le=MEMBERS_MAX,
        description="the floor: it continues with so many while there is no node for a lost one; by default all",
    )
    spares: int = Field(0, ge=0, le=48, description="nodes held ready beside them to step in for a lost one")
    placement: PlacementPolicy = Field(
        PlacementPolicy(), description="how the nodes may lie; changed, the instance moves"
    )
    affinity: InstanceAffinity | None = Field(
        None, description="lies only where all of these instances lie; changed, the instance moves"
    )
    anti_affinity: InstanceAffinity | None = Field(
        None, description="lies nowhere where any of these instances lies; changed, the instance moves"
    )
    priority: int = Field(0, ge=-1_000_000_000, le=1_000_000_000, description="who of higher priority may put it out")
    preemption: Literal["Never", "LowerPriority"] = Field(
        "Never", description="whether it may preempt instances of lower priority when it comes and there is no room"
    )
    power: Power = Field("On", description="Off: its nodes are switched off and kept; `:stop` and `:start` set it")
    suspend: bool = Field(
        False, description="its nodes and slices are given back, and it is had again as it is specified once this ends"
    )
    lease_s: float | None = Field(
        None, gt=0, le=1e9, description="deleted this many seconds after it got its nodes, unless renewed"
    )
    network: Network = Field(Network(), description="the share of each plane")

    @field_validator("min_nodes")
    @classmethod
    def _within_nodes(cls, min_nodes: int | None, given: ValidationInfo) -> int | None:
        nodes = given.data.get("nodes")
        if min_nodes is not None and nodes is not None and min_nodes > nodes:
            raise ValueError(f"it is to be between 1 and nodes, {nodes}")
        return min_nodes

    @property
    def floor(self) -> int:
        """With how many members it continues."""
        return self.nodes if self.min_nodes is None else self.min_nodes


class InstanceRequest(InstanceShape):
    """A shape, with the labels that an instance bears."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"nodes": 3, "spares": 1, "labels": {"team": "search"}},)

    labels: dict[str, str] = Field(default_factory=empty_dict)

    @property
    def references(self) -> list[str]:
        """The instances that it is to lie near to or apart from."""
        sides = (self.affinity, self.anti_affinity)
        return [resolve(each, self.project) for side in sides if side is not None for each in side.instances]


class SliceSummary(ApiModel):
    """One of the instance's network slices, as MatrixLink last showed it."""

    name: str = Field(description="the slice")
    plane: Plane = Field(description="ub, rdma or vpc")
    state: str = Field(description="the slice's state")
    generation: int = Field(description="of the slice's spec")
    programmed: bool = Field(description="whether every member's agent holds its routes")
    floors_kept: bool = Field(description="whether links have what was promised")
    message: str = Field("", description="what is not as it was asked for")


class CancelledChange(ApiModel):
    """A change of an instance that somebody cancelled: the instance went back to what it was."""

    operation: str = Field(description="the operation that was cancelled")
    shape: InstanceShape = Field(description="what it would have made of the instance")


class RecoveryTimes(ApiModel):
    """How long a recovery took, or is at so far, in parts that follow one another (s, emulated)."""

    detect_s: float | None = Field(None, description="from the failure, as far as reports tell, until it was declared")
    fence_s: float | None = Field(None, description="until the nodes were kept from newcomers")
    tell_s: float | None = Field(None, description="until what serves there was asked to drain, where it can")
    drain_s: float | None = Field(None, description="until nothing ran there any more, or the deadline")
    replace_s: float | None = Field(None, description="until other nodes were taken in their places")
    boot_s: float | None = Field(None, description="until every member had been deployed")
    serve_s: float | None = Field(None, description="until every route was programmed and what runs there served again")
    total_s: float = Field(description="the sum of these")


class RungView(ApiModel):
    """A rung of the ladder that was begun for a member that failed (`recovery_rules.yaml`)."""

    node: str
    rung: str = Field(description="restart, reset-npu, reboot, replace or degrade")
    at: str
    why: str = Field(description="the fault, or why the rung before was not enough")


class Reliability(ApiModel):
    """What failures have cost an instance since it was Active first. Times are emulated seconds.

    `mttrS` is the mean time to recovery, `means` its parts; `ettr` the effective training time ratio (0 to 1): of the
    time in which it was to be on, the share in which every member served (arXiv 2410.21680; work lost since a
    checkpoint is not in it).
    """

    name: str
    project: str
    since: str | None = Field(None, description="when it was Active first")
    recoveries: int = Field(0, description="how often it lost members and had them replaced")
    mttr_s: float | None = None
    means: RecoveryTimes | None = None
    down_s: float = Field(0.0, description="how long it lacked a member or waited for nodes")
    ettr: float | None = None


class InstanceView(ResourceView):
    """One instance: its spec, and what has become of it."""

    nodes: int
    min_nodes: int | None = None
    spares: int
    npus: int = Field(0, description="NPUs that its members have; none before nodes are reserved")
    placement: PlacementPolicy
    affinity: InstanceAffinity | None = None
    anti_affinity: InstanceAffinity | None = None
    priority: int = 0
    preemption: Literal["Never", "LowerPriority"] = "Never"
    power: Power = "On"
    suspend: bool = False
    lease_s: float | None = None
    network: Network
    allocation: str
    expires_at: str | None = None
    preempts: list[str] = Field(default_factory=empty_list, description="in a plan: whom it would preempt")
    operation: str | None = None
    observed_generation: int = 0
    ready_nodes: int = 0
    members: list[MemberView] = Field(default_factory=empty_list)
    slices: list[SliceSummary] = Field(default_factory=empty_list)
    repairs: int = 0
    last_recovery: RecoveryTimes | None = Field(None, description="how long its last recovery took, in parts")
    cancelled: CancelledChange | None = Field(None, description="the last change, where it was cancelled")
    scaling_policy: str | None = Field(None, description="the scaling policy that says how many nodes it has")

    def request(self) -> InstanceRequest:
        """The spec it shows, as it would be asked for again."""
        return InstanceRequest.from_stored({field: getattr(self, field) for field in InstanceRequest.model_fields})


class EventView(ResourceView):
    """Something that happened to an instance, in words a person can follow."""

    instance: str
    at: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    etag: str = ""


class DetectedFault(ResourceView):
    """A fault the control plane knows of, on a node that an instance holds or anybody or nobody.

    `level` is what MatrixResource judges it to be; `action` what follows: None, NoNewWork (nothing is placed there), or
    Replace (the instance's member gives its place to another node, unless the safety stop holds). Inactive is what is
    gone and still counts, by the rule that `raisedBy` names. Repair is Replace that begins where the member stands.
    """

    node: str
    component: str
    code: str
    level: str
    action: Literal["None", "NoNewWork", "Repair", "Replace"]
    since: str
    message: str = ""
    raised_by: str | None = None
    instance: str | None = None
