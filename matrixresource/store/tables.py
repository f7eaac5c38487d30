"""Tables of the machine as observed: supernodes, nodes, and parts of nodes.

A node has one `holder` column, so the database cannot represent two holders of a whole node; shared nodes have `parts`.
One transaction per verb.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Float, Integer, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from matrixcommon.emulation.stages import STAGE_NAME_MAX
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.quantities import timestamp
from matrixcommon.persistence.database_session import ResourceRow, journal_tables
from matrixcommon.persistence.fences import leader_table
from matrixcommon.persistence.resource_row import TimedStateRow
from matrixresource.contract.agents import DesiredPartition
from matrixresource.contract.allocations import MemberView
from matrixresource.contract.nodes import MAINTENANCE, NodeView, SupernodeView
from matrixresource.nodes.fault_levels import worst_health, worst_level
from matrixresource.nodes.fault_rules import die_numbers, failure_times, faults_of, unusable_dies, whole_node_fault
from matrixresource.nodes.states import AVAILABLE, NODE_STATES, QUARANTINED, RETIRED, STAGE_TOLERATED, node_state

INVENTORY_MATCHES = "InventoryMatches"
"""The condition of a node that says whether its inventory matches the supernode's spec."""


class Base(DeclarativeBase):
    pass


journal_tables(Base.metadata)
leader_table(Base.metadata)


class SupernodeRow(ResourceRow, Base):
    """One supernode of the inventory and its topology version."""

    __tablename__ = "supernodes"
    kind = "supernode"

    topology_version: Mapped[str] = mapped_column(String(120))
    cabinets: Mapped[int] = mapped_column(Integer)
    npus_per_node: Mapped[int] = mapped_column(Integer)
    cpus_per_node: Mapped[int] = mapped_column(Integer)

    def view(self) -> SupernodeView:
        return self.view_of([])

    def view_of(self, nodes: list[NodeRow]) -> SupernodeView:
        return self.view_as(
            SupernodeView,
            nodes=len(nodes),
            npus=len(nodes) * self.npus_per_node,
            cpus=len(nodes) * self.cpus_per_node,
            available_nodes=sum(node.obstacle() is None for node in nodes),
            allocated_nodes=sum(node.holder is not None for node in nodes),
            lost_nodes=sum(node.agent == "Lost" for node in nodes),
        )


class PartitionRow(Base):
    """What an allocation holds of a node that is not entirely its own: dies, sockets, GiB. Sets of dies are integers,
    die k being bit k.

    `generation` is that of the node's assignment that requests it or, once it is `releasing`, of the one that no longer
    does: it stays held until the agent has answered that.
    """

    __tablename__ = "parts"

    allocation: Mapped[str] = mapped_column(String(127), primary_key=True)
    node: Mapped[str] = mapped_column(String(253), primary_key=True, index=True)
    rank: Mapped[int | None] = mapped_column(Integer)
    dies: Mapped[int] = mapped_column(Integer, default=0)
    cpus: Mapped[int] = mapped_column(Integer, default=0)
    memory_gib: Mapped[int] = mapped_column(Integer, default=0)
    generation: Mapped[int] = mapped_column(BigInteger, default=0)
    releasing: Mapped[bool] = mapped_column(Boolean, default=False)

    def desired(self) -> DesiredPartition:
        return DesiredPartition(
            allocation=self.allocation,
            rank=self.rank,
            dies=[die for die in range(self.dies.bit_length()) if self.dies >> die & 1],
            cpus=self.cpus,
            memory_gib=self.memory_gib,
        )

    def ready(self, node: NodeRow) -> bool:
        """Whether the node's agent has reported it as prepared."""
        seen = (node.reported_partitions or {}).get(self.allocation)
        return node.agent == "Connected" and node.observed_generation >= self.generation and seen == "Active"

    def gone(self, node: NodeRow) -> bool:
        """Whether the node's agent has wiped it, or can no longer be asked to."""
        if node.agent == "Lost":
            return True
        return node.observed_generation >= self.generation and self.allocation not in (node.reported_partitions or {})

    def member_view(self, node: NodeRow, dies_per_npu: int) -> MemberView:
        return MemberView(
            node=self.node,
            cabinet=node.node_name.cabinet,
            role="member" if self.dies else "pool",
            rank=self.rank,
            state=node.state,
            agent=node.agent,
            health=node.health,
            fault=node.health_because,
            level=node.level,
            ready=self.ready(node),
            **node.progress,
            npus=self.dies.bit_count() / 2 if self.dies else None,
            dies=die_numbers(self.dies, dies_per_npu) if self.dies else None,
            cpus=self.cpus or None,
            memory_gib=self.memory_gib or None,
        )


class NodeRow(TimedStateRow, Base):
    """One node as last observed."""

    __tablename__ = "nodes"
    kind = "node"
    SELECTABLE = frozenset({"agent", "health", "state", "supernode"})
    MOVES = NODE_STATES

    supernode: Mapped[str] = mapped_column(String(16))
    npus: Mapped[int] = mapped_column(Integer)
    cpus: Mapped[int] = mapped_column(Integer)
    holder: Mapped[str | None] = mapped_column(String(127), index=True)
    role: Mapped[str | None] = mapped_column(String(10))
    rank: Mapped[int | None] = mapped_column(Integer)
    shared_by: Mapped[int] = mapped_column(Integer, default=0)
    cordoned_by: Mapped[list[str]] = mapped_column(JSON, default=list, server_default="[]")
    """Owners of its cordons; each lifts only its own."""
    domain_closed: Mapped[bool] = mapped_column(Boolean, default=False)
    reserved_for_plan: Mapped[str | None] = mapped_column(String(253))
    """The defragmentation in progress that needs this node."""
    power: Mapped[str] = mapped_column(String(10), default="Unknown")
    health: Mapped[str] = mapped_column(String(12), default="Unknown")
    agent: Mapped[str] = mapped_column(String(10), default="Lost")
    epoch: Mapped[int] = mapped_column(BigInteger, default=0)
    status: Mapped[str | None] = mapped_column(String(12))
    stage: Mapped[str | None] = mapped_column(String(STAGE_NAME_MAX))
    observed_generation: Mapped[int] = mapped_column(BigInteger, default=0)
    desired_role: Mapped[str] = mapped_column(String(10), default="Clean")
    desired_power: Mapped[str] = mapped_column(String(10), default="On", server_default="On")
    wanted_generation: Mapped[int] = mapped_column(BigInteger, default=1)
    assignment_generation: Mapped[int] = mapped_column(BigInteger, default=1)
    faults: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    """As last evaluated: one `FaultView` each, in wire form."""
    reported_partitions: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    """The last reported status of each part, by allocation."""

    message: Mapped[str] = mapped_column(String(300), default="", server_default="")
    """Details of its stage, from its agent."""
    desired_state: Mapped[str] = mapped_column(String(12), default=AVAILABLE, server_default=AVAILABLE)
    """The state that an administrator or a rule has requested: Available, Manageable, Servicing, Quarantined or
    Retired."""
    state_reason: Mapped[str | None] = mapped_column(String(40))
    state_message: Mapped[str] = mapped_column(String(400), default="", server_default="")
    """Why that state is requested, and the risk."""
    task: Mapped[str | None] = mapped_column(String(10))
    """The task of its agent (verify, inspect, clean or update), until that is done."""
    firmware: Mapped[str | None] = mapped_column(String(80))
    wanted_firmware: Mapped[str | None] = mapped_column(String(80))
    """As last reported by its agent, and as last requested."""
    flap_score: Mapped[float] = mapped_column(Float, default=0.0, server_default="0")
    flapped_at: Mapped[float | None] = mapped_column(Float)
    heard_at: Mapped[float | None] = mapped_column(Float)
    lost_at: Mapped[float | None] = mapped_column(Float)
    """For a silent agent: when it was last heard, and when it was declared lost."""

    @property
    def node_name(self) -> NodeName:
        return NodeName(self.name)

    @property
    def allocated(self) -> bool:
        """Whether any allocation holds it or a part of it."""
        return self.holder is not None or bool(self.shared_by)

    @property
    def in_sync(self) -> bool:
        """Whether the agent has accepted the assignment of the whole node; parts have their own generations."""
        return self.observed_generation >= self.wanted_generation

    @property
    def ready(self) -> bool:
        """Whether the agent has reported exactly what is requested."""
        desired = {"Clean": "Clean", "Spare": "Spare", "Member": "Active"}[self.desired_role]
        if self.desired_power == "Off":
            desired = "Off"
        return self.in_sync and self.status == desired and self.agent == "Connected"

    def read_state(self) -> None:
        """Derive the state from what is requested and what was reported; nobody sets it."""
        before = self.state
        self.state = node_state(
            allocated=self.holder is not None,
            agent=self.agent,
            health=whole_node_fault(self) or "Healthy",
            status=self.status,
            in_sync=self.in_sync,
            parts=[*(self.reported_partitions or {}).values()] if self.shared_by else [],
            shared=bool(self.shared_by),
            desired=self.desired_state or AVAILABLE,
            task=self.task,
            tolerated=self.state_reason == STAGE_TOLERATED,
        )
        self.state_changed(before)

    def cordon(self, by: str, cordoned: bool) -> None:
        """Set or lift this owner's cordon. Raises InvalidField."""
        if by == MAINTENANCE:
            raise InvalidField("this owner's cordons follow the node's domain: close or open that instead", field="by")
        before = self.cordoned_by or []
        owners = sorted({*before, by} if cordoned else {*before} - {by})
        if owners != before:
            self.cordoned_by = owners

    @property
    def open(self) -> bool:
        """Whether new work may use what is free on it."""
        settled = self.holder is not None or (self.status == "Clean" and self.in_sync)
        return settled and self.reserved_for_plan is None and self.whole_fault() is None

    def obstacle(self) -> str | None:
        """Why this node cannot be taken as a whole now; None if it can."""
        if self.holder is not None:
            return "Held"
        if self.shared_by:
            return self.fault() or "PartlyHeld"
        kept = "Kept" if self.reserved_for_plan is not None else None
        return self.fault() or (kept if self.state == "Available" else self.state)

    def obstacle_to_npus(self, has_parts: bool) -> str | None:
        """The same for its NPUs alone. `has_parts`: some of them are held in parts; sockets and memory held for caches
        are not in the way."""
        if self.holder is not None or not self.shared_by or has_parts:
            return self.obstacle()
        kept = "Kept" if self.reserved_for_plan is not None else None
        return self.fault() or (kept if self.status == "Clean" and self.in_sync else self.state)

    def fault(self) -> str | None:
        """What keeps it out of service regardless of its holder; None if nothing does."""
        whole = self.whole_fault()
        if whole is None and self.health == "Unhealthy":
            return "Unhealthy"
        return whole or ("PreSeparated" if unusable_dies(self) else None)

    @property
    def health_because(self) -> str:
        """The component, code and level of each fault behind its health."""
        caused = "SubHealthy" if self.health == "SubHealthy" else "Unhealthy"
        faults = (fault for fault in faults_of(self) if worst_health([fault.level]) == caused)
        return "; ".join(f"{fault.component} {fault.code} ({fault.level})" for fault in faults)

    def whole_fault(self) -> str | None:
        """What keeps all of it out of service regardless of its holder. Faults of single NPUs do not: see
        `unusable_dies`."""
        if (self.desired_state or AVAILABLE) != AVAILABLE:
            return self.state
        if self.agent != "Connected":
            return "AgentLost" if self.status is not None else "NotEnrolled"
        if any(each["type"] == INVENTORY_MATCHES and each["status"] == "False" for each in self.conditions or []):
            return "InventoryMismatch"
        closed = "DomainClosed" if self.domain_closed else None
        return whole_node_fault(self) or ("Cordoned" if self.cordoned_by else closed)

    @property
    def usable_npus(self) -> int:
        """NPUs that can be used, whoever holds them now; 0 if the whole node is out."""
        if self.whole_fault() is not None:
            return 0
        bad = unusable_dies(self)
        return sum(not bad >> 2 * npu & 3 for npu in range(self.npus))

    def view(self) -> NodeView:
        obstacle = self.obstacle()
        return self.view_as(
            NodeView,
            cabinet=self.node_name.cabinet,
            schedulable=obstacle is None,
            unschedulable_reason=obstacle,
            usable_npus=self.usable_npus,
            cordoned_by=sorted([*(self.cordoned_by or ()), *([MAINTENANCE] if self.domain_closed else [])]),
            allocation=self.holder,
            faults=faults_of(self),
            state_since=None if self.state_since is None else timestamp(self.state_since),
        )

    def member_view(self) -> MemberView:
        return MemberView(
            node=self.name,
            cabinet=self.node_name.cabinet,
            role={"member": "member", "successor": "successor"}.get(self.role or "", "spare"),
            rank=self.rank,
            state=self.state,
            agent=self.agent,
            health=self.health,
            fault=self.health_because,
            level=self.level,
            ready=self.ready,
            **self.progress,
        )

    @property
    def level(self) -> str | None:
        """The worst level of the faults that make it unhealthy."""
        return worst_level(each.level for each in faults_of(self) if worst_health([each.level]) == "Unhealthy")

    @property
    def progress(self) -> dict[str, str]:
        """For the view of a member: its stage and the details of that, or why it is out of service; and when it
        failed."""
        kept = self.state in (QUARANTINED, RETIRED) or self.state_reason == STAGE_TOLERATED
        message = (self.state_message if kept else "") or self.message
        shown = {"stage": self.stage, "message": message} | failure_times(self)
        return {name: value for name, value in shown.items() if value}
