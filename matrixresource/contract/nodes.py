"""nodes."""

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
"""What an agent can do to a member that stays one, the lightest first: restart its processes, reset its NPUs, switch
the node off and on."""

NodeTask = Literal["verify", "inspect", "clean", "update", InPlaceRepair]

FIRMWARE_VERSION = r"^[\w.+-]+$"
"""How a version of a node's firmware is written."""

KEPT_OUT = ("Manageable", "Servicing", "Draining", "Quarantined", "Retired")
"""States of nodes that take no newcomers, whatever their agents report."""

ADMIN, KUBERNETES, MAINTENANCE, RECOVERY = "admin", "kubernetes", "maintenance", "recovery"
"""Owners of cordons: who asks without saying who it is, who marks the mirrored Node unschedulable, a closed domain, and
MatrixCompute's recovery, whose cordon ends by a health check alone."""

MAINTENANCE_OF = "maintenance-"
"""What the owners of the cordons of MatrixCompute's maintenances begin with; the name of the maintenance follows."""


class FaultView(ApiModel):
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


class CordonRequest(ApiModel):
    """Keep newcomers off several nodes at once, as after a cabinet was lost."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"nodes": ["sn0-c00-n0", "sn0-c00-n1"], "by": "rack-work"},)

    cabinets: list[CabinetName] = Field(
        default_factory=empty_list, max_length=1_000, description="all nodes of these, beside those that are named"
    )
    nodes: list[NodeName] = Field(default_factory=empty_list, max_length=10_000, validate_default=True)
    by: str = Field(ADMIN, pattern=RESOURCE_NAME.pattern, description="whose cordon it is; each owner has its own")

    @field_validator("nodes")
    @classmethod
    def _some(cls, nodes: list[NodeName], given: ValidationInfo) -> list[NodeName]:
        if not nodes and not given.data.get("cabinets"):
            raise PydanticCustomError("missing", "name at least one node or cabinet")
        return nodes


class CordonView(ApiModel):
    """Who was cordoned: all that were named, but those that do not exist. Somebody does."""

    nodes: list[NodeName]


class NodeView(ResourceView):
    """One node: its state, and beside it, never folded in, what else is true of it."""

    supernode: str
    cabinet: str
    npus: int
    cpus: int
    schedulable: bool
    unschedulable_reason: str | None = None
    cordoned_by: list[str] = Field(default_factory=empty_list, description="who keeps newcomers off it; empty: nobody")
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
    stage: str | None = Field(None, description="at which stage of its work the agent is, or which one failed")
    message: str = Field("", description="what the agent says of that stage")
    desired_state: str = Field("Available", description="where an administrator or a rule wants the node")
    state_reason: str | None = Field(None, description="why it is wanted there: Requested, Flapping, CheckFailed ...")
    state_message: str = Field("", description="the same in words, with what it risks")
    state_since: str | None = Field(None, description="since when it has been in its state")
    firmware: str | None = Field(None, description="the version its agent last found on it")
    task: NodeTask | None = Field(None, description="what its agent was asked to do once, until it has")
    flap_score: float = Field(0.0, description="how often it came and went, as of its last change")
    faults: list[FaultView] = Field(default_factory=empty_list)


class NodeVerbRequest(ApiModel):
    """Why a node's state is to change, and whether also where somebody has the node and loses it by that."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"reason": "its fan is loud"},
        {"firmware": "emulated-2"},
    )

    reason: str = Field("", max_length=200, description="shown with the node and its event")
    force: bool = Field(False, description="also where somebody has the node, who then loses it")
    firmware: str | None = Field(
        None, min_length=1, max_length=80, pattern=FIRMWARE_VERSION, description="for `:update`: the version to write"
    )


class NodeEventView(ResourceView):
    """Something that happened to a node (`about`), in words a person can follow."""

    about: str
    project: str | None = None  # type: ignore[assignment]  # what is physical is nobody's
    at: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class DieView(ApiModel):
    """One die by its number in the node: its health, the worst level on it, whether new work may be placed on it."""

    die: int
    health: str
    level: str | None = None
    schedulable: bool = True


class NpuView(ResourceView):
    """One NPU package and its dies, with its node's state; its health and level are the worst of what it and they
    have."""

    node: str
    cabinet: str
    health: str
    level: str | None = None
    dies: list[DieView] = Field(default_factory=empty_list)
    allocation: str | None = None
    faults: list[FaultView] = Field(default_factory=empty_list)


class SupernodeView(ResourceView):
    """One supernode and the version of its topology."""

    topology_version: str = Field(description="the version of the machine's topology that this is of")
    cabinets: int = Field(description="compute cabinets")
    nodes: int = Field(description="nodes that its graph has")
    npus: int = Field(description="NPU packages")
    cpus: int = Field(description="CPU sockets")
    available_nodes: int = Field(description="nodes that nobody holds and that take newcomers")
    allocated_nodes: int = Field(description="nodes that an allocation holds")
    lost_nodes: int = Field(description="nodes whose agents are not heard any more")


class NpuFound(ApiModel):
    """An NPU package found in a node: its number, its dies by number in the node, and its HBM."""

    npu: int = Field(ge=0, le=63)
    dies: list[int] = Field(max_length=8)
    hbm_gb: int = Field(ge=0)


class NodeInventory(ApiModel):
    """What a node's agent finds in its node: packages, sockets, memory, ports by name, and whose hardware it is."""

    model: str = Field(max_length=80)
    serial: str = Field("", max_length=80)
    firmware: str = Field("", max_length=80)
    npus: list[NpuFound] = Field(max_length=64)
    cpus: int = Field(ge=0)
    memory_gib: int = Field(ge=0)
    ports: list[Annotated[str, Field(max_length=40)]] = Field(max_length=1024)


class InventoryView(ApiModel):
    """The inventory a node last reported, and how it differs from what the supernode's spec expects (empty: not)."""

    node: str
    reported_at: str
    found: NodeInventory
    mismatches: list[str]
