"""nodes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from matrixcommon.model.resource_model import ApiModel, ResourceView

Power = Literal["On", "Off"]

ADMIN, KUBERNETES, MAINTENANCE = "admin", "kubernetes", "maintenance"
"""Owners of cordons: who asks without saying who it is, who marks the mirrored Node unschedulable, a closed domain."""


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


class NodeView(ResourceView):
    """One node: its state, and beside it, never folded in, what else is true of it."""

    supernode: str
    cabinet: str
    npus: int
    cpus: int
    schedulable: bool
    unschedulable_reason: str | None = None
    cordoned_by: list[str] = Field(default_factory=list, description="who keeps newcomers off it; empty: nobody")
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
    stage: str | None = None
    faults: list[FaultView] = Field(default_factory=list)


class DieView(ApiModel):
    """One die by its number in the node: its health, the worst level on it, whether new work may be placed on it."""

    die: int
    health: str
    level: str | None = None
    schedulable: bool = True


class NpuView(ResourceView):
    """One NPU package and its two dies, with its node's state; its health and level are the worst of what it and they
    have."""

    node: str
    cabinet: str
    health: str
    level: str | None = None
    dies: list[DieView] = Field(default_factory=list)
    allocation: str | None = None
    faults: list[FaultView] = Field(default_factory=list)


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
