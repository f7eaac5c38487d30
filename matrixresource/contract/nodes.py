"""Nodes and NPUs: requests, views and inventories."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from matrixcommon.model.empty import empty_list
from matrixcommon.model.hardware_names import RESOURCE_NAME, CabinetName, NodeName
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixcommon.model.validation import pattern_of

Power = Literal["On", "Off"]

InPlaceRepair = Literal["restart", "reset-npu", "reboot"]
IN_PLACE: tuple[str, ...] = get_args(InPlaceRepair)
"""What an agent can do to a member that stays a member, lightest first: restart its processes, reset its NPUs,
power-cycle the node."""

NodeTask = Literal["verify", "inspect", "clean", "update", InPlaceRepair]

FIRMWARE_VERSION = pattern_of(r"^[\w.+-]+$", "a version of letters, digits and the characters . _ + -")
"""The pattern of a node's firmware version."""

OUT_OF_SERVICE_STATES = ("Manageable", "Servicing", "Draining", "Quarantined", "Retired")
"""States in which a node accepts no new work, whatever its agent reports."""

ADMIN, KUBERNETES, MAINTENANCE, RECOVERY = "admin", "kubernetes", "maintenance", "recovery"
"""Owners of cordons: a caller that names no owner; the mirror of an unschedulable Kubernetes Node; a closed domain; and
MatrixCompute's recovery, whose cordon is lifted only by a health check."""

MAINTENANCE_PREFIX = "maintenance-"
"""The prefix of cordon owners that are MatrixCompute maintenances; the maintenance's name follows."""


class FaultView(ApiModel):
    """A fault as an agent reported it, with the level the control plane assigned.

    `raisedBy` names the rule (`Frequency`, `Duration`, `Uplinks`) that raised it above the level of its code. Such a
    fault may be over (`active` false) and still keep new work away.
    """

    code: str = Field(description="code that the agent reported")
    component: str = Field(description="what is faulty, such as npu5, npu5-die1, l1p3 or node")
    level: str = Field(description="its seriousness, from NotHandle and SubHealth to Separate and ManuallySeparate")
    since: str = Field(
        description="since when it is present or, once over, when a rule raised it or it went, in emulated time"
    )
    message: str = Field("", description="details, as reported")
    active: bool = Field(True, description="whether it is present; false: it is over, but a rule still counts it")
    raised_by: Literal["Frequency", "Duration", "Uplinks"] | None = Field(
        None, description="the rule that raised it above the level of its code; null: none did"
    )


class CordonRequest(ApiModel):
    """Cordon several nodes at once, for example after a cabinet was lost."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"nodes": ["sn0-c00-n0", "sn0-c00-n1"], "by": "rack-work"},)

    cabinets: list[CabinetName] = Field(
        default_factory=empty_list, max_length=1_000, description="all nodes of these, in addition to `nodes`"
    )
    nodes: list[NodeName] = Field(
        default_factory=empty_list,
        max_length=10_000,
        validate_default=True,
        description="the nodes to cordon, in addition to all nodes of `cabinets`; one of both is needed",
    )
    by: str = Field(ADMIN, pattern=RESOURCE_NAME.pattern, description="the owner of the cordon; each owner has its own")

    @field_validator("nodes")
    @classmethod
    def _check_not_empty(cls, nodes: list[NodeName], given: ValidationInfo) -> list[NodeName]:
        if not nodes and not given.data.get("cabinets"):
            raise PydanticCustomError("missing", "name at least one node or cabinet")
        return nodes


class CordonView(ApiModel):
    """The nodes that were cordoned or uncordoned: all that were named, except those that do not exist."""

    nodes: list[NodeName] = Field(description="the nodes that were changed, or were so already")


class NodeView(ResourceView):
    """One node: its state, and separate from that its schedulability, power, health and agent."""

    supernode: str = Field(description="the supernode it is in")
    cabinet: str = Field(description="the cabinet it is in")
    npus: int = Field(description="NPU packages that it has by the spec of its supernode")
    cpus: int = Field(description="CPU sockets that it has by the spec of its supernode")
    schedulable: bool = Field(description="whether an allocation could be given all of it now")
    unschedulable_reason: str | None = Field(
        None, description="why it could not, such as Held, PartlyHeld, Cordoned or its state; null: it could"
    )
    cordoned_by: list[str] = Field(default_factory=empty_list, description="owners of its cordons; empty if none")
    power: str = Field(description="On or Off, as last reported; Unknown: its agent is Lost")
    health: str = Field(description="Healthy, SubHealthy or Unhealthy, by its worst fault; Unknown: its agent is Lost")
    agent: str = Field(
        description="Connected, Stale (its lease has run out) or Lost (silent for two leases, or never seen)"
    )
    epoch: int = Field(description="starts of its agent, as last reported; earlier ones are refused")
    allocation: str | None = Field(
        None, description="the allocation that holds all of it; null: none, or several share it"
    )
    role: str | None = Field(
        None, description="its role in that allocation: member, spare, or successor while it moves; null: none holds it"
    )
    shared_by: int = Field(0, description="number of allocations that hold parts of it, those being wiped included")
    usable_npus: int = Field(
        0, description="NPUs without faults that forbid their use, whoever holds them; 0: all of it is out of service"
    )
    desired_role: str = Field(description="what its agent is to make of it: Clean, Spare or Member")
    assignment_generation: int = Field(description="generation of its newest assignment")
    observed_generation: int = Field(description="newest generation of its assignment that its agent has accepted")
    stage: str | None = Field(None, description="the stage the agent is at, or the one that failed")
    message: str = Field("", description="details of that stage, from the agent")
    desired_state: str = Field("Available", description="the state that an administrator or a rule has requested")
    state_reason: str | None = Field(
        None, description="why that state is requested, such as Requested or Flapping; null: no reason"
    )
    state_message: str = Field("", description="the same as a sentence, with the risk")
    state_since: str | None = Field(None, description="when it entered its present state")
    firmware: str | None = Field(None, description="firmware version last reported by its agent")
    task: NodeTask | None = Field(None, description="a one-time task its agent has not finished yet")
    flap_score: float = Field(0.0, description="score of recent losses and returns, as of the last of them")
    faults: list[FaultView] = Field(
        default_factory=empty_list, description="its faults, present ones and those that a rule still counts"
    )


class NodeVerbRequest(ApiModel):
    """Why to change the node's state, and whether to do so even if its holder loses the node."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"reason": "its fan is loud"},
        {"firmware": "emulated-2"},
    )

    reason: str = Field("", max_length=200, description="shown on the node and in its event")
    force: bool = Field(False, description="do it even if the node is held; its holder then loses it")
    firmware: str | None = Field(
        None, min_length=1, max_length=80, pattern=FIRMWARE_VERSION, description="for `:update`: the version to write"
    )


class DieView(ApiModel):
    """One die by its number in the node: its health, the worst fault level on it, and whether new work may use it."""

    die: int = Field(description="its number in the node")
    health: str = Field(description="Healthy, SubHealthy or Unhealthy, by the worst fault on it")
    level: str | None = Field(None, description="the worst level among the faults on it; null: it has none")
    schedulable: bool = Field(True, description="whether its faults allow new work on it")


class NpuView(ResourceView):
    """One NPU package and its dies, with its node's state. Health and level are the worst among the package and its
    dies."""

    node: str = Field(description="the node it is in")
    cabinet: str = Field(description="the cabinet it is in")
    health: str = Field(description="Healthy, SubHealthy or Unhealthy, by its worst fault; Unknown: its agent is Lost")
    level: str | None = Field(None, description="the worst level among its faults; null: it has none")
    dies: list[DieView] = Field(default_factory=empty_list, description="its dies, each with its health")
    allocation: str | None = Field(
        None, description="the allocation whose member its node is; null: none, or the node is spare or shared"
    )
    faults: list[FaultView] = Field(
        default_factory=empty_list, description="faults of the package, its dies and their ports"
    )


class SupernodeView(ResourceView):
    """One supernode, its size and its topology version."""

    topology_version: str = Field(description="the topology version this describes")
    cabinets: int = Field(description="compute cabinets")
    nodes: int = Field(description="nodes in its graph")
    npus: int = Field(description="NPU packages")
    cpus: int = Field(description="CPU sockets")
    available_nodes: int = Field(description="nodes that are unallocated and schedulable")
    allocated_nodes: int = Field(description="nodes held by allocations")
    lost_nodes: int = Field(description="nodes whose agents are Lost")


class NpuFound(ApiModel):
    """An NPU package found in a node: its number, its dies by number within the node, and its HBM."""

    npu: int = Field(ge=0, le=63, description="its number in the node")
    dies: list[int] = Field(max_length=8, description="numbers of its dies in the node")
    hbm_gb: int = Field(ge=0, description="its HBM, GB")


class NodeInventory(ApiModel):
    """What a node's agent finds in the node: model, serial, firmware, NPU packages, CPU sockets, memory, and ports by
    name."""

    model: str = Field(max_length=80, description="model of the machine that the node is built for")
    serial: str = Field("", max_length=80, description="serial number; empty: unknown")
    firmware: str = Field("", max_length=80, description="installed firmware version; empty: unknown")
    npus: list[NpuFound] = Field(max_length=64, description="NPU packages")
    cpus: int = Field(ge=0, description="number of CPU sockets")
    memory_gib: int = Field(ge=0, description="size of its memory, GiB")
    ports: list[Annotated[str, Field(max_length=40)]] = Field(
        max_length=1024, description="names of the ports, such as ub-p3-k11, npu5-die1-p2, rdma-npu5-die0 and vpc"
    )


class InventoryView(ApiModel):
    """The inventory a node last reported, and its differences from the supernode's spec (empty: none)."""

    node: str = Field(description="name of the node")
    reported_at: str = Field(description="when it was reported, in emulated time")
    found: NodeInventory = Field(description="what the agent reported")
    mismatches: list[str] = Field(description="differences from the spec of the supernode, in words; empty: none")
