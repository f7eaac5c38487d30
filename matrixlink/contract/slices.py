"""Slices, programs, link reports, links and telemetry on the wire. Rates are GB/s (10^9 bytes per second) each way."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from matrixcommon.api.reports import Count, EachByItself
from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixlink.contract.peerings import SecurityRule, SecurityRules
from matrixlink.fabric.condition.fabric_view import FabricView, NodePorts, PlaneView
from matrixlink.model.protection import Protection
from matrixlink.model.qos import QosClass

__all__ = ["FabricView", "NodePorts", "PlaneView"]  # published here too: the workload's contract

Rate = Annotated[float, Field(ge=0, le=1e6)]
MEMBERS_MAX = 4096


class SliceRequest(ApiModel):
    """A share of one plane to be promised. `floor_gbps_per_npu` is guaranteed on every link the members need; between
    floor and ceiling the slice gets its share, by weight, of the capacity that is promised to nobody. The default
    weight is the class's."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {
            "allocation": "deepseek-r1",
            "instance": "deepseek-r1",
            "plane": "ub",
            "members": ["sn0-c00-n0"],
            "qosClass": "BestEffort",
            "weight": 2,
        },
    )

    project: str = Field("default", min_length=1, max_length=63)
    labels: dict[str, str] = Field(default_factory=empty_dict, max_length=64)
    allocation: str = Field(min_length=1, max_length=253)
    instance: str = Field(min_length=1, max_length=253)
    plane: Plane
    members: list[NodeName] = Field(min_length=1, max_length=MEMBERS_MAX)
    qos_class: QosClass
    floor_gbps_per_npu: Rate = 0.0
    ceiling_gbps_per_npu: Annotated[float, Field(gt=0, le=1e6)] | None = None
    weight: Annotated[float, Field(ge=0.001, le=1000)] | None = None
    latency_bound_us: Annotated[float, Field(gt=0)] | None = None
    protection: Protection = Protection.NONE
    security_rules: SecurityRules = Field(default_factory=empty_list)
    """Traffic that the members accept and send on the VPC plane, in addition to that within the slice."""

    REFERENCES: ClassVar = ("allocation", "instance", "security_rules")

    @property
    def references(self) -> list[str]:
        """Security rules are left out: they may name another project's slice as a remote."""
        return [self.allocation, self.instance]


class SliceView(ResourceView):
    """A slice: its spec, how much of it is kept now, and how far its routes are programmed."""

    allocation: str = Field(description="the allocation that its members belong to")
    instance: str = Field(description="the instance it serves")
    plane: Plane = Field(description="ub, rdma or vpc")
    members: list[str]
    qos_class: QosClass = Field(description="who yields first when capacity is short: BestEffort, then Burstable")
    floor_gbps_per_npu: float = Field(description="guaranteed on every link the members need, GB/s one way")
    floor_kept_gbps_per_npu: float = Field(description="how much of the floor is kept now")
    ceiling_gbps_per_npu: float | None = Field(None, description="upper limit")
    weight: float = Field(description="weight of its share in capacity promised to nobody")
    latency_bound_us: float | None = None
    protection: Protection = Protection.NONE
    protected: bool | None = None
    """Whether the floor would survive one more failure of that level; unset if no protection was requested."""
    security_rules: list[SecurityRule] = Field(default_factory=empty_list)
    isolation: str = Field(description="partitionKey on UB and RDMA, vni on VPC")
    isolation_key: int = Field(description="the key or VNI itself, unique to this slice")
    programmed: int = Field(0, description="members whose agents have acknowledged this generation")
    view_generation: int = 0


class BackupPath(ApiModel):
    """The paths left to the worst pair of members after `fails` has failed (empty: now): the sub-planes (RDMA:
    subnets), the number of disjoint paths, and the largest share of a floor that any one path carries. A `*` stands for
    any member or NPU."""

    fails: str = ""
    sub_planes: list[int]
    paths: int
    largest_share: float


class BackupPathsView(ResourceView):
    """A protected slice, and the paths it would use after each failure it is meant to survive. State: Protected or
    Unprotected."""

    plane: Plane
    protection: Protection
    protected: bool
    message: str = ""
    floor_gbps_per_npu: float
    now: BackupPath
    alternatives: list[BackupPath]


class StripeView(ApiModel):
    """`weight` of the traffic uses this sub-plane (RDMA: die port), divided over its paths by `spread`; an empty
    `spread` divides it evenly."""

    sub_plane: int
    weight: float
    spread: list[float] = Field(default_factory=empty_list)


class ProgramPeering(ApiModel):
    """An agent's part of one peering of its slice: the members on the other side, the key, and the routes to them."""

    name: str
    slice: str
    isolation_key: int
    peers: list[str]
    stripes: list[StripeView] = Field(default_factory=empty_list)
    detours: dict[str, list[StripeView]] = Field(default_factory=empty_dict)
    security_rules: list[SecurityRule] = Field(default_factory=empty_list)


class ProgramView(ResourceView):
    """What one node's agent is to program for one slice, named `<slice>.<node>`. `stripes` apply to all peers and dies
    except those in `detours` (`sn0-c01-n2`, `npu5-die1`, `sn0-c01-n2-npu5-die1`), which have routes of their own."""

    slice: str
    node: str
    plane: Plane
    instance: str
    action: Literal["program", "clear"]
    isolation: str
    isolation_key: int
    qos_class: QosClass
    weight: float
    floor_gbps: float
    ceiling_gbps: float | None = None
    peers: list[str] = Field(default_factory=empty_list)
    stripes: list[StripeView] = Field(default_factory=empty_list)
    detours: dict[str, list[StripeView]] = Field(default_factory=empty_dict)
    peerings: list[ProgramPeering] = Field(default_factory=empty_list)
    """Members of other slices that this node may reach, each peering with its own key and routes."""
    security_rules: list[SecurityRule] = Field(default_factory=empty_list)
    acknowledged_generation: int = 0
    message: str = ""


GENERATION_MAX = 2**31 - 2
"""The largest generation accepted: one less than the tables can hold, so that one more can follow."""


class ReportedProgram(ApiModel):
    """An agent's progress with one slice. `Programming`: it is still working on it."""

    slice: str = Field(max_length=253)
    generation: int = Field(ge=0, le=GENERATION_MAX)
    status: Literal["Programming", "Programmed", "Cleared", "Failed"]
    message: str = Field("", max_length=300)
    digest: str | None = Field(None, max_length=64)
    """Of the table as it was read back (`program_digest.digest`), once it is Programmed."""
    drifts: Count = 0
    """How often the table was found to differ from what had been written."""


class ReportedPort(ApiModel):
    """A port below its full rate, and the rate it still carries."""

    port: str = Field(max_length=40)
    gbps: Rate


class FailedProbe(ApiModel):
    """A probe, by its number in the plan, that achieved less than the rate of its path; `share` 0 means it was lost."""

    probe: int = Field(ge=0, lt=4096)
    share: float = Field(ge=0, lt=1)


class ReportedProbes(ApiModel):
    """One round of probes. The plan says what they were; only failures are reported, without those that crossed a
    port of this node that the report names anyway. `latency_us` is the mean over the probes that were answered, per
    plane."""

    round: Count
    sent: int = Field(ge=0, le=4096)
    failed: list[FailedProbe] = Field(default_factory=empty_list, max_length=4096)
    latency_us: dict[Plane, Annotated[float, Field(ge=0)]] = Field(default_factory=empty_dict)


Megabytes = Count


class ReportedCounters(ApiModel):
    """Port counters as of emulated second `at`: 10^6 bytes since the node started, in the order of the probe plan's
    paths (UB uplinks by sub-plane and L2 chip, RDMA ports, the card). `dropped` only names ports that have dropped
    something; `slices` has bytes sent, received and dropped for each slice."""

    at: float
    sent: list[Megabytes] = Field(max_length=4096)
    received: list[Megabytes] = Field(max_length=4096)
    dropped: dict[int, Megabytes] = Field(default_factory=empty_dict, max_length=4096)
    slices: dict[str, tuple[Megabytes, Megabytes, Megabytes]] = Field(default_factory=empty_dict, max_length=1024)


class LinkReport(ApiModel):
    """A link agent's report on its node: every slice it holds, only ports below full rate, and failed probes. `epoch`
    counts the agent's restarts and `sequence` its reports since the last one; a report older than the newest is
    refused."""

    node: NodeName
    epoch: Count
    sequence: Count
    lease_seconds: float = Field(gt=0, le=86_400)
    programs: list[ReportedProgram] = Field(default_factory=empty_list, max_length=1024)
    ports: list[ReportedPort] = Field(default_factory=empty_list, max_length=1024)
    probes: ReportedProbes | None = None
    counters: ReportedCounters | None = None


class LinkReports(ApiModel):
    """A batch of reports: the agents of a fleet share one connection."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"reports": [{"node": "sn0-c00-n0", "epoch": 1_099_511_627_776, "sequence": 1, "leaseSeconds": 30}]},
    )

    reports: list[Annotated[LinkReport, EachByItself]] = Field(max_length=4096)


class DesiredProgram(ApiModel):
    """One slice that an agent is to program or to clear. `program` is included when the agent does not hold this
    generation, or has to write it `again` because what it read back differs."""

    slice: str
    generation: int
    plane: Plane | None = None
    action: Literal["program", "clear"]
    program: ProgramView | None = None
    again: bool = False


class LinkReportAnswer(ApiModel):
    """Whether the report was accepted, and everything the node should hold: a lost watch event does no lasting harm."""

    node: str
    accepted: bool
    reason: str | None = None
    message: str = ""
    desired: list[DesiredProgram] = Field(default_factory=empty_list)


class LinkReportAnswers(ApiModel):
    answers: list[LinkReportAnswer]


class LinkView(ResourceView):
    """One link now. `gbps` is its presumed rate, and `reason` why that is below what it was built for: PortDown and
    LanesLost come from the port itself, ProbeLost and ProbeSlow from probes, Damped means it flapped and is held down
    until `damped_until`. `floors_gbps` is what slices have been promised on it."""

    plane: Plane
    kind: str
    node: str | None = None
    sub_plane: int | None = None
    ends: list[str]
    built_gbps: float
    gbps: float
    floors_gbps: float = 0.0
    drained: bool = False
    """Out of use: no new route uses it."""
    reason: str = ""
    lanes: str | None = None
    damped_until: str | None = None


class EventView(ResourceView):
    """Something that happened to a link, switch or slice (`about`), described for people."""

    about: str
    project: str | None = None  # type: ignore[assignment]  # hardware belongs to no project
    at: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class SwitchView(ResourceView):
    """One switch chip; `ports_down` counts the reported ports leading to it that carry nothing."""

    plane: Plane
    kind: str
    cabinet: str | None = None
    node: str | None = None
    sub_plane: int | None = None
    ports: int
    ports_down: int = 0
    ports_degraded: int = 0


class PlaneSummary(ResourceView):
    """One plane across all supernodes: rates per node and endpoint, latency, and current losses."""

    sub_planes: int
    uplink_gbps: float
    endpoint_gbps: float
    npu_gbps: float
    latency_us: float
    switches_between_nodes: int
    qos_mechanism: str
    links: int
    links_down: int
    links_degraded: int
    slices: int


class QosClassView(ResourceView):
    """One class: its default weight, whether it has floors, and its rank when someone has to yield."""

    weight: float
    floor: Literal["required", "optional", "none"]
    rank: int
    sentence: str


class ProbeRound(ApiModel):
    """One round of probes, as far as reports on it have arrived."""

    round: int
    nodes: int
    sent: int
    failed: int


class SuspicionView(ApiModel):
    """A possible explanation of `witnesses` failed probes in the newest round: any of `parts`, at `share` of its rate.
    A single candidate in two rounds is a finding."""

    parts: list[str]
    candidates: int
    share: float
    witnesses: int


class ProbesView(ApiModel):
    """Results of the probes: rounds, newest first, what the newest points at, and the parts found `at_fault`, each with
    the share of its rate that it carries. A silent fault is found within `detected_within_s` emulated seconds."""

    detected_within_s: float
    rounds: list[ProbeRound]
    suspicions: list[SuspicionView]
    at_fault: dict[str, float]


class LinkMatrixView(ApiModel):
    """One plane of one supernode as a matrix of nodes by ports. Column j is port `ports[j]` of every node; where the
    wiring is regular it leads to `switches[j]` (on the first node it always does), which is in cabinet
    `switch_cabinets[j]`. `states` has one letter per port for each node: u up, d degraded, x down, o out of use
    (drained). `utilisation` is the busier direction in percent of what the port carries now; empty for nodes without
    known counters."""

    plane: Plane
    supernode: str
    nodes: list[str]
    cabinets: list[str]
    ports: list[str]
    sub_planes: list[int]
    switches: list[str]
    switch_cabinets: list[str]
    states: list[str]
    utilisation: list[list[int]]


class TelemetryView(ApiModel):
    """Traffic over one object: a link (both directions of a node's port), switch, node's plane, plane, slice, or
    project's plane. `capacity_gbps` is what it carries each way now (for a slice, what its members may use),
    `utilisation` the busier direction's share of that, `headroom_gbps` what is promised to nobody. `latency_us` is
    one-way, from probes; `dropped_gbps` is what was sent into ports that carried nothing."""

    name: str
    by: str
    plane: Plane | None = None
    project: str | None = None
    sent_gbps: float
    received_gbps: float
    dropped_gbps: float
    capacity_gbps: float
    utilisation: float | None = None
    floors_gbps: float = 0.0
    headroom_gbps: float
    latency_us: float | None = None
    sampled_at: str | None = None
