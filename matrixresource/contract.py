"""What MatrixResource is asked and what it shows: the wire shapes of nodes, NPUs, allocations and agent reports."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, model_validator

from matrixresource.vocabulary.names import NodeName
from matrixresource.vocabulary.wire import View, Wire

MEMBERS_MAX = 48 * 1024
"""No request for more nodes than this is meaningful; it bounds what one request can make us compute."""

PortName = Annotated[str, Field(max_length=40)]
PartName = Annotated[str, Field(max_length=80)]


def _as_written(count: float) -> int | float:
    return int(count) if count == int(count) else count


NpuCount = Annotated[float, PlainSerializer(_as_written, return_type=int | float)]
"""NPUs with single dies as halves: 8, 0.5."""

Count = Annotated[int, Field(ge=0, le=MEMBERS_MAX)]


class Block(Wire):
    """Members in each domain of `level` come in multiples of `nodes`, ranks in order inside them: a logical
    supernode."""

    nodes: int = Field(ge=1, le=MEMBERS_MAX, description="nodes of one block")
    level: Literal["cabinet", "supernode"] = Field("supernode", description="the domain whose edge cuts no block")


class Placement(Wire):
    """How members may lie. `pack` takes as few domains of `level` as it can, `spread` as many.

    `required` makes it a condition: packed into one domain, or spread evenly over all of them, with at most
    `maxPerDomain` members in one where that is given. Members stay inside one supernode, where UB ends, unless the
    level is `supernode` and the policy leaves it open: preferred packing, or spreading.
    """

    policy: Literal["pack", "spread"] = Field("pack", description="into as few domains as possible, or over as many")
    level: Literal["node", "cabinet", "supernode"] = Field("cabinet", description="the domain that is meant")
    required: bool = Field(False, description="refuse rather than compromise")
    max_per_domain: int | None = Field(None, ge=1, le=MEMBERS_MAX, description="for spread: members in one domain")
    blocks: list[Block] = Field(
        default_factory=list,
        max_length=2,
        description="nested block sizes, such as 2 in a cabinet and 8 in a supernode",
    )

    @model_validator(mode="after")
    def _sensible(self) -> Placement:
        if self.max_per_domain is not None and self.policy != "spread":
            raise ValueError("maxPerDomain goes with policy spread")
        levels = [block.level for block in self.blocks]
        if len(set(levels)) != len(levels):
            raise ValueError("blocks: one size for each level")
        return self


class Affinity(Wire):
    """Toward other allocations: only in domains that all of them use, or in none that any of them uses."""

    allocations: list[str] = Field(min_length=1, max_length=64)
    level: Literal["node", "cabinet", "supernode"] = Field("cabinet", description="the domain that is shared or not")
    required: bool = Field(True, description="refuse rather than compromise")


class AllocationRequest(Wire):
    """What one owner wishes to hold, all of it or nothing.

    Either `nodes` (with `npusPerNode` of each, all eight unless said) or `npus` (up to eight lie on one node, 0.5 is a
    die; more are given as equal parts of nodes, whole ones where it comes out even), or neither and `cpus` or
    `memoryGib` alone, which are pooled from any nodes whoever holds the NPUs there.
    """

    project: str = Field("default", min_length=1, max_length=63)
    labels: dict[str, str] = Field(default_factory=dict)
    nodes: Annotated[int | None, Field(ge=1, le=MEMBERS_MAX)] = None
    npus: Annotated[float | None, Field(ge=0.5, le=MEMBERS_MAX * 8, multiple_of=0.5)] = None
    npus_per_node: Annotated[float | None, Field(ge=0.5, le=8, multiple_of=0.5)] = None
    cpus: Annotated[int, Field(ge=0, le=MEMBERS_MAX * 4)] = 0
    memory_gib: Annotated[int, Field(ge=0, le=1 << 30)] = 0
    spares: Annotated[int, Field(ge=0, le=48)] = 0
    placement: Placement = Placement()
    near: Affinity | None = None
    apart: Affinity | None = None
    priority: Annotated[int, Field(ge=-1_000_000_000, le=1_000_000_000)] = 0
    preemption: Literal["Never", "LowerPriority"] = Field("Never", description="whether it may put others out")
    lease_s: Annotated[float | None, Field(gt=0, le=1e9, description="released after this long unless renewed")] = None
    reservation: str | None = Field(None, max_length=63, description="take it from this reservation")
    topology_version: str = Field("", max_length=200, description="refused when the topology is another by now")
    exclude_nodes: list[NodeName] = Field(default_factory=list, max_length=1024)

    def kept(self) -> dict[str, Any]:
        """The wish without what is no part of it: labels, what was to be avoided then, the version it was made on."""
        return self.model_copy(update={"labels": {}, "exclude_nodes": [], "topology_version": ""}).wire()

    @model_validator(mode="after")
    def _one_size(self) -> AllocationRequest:
        if self.nodes is not None and self.npus is not None:
            raise ValueError("give either nodes or npus")
        if self.nodes is None and self.npus is None:
            if not self.cpus and not self.memory_gib:
                raise ValueError("give nodes or npus, or cpus or memoryGib alone")
            if self.npus_per_node is not None or self.spares:
                raise ValueError("npusPerNode and spares go with nodes or npus")
        return self


class QuotaRequest(Wire):
    """How much a project may hold at once; what is not given has no limit. Spares count, eight NPUs each."""

    npus: Annotated[float | None, Field(ge=0, le=MEMBERS_MAX * 8, multiple_of=0.5)] = None
    cpus: Annotated[int | None, Field(ge=0)] = None
    memory_gib: Annotated[int | None, Field(ge=0)] = None


class QuotaView(View):
    """A project's limits and what it holds."""

    npus: NpuCount | None = None
    cpus: int | None = None
    memory_gib: int | None = None
    used_npus: NpuCount = 0
    used_cpus: float = 0
    used_memory_gib: float = 0


class RenewRequest(Wire):
    """How long the lease holds from now on."""

    lease_s: float = Field(gt=0, le=1e9)


class ReplaceRequest(Wire):
    """Which member to replace, and why (kept in the member's history)."""

    node: NodeName
    reason: str = Field("Requested", max_length=200)


class MemberView(Wire):
    """One node of an allocation, or its part of one. `state` is the node's; `ready` says its agent has reported what is
    wished of it.

    A successor is deployed beside the member whose rank it will take over, while an allocation moves. `dies` are those
    of a part of a node (NPU k has dies 2k and 2k+1), `pool` members give sockets and memory only.
    """

    node: str
    cabinet: str
    role: Literal["member", "spare", "successor", "pool"]
    rank: int | None = None
    state: str
    agent: str
    health: str
    ready: bool
    npus: NpuCount | None = None
    dies: list[int] | None = None
    cpus: int | None = None
    memory_gib: int | None = None


class AllocationView(View):
    """What one owner holds. `nodes` counts members, `npus` the NPUs they hold."""

    nodes: int
    npus: NpuCount
    npus_per_node: NpuCount | None = None
    cpus: int | None = None
    memory_gib: int | None = None
    spares: int
    placement: Placement
    near: Affinity | None = None
    apart: Affinity | None = None
    priority: int = 0
    preemption: str = "Never"
    expires_at: str | None = None
    topology_version: str
    bound: bool
    members: list[MemberView] = Field(default_factory=list)
    preempts: list[str] = Field(default_factory=list)


class FaultView(Wire):
    """A fault as an agent reported it, with the level the control plane gives it.

    `raisedBy` names the rule (`Frequency`, `Duration`, `Uplinks`) where that is above the level of the code itself;
    such a fault may be gone (`active` false) and still keep work away.
    """

    code: str
    component: str
    level: str
    since: str
    message: str = ""
    active: bool = True
    raised_by: Literal["Frequency", "Duration", "Uplinks"] | None = None


class NodeView(View):
    """One node: its state, and beside it, never folded in, what else is true of it."""

    supernode: str
    cabinet: str
    npus: int
    cpus: int
    schedulable: bool
    unschedulable_reason: str | None = None
    power: str
    health: str
    agent: str
    epoch: int
    allocation: str | None = None
    role: str | None = None
    shared_by: int = 0
    usable_npus: int = 0
    wanted: str
    assignment_generation: int
    observed_generation: int
    stage: str | None = None
    faults: list[FaultView] = Field(default_factory=list)


class DieView(Wire):
    """One die by its number in the node: its health, the worst level on it, whether new work may be placed on it."""

    die: int
    health: str
    level: str | None = None
    schedulable: bool = True


class NpuView(Wire):
    """One NPU package and its two dies; its health and level are the worst of what it and they have."""

    name: str
    node: str
    cabinet: str
    health: str
    level: str | None = None
    dies: list[DieView] = Field(default_factory=list)
    allocation: str | None = None
    faults: list[FaultView] = Field(default_factory=list)
    etag: str = ""


DieNumber = Annotated[int, Field(ge=0, le=15)]


class PartWish(Wire):
    """A part of a node for one allocation: dies by number (2k and 2k+1 are NPU k; none for a pool), sockets, GiB."""

    allocation: str = Field(max_length=63)
    rank: int | None = None
    dies: list[DieNumber] = Field(default_factory=list, max_length=16)
    cpus: int = Field(0, ge=0)
    memory_gib: int = Field(0, ge=0)


class AssignmentView(View):
    """What is wished of one node: Clean, Spare or Member of an allocation, and parts of it for several.

    Its generation fences older wishes; any change of the whole or of a part is a new one.
    """

    wanted: Literal["Clean", "Spare", "Member"]
    allocation: str | None = None
    rank: int | None = None
    parts: list[PartWish] = Field(default_factory=list)


class SupernodeView(View):
    """One supernode and the version of its topology."""

    topology_version: str
    cabinets: int
    nodes: int
    npus: int
    cpus: int
    available_nodes: int
    held_nodes: int
    lost_nodes: int


class ReportedFault(Wire):
    """A fault code on a component of the node (`npu5`, `npu5-die1`, `l1p3`, `node`), present at the time."""

    code: str = Field(max_length=40)
    component: str = Field(max_length=40)
    severity: Literal["hint", "minor", "major", "critical"] | None = None
    message: str = Field("", max_length=300)


class PartReport(Wire):
    """How far a node is with one part; one that is wished no more is wiped and then no longer reported."""

    allocation: str = Field(max_length=63)
    status: Literal["Preparing", "Active", "Releasing", "Failed"]
    message: str = Field("", max_length=300)


class NpuFound(Wire):
    """An NPU package found in a node: its number, its dies by number in the node, and its HBM."""

    npu: int = Field(ge=0, le=63)
    dies: list[int] = Field(max_length=8)
    hbm_gb: int = Field(ge=0)


class NodeInventory(Wire):
    """What a node's agent finds in its node: packages, sockets, memory, ports by name, and whose hardware it is."""

    model: str = Field(max_length=80)
    serial: str = Field("", max_length=80)
    firmware: str = Field("", max_length=80)
    npus: list[NpuFound] = Field(max_length=64)
    cpus: int = Field(ge=0)
    memory_gib: int = Field(ge=0)
    ports: list[Annotated[str, Field(max_length=40)]] = Field(max_length=1024)


class InventoryView(Wire):
    """The inventory a node last reported, and how it differs from what the supernode's spec expects (empty: not)."""

    node: str
    reported_at: str
    found: NodeInventory
    mismatches: list[str]


class NodeReport(Wire):
    """What a resource agent says of its node.

    `epoch` counts the agent's lives and `sequence` its reports in this life: an older one is refused. `generation` is
    the newest wish the agent has taken up, and `status` how far it is with it. `inventory` is told once in each life,
    when it changes, and when an answer asks for it. `ports` says who answers at a port (null: nobody): all of them once
    in each life and whenever the inventory is asked for, else those where that has changed.
    """

    node: NodeName
    epoch: int = Field(ge=0)
    sequence: int = Field(ge=0)
    lease_s: float = Field(gt=0, le=86_400)
    power: Literal["On", "Off"] = "On"
    status: Literal[
        "Verifying", "Inspecting", "Clean", "Preparing", "Spare", "Deploying", "Active", "Cleaning", "Failed"
    ]
    generation: int = Field(ge=0)
    allocation: str | None = None
    stage: str | None = None
    parts: list[PartReport] = Field(default_factory=list, max_length=64)
    message: str = Field("", max_length=300)
    inventory: NodeInventory | None = None
    ports: dict[PortName, PartName | None] | None = Field(None, max_length=1024)
    faults: list[ReportedFault] = Field(default_factory=list, max_length=256)


class NodeReports(Wire):
    """A batch: a fleet of agents shares one connection."""

    reports: list[NodeReport] = Field(max_length=4096)


class ReportAnswer(Wire):
    """Whether a report was taken, and the newest wish unless the agent holds it: lost watch events heal here.

    `inventoryWanted`: nothing is known of what the node consists of; say it with the next report.
    """

    node: str
    accepted: bool
    reason: str | None = None
    inventory_wanted: bool = False
    desired: AssignmentView | None = None
