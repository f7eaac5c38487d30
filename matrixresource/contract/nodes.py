"""Nodes and NPUs: requests, views and inventories."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from matrixcommon.model.empty import empty_list
from matrixcommon.model.hardware_names import RESOURCE_NAME, CabinetName, NodeName
from matrixcommon.model.resource_model import ApiModel, ResourceView

Power = Literal["On", "Off"]

InPlaceRepair = Literal["restart", "reset-npu", "reboot"]
IN_PLACE: tuple[str, ...] = get_args(InPlaceRepair)
"""What an agent can do to a member that stays a member, lightest first: restart its processes, reset its NPUs,
power-cycle the node."""

NodeTask = Literal["verify", "inspect", "clean", "update", InPlaceRepair]

FIRMWARE_VERSION = r"^[\w.+-]+$"
"""The pattern of a node's firmware version."""

KEPT_OUT = ("Manageable", "Servicing", "Draining", "Quarantined", "Retired")
"""States in which a node accepts no new work, whatever its agent reports."""

ADMIN, KUBERNETES, MAINTENANCE, RECOVERY = "admin", "kubernetes", "maintenance", "recovery"
"""Owners of cordons: a caller that names no owner; the mirror of an unschedulable Kubernetes Node; a closed domain; and
MatrixCompute's recovery, whose cordon is lifted only by a health check."""

MAINTENANCE_OF = "maintenance-"
"""The prefix of cordon owners that are MatrixCompute maintenances; the maintenance's name follows."""


class FaultView(ApiModel):
    """A fault as an agent reported it, with the level the control plane assigned.

    `raisedBy` names the rule (`Frequency`, `Duration`, `Uplinks`) that raised it above the level of its code. Such a
    fault may be over (`active` false) and still keep new work away.
    """

    code: str
    component: str
    level: str
    since: str
    message: str = ""
    active: bool = True
    raised_by: Literal["Frequency", "Duration", "Uplinks"] | None = None


class CordonRequest(ApiModel):
    """Cordon several nodes at once, for example after a cabinet was lost."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"nodes": ["sn0-c00-n0", "sn0-c00-n1"], "by": "rack-work"},)

    cabinets: list[CabinetName] = Field(
        default_factory=empty_list, max_length=1_000, description="all nodes of these, in addition to `nodes`"
    )
    nodes: list[NodeName] = Field(default_factory=empty_list, max_length=10_000, validate_default=True)
    by: str = Field(ADMIN, pattern=RESOURCE_NAME.pattern, description="the owner of the cordon; each owner has its own")

    @field_validator("nodes")
    @classmethod
    def _some(cls, nodes: list[NodeName], given: ValidationInfo) -> list[NodeName]:
        if not nodes and not given.data.get("cabinets"):
            raise PydanticCustomError("missing", "name at least one node or cabinet")
        return nodes


class CordonView(ApiModel):
    """The nodes that were cordoned or uncordoned: all that were named, except those that do not exist."""

    nodes: list[NodeName]


class NodeView(ResourceView):
    """One node: its state, and separate from that its schedulability, power, health and agent."""

    supernode: str
    cabinet: str
    npus: int
    cpus: int
    schedulable: bool
    unschedulable_reason: str | None = None
    cordoned_by: list[str] = Field(default_factory=empty_list, description="owners of its cordons; empty if none")
    power: str
    health: str
    agent: str
    epoch: int
    allocation: str | None = None
    role: str | None = None
    shared_by: int = 0
    usable_npus: int = 0
    desired_role: str
    assignment_generation: int
    observed_generation: int
    stage: str | None = Field(None, description="the stage the agent is at, or the one that failed")
    message: str = Field("", description="details of that stage, from the agent")
    desired_state: str = Field("Available", description="the state that an administrator or a rule has requested")
    state_reason: str | None = Field(
        None, description="why that state is requested: Requested, Flapping, CheckFailed ..."
    )
    state_message: str = Field("", description="the same as a sentence, with the risk")
    state_since: str | None = Field(None, description="when it entered its present state")
    firmware: str | None = Field(None, description="firmware version last reported by its agent")
    task: NodeTask | None = Field(None, description="a one-time task its agent has not finished yet")
    flap_score: float = Field(0.0, description="score of recent losses and returns, as of the last of them")
    faults: list[FaultView] = Field(default_factory=empty_list)


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


class NodeEventView(ResourceView):
    """Something that happened to a node (`about`), described for people."""

    about: str
    project: str | None = None  # type: ignore[assignment]  # hardware belongs to no project
    at: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class DieView(ApiModel):
    """One die by its number in the node: its health, the worst fault level on it, and whether new work may use it."""

    die: int
    health: str
    level: str | None = None
    schedulable: bool = True


class NpuView(ResourceView):
    """One NPU package and its dies, with its node's state. Health and level are the worst among the package and its
    dies."""

    node: str
    cabinet: str
    health: str
    level: str | None = None
    dies: list[DieView] = Field(default_factory=empty_list)
    allocation: str | None = None
    faults: list[FaultView] = Field(default_factory=empty_list)


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

    npu: int = Field(ge=0, le=63)
    dies: list[int] = Field(max_length=8)
    hbm_gb: int = Field(ge=0)


class NodeInventory(ApiModel):
    """What a node's agent finds in the node: model, serial, firmware, NPU packages, CPU sockets, memory, and ports by
    name."""

    model: str = Field(max_length=80)
    serial: str = Field("", max_length=80)
    firmware: str = Field("", max_length=80)
    npus: list[NpuFound] = Field(max_length=64)
    cpus: int = Field(ge=0)
    memory_gib: int = Field(ge=0)
    ports: list[Annotated[str, Field(max_length=40)]] = Field(max_length=1024)


class InventoryView(ApiModel):
    """The inventory a node last reported, and its differences from the supernode's spec (empty: none)."""

    node: str
    reported_at: str
    found: NodeInventory
    mismatches: list[str]
