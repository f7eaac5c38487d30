"""What MatrixLink takes and shows on the wire. Rates are GB/s (10^9 bytes per second) each way."""

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
    """A spec for a share of one plane. `floor_gbps_per_npu` is promised on every link the members need; between floor
    and ceiling a slice gets its part, by weight, of what nobody was promised. Weight defaults to the class's."""

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
    """What the members let in and out on the VPC plane, beyond the slice itself."""

    REFERENCES: ClassVar = ("allocation", "instance", "security_rules")

    @property
    def references(self) -> list[str]:
        """A rule may name another project's slice: it lets in or out what is there."""
        return [self.allocation, self.instance]


class SliceView(ResourceView):
    """A slice: what was asked, what of it is kept now, and how far its routes are."""

    allocation: str = Field(description="the allocation whose nodes are its members")
    instance: str = Field(description="the instance that it belongs to")
    plane: Plane = Field(description="ub, rdma or vpc")
    members: list[str]
    qos_class: QosClass = Field(description="who yields first when links are short: BestEffort, then Burstable")
    floor_gbps_per_npu: float = Field(description="promised on every link the members need, GB/s one way")
    floor_kept_gbps_per_npu: float = Field(description="what of the floor there is now")
    ceiling_gbps_per_npu: float | None = Field(None, description="never more than this")
    weight: float = Field(description="its part of what nobody was promised")
    latency_bound_us: float | None = None
    protection: Protection = Protection.NONE
    protected: bool | None = None
    """Whether the floor would survive one more failure of that level; unset where none was asked."""
    security_rules: list[SecurityRule] = Field(default_factory=empty_list)
    isolation: str = Field(description="partitionKey on UB and RDMA, vni on VPC")
    isolation_key: int = Field(description="the number of that kind that keeps it apart from others")
    programmed: int = Field(0, description="members whose agents have acknowledged this generation")
    view_generation: int = 0


class BackupPath(ApiModel):
    """What is left to the worst pair of members once `fails` has (empty: now): the sub-planes (RDMA: subnets), the
    disjoint paths, and the largest part of a floor that any one path carries. A `*` stands for any member or NPU."""

    fails: str = ""
    sub_planes: list[int]
    paths: int
    largest_share: float


class BackupPathsView(ResourceView):
    """A protected slice, and over what it would go after each failure it is to survive. Protected, or Unprotected."""

    plane: Plane
    protection: Protection
    protected: bool
    message: str = ""
    floor_gbps_per_npu: float
    now: BackupPath
    alternatives: list[BackupPath]


class StripeView(ApiModel):
    """`weight` of the traffic goes over this sub-plane (RDMA: die port), spread over its paths; empty: evenly."""

    sub_plane: int
    weight: float
    spread: list[float] = Field(default_factory=empty_list)


class ProgramPeering(ApiModel):
    """What an agent holds of one peering of its slice: the other side's members, the key and the routes to them."""

    name: str
    slice: str
    isolation_key: int
    peers: list[str]
    stripes: list[StripeView] = Field(default_factory=empty_list)
    detours: dict[str, list[StripeView]] = Field(default_factory=empty_dict)
    security_rules: list[SecurityRule] = Field(default_factory=empty_list)


class ProgramView(ResourceView):
    """What one node's agent is asked to hold of one slice. Its name is `<slice>.<node>`. `stripes` serve peers and
    dies in order, `detours` those (`sn0-c01-n2`, `npu5-die1`, `sn0-c01-n2-npu5-die1`) that are not."""

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
    """Members of other slices that this node reaches too, each peering with its own key and routes."""
    security_rules: list[SecurityRule] = Field(default_factory=empty_list)
    acknowledged_generation: int = 0
    message: str = ""


GENERATION_MAX = 2**31 - 2
"""The newest that tables keep, and one more to come after it."""


class ReportedProgram(ApiModel):
    """How an agent stands with one slice. `Programming` says that it is at work on it."""

    slice: str = Field(max_length=253)
    generation: int = Field(ge=0, le=GENERATION_MAX)
    status: Literal["Programming", "Programmed", "Cleared", "Failed"]
    message: str = Field("", max_length=300)
    digest: str | None = Field(None, max_length=64)
    """Of the table as it was read back (`program_digest.digest`), when it is Programmed."""
    drifts: Count = 0
    """How often the table was found otherwise than it was written."""


class ReportedPort(ApiModel):
    """A port below its full rate, and what it still carries."""

    port: str = Field(max_length=40)
    gbps: Rate


class FailedProbe(ApiModel):
    """A probe, by its number in the plan, that came through at less than its path's rate; `share` 0 is a lost one."""

    probe: int = Field(ge=0, lt=4096)
    share: float = Field(ge=0, lt=1)


class ReportedProbes(ApiModel):
    """A round of probes. Which they were is the plan's; only those that went wrong are reported, unless they crossed a
    port of the node's own that the report names. `latency_us` is the mean of those that were answered, plane by
    plane."""

    round: Count
    sent: int = Field(ge=0, le=4096)
    failed: list[FailedProbe] = Field(default_factory=empty_list, max_length=4096)
    latency_us: dict[Plane, Annotated[float, Field(ge=0)]] = Field(default_factory=empty_dict)


Megabytes = Count


class ReportedCounters(ApiModel):
    """The ports' counters `at` that emulated second: 10^6 bytes since the node began, in the order of the probe plan's
    paths (UB uplinks by sub-plane and L2 chip, RDMA ports, the card). `dropped` names only ports that ever dropped;
    `slices` has sent, received and dropped of each."""

    at: float
    sent: list[Megabytes] = Field(max_length=4096)
    received: list[Megabytes] = Field(max_length=4096)
    dropped: dict[int, Megabytes] = Field(default_factory=empty_dict, max_length=4096)
    slices: dict[str, tuple[Megabytes, Megabytes, Megabytes]] = Field(default_factory=empty_dict, max_length=1024)


class LinkReport(ApiModel):
    """All that a link agent says of its node: every slice it holds, only the ports below full rate, and the probes that
    went wrong. `epoch` counts the agent's lives and `sequence` its reports in this one; an older report is refused."""

    node: NodeName
    epoch: Count
    sequence: Count
    lease_seconds: float = Field(gt=0, le=86_400)
    programs: list[ReportedProgram] = Field(default_factory=empty_list, max_length=1024)
    ports: list[ReportedPort] = Field(default_factory=empty_list, max_length=1024)
    probes: ReportedProbes | None = None
    counters: ReportedCounters | None = None


class LinkReports(ApiModel):
    """A batch: a fleet of agents shares one connection."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"reports": [{"node": "sn0-c00-n0", "epoch": 1_099_511_627_776, "sequence": 1, "leaseSeconds": 30}]},
    )

    reports: list[Annotated[LinkReport, EachByItself]] = Field(max_length=4096)


class DesiredProgram(ApiModel):
    """One slice an agent is to hold or to clear. `program` is there when the agent does not hold this generation, or is
    to write it `again` because what it read back is not what is requested."""

    slice: str
    generation: int
    plane: Plane | None = None
    action: Literal["program", "clear"]
    program: ProgramView | None = None
    again: bool = False


class LinkReportAnswer(ApiModel):
    """Whether a report was taken, and all that is requested of the node, so that a lost watch event heals here."""

    node: str
    accepted: bool
    reason: str | None = None
    message: str = ""
    desired: list[DesiredProgram] = Field(default_factory=empty_list)


class LinkReportAnswers(ApiModel):
    answers: list[LinkReportAnswer]


class LinkView(ResourceView):
    """One link as it is now. `gbps` is what is believed of it and `reason` why that is less than it was built for:
    PortDown and LanesLost are the port's own word, ProbeLost and ProbeSlow are what probes found, Damped says that it
    goes down too often and is held down until `damped_until`. `floors_gbps` is what slices have been promised on it."""

    plane: Plane
    kind: str
    node: str | None = None
    sub_plane: int | None = None
    ends: list[str]
    built_gbps: float
    gbps: float
    floors_gbps: float = 0.0
    drained: bool = False
    """Taken out of use: no new route goes over it."""
    reason: str = ""
    lanes: str | None = None
    damped_until: str | None = None


class EventView(ResourceView):
    """Something that happened to a link, a switch or a slice (`about`), in words a person can follow."""

    about: str
    project: str | None = None  # type: ignore[assignment]  # what is physical is nobody's
    at: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class SwitchView(ResourceView):
    """One switch chip; `ports_down` counts reported ports that lead to it and carry nothing."""

    plane: Plane
    kind: str
    cabinet: str | None = None
    node: str | None = None
    sub_plane: int | None = None
    ports: int
    ports_down: int = 0
    ports_degraded: int = 0


class PlaneSummary(ResourceView):
    """One plane of all supernodes: rates per node and endpoint, latency, and what is lost at the moment."""

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
    """One class: its weight by default, what it says of floors, who yields."""

    weight: float
    floor: Literal["required", "optional", "none"]
    rank: int
    sentence: str


class ProbeRound(ApiModel):
    """A round of probes, as far as it was heard."""

    round: int
    nodes: int
    sent: int
    failed: int


class SuspicionView(ApiModel):
    """What would explain `witnesses` failed probes of the newest round: any of `parts`, at that `share` of its rate.
    One candidate, seen in two rounds, is a finding."""

    parts: list[str]
    candidates: int
    share: float
    witnesses: int


class ProbesView(ApiModel):
    """What probes say: rounds newest first, what the newest one points at, and the parts found `at_fault`, each with
    the share of its rate that it carries. A silent fault is found within `detected_within_s` emulated seconds."""

    detected_within_s: float
    rounds: list[ProbeRound]
    suspicions: list[SuspicionView]
    at_fault: dict[str, float]


class LinkMatrixView(ApiModel):
    """A plane of one supernode, nodes by ports. Column j is the port `ports[j]` of every node; where the wiring is
    regular it leads to `switches[j]` (for the first node it does), which stands in `switch_cabinets[j]`. `states` has a
    letter for each port of each node: u up, d degraded, x down, o out of use (drained). `utilisation` is in percent of
    what the port carries now, the busier direction's; empty for nodes whose counters are not known.
    """

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
    """What moves over one thing: a link (both directions of a node's port), switch, node's plane, plane, slice, or a
    project's plane. `capacity_gbps` is what it carries each way now (of a slice, what its members may use), utilisation
    the busier direction's part of it, `headroom_gbps` what is not promised to anybody. `latency_us` is what probes took
    one way, `dropped_gbps` what was sent into ports that carried nothing."""

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
