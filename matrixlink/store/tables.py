"""Tables of MatrixLink.

`slices` has what was requested and how far it is, `programs` what each agent is to hold, `links` the ports that agents
reported or probes found below their rate, `events` what happened, `agents` the newest epoch of each. `fences` has the
nodes that could not be asked to clear a slice before it ended: their isolation key is not reused until they have.
`slice_names` keeps the last generation of ended slices, so that a new slice of the same name is never older than what
an absent agent still holds.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Float,
    Integer,
    String,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from matrixcommon.model.quantities import timestamp
from matrixcommon.model.resource_key import DEFAULT_PROJECT, project_of, reference_to
from matrixcommon.persistence.database_session import ResourceRow, journal_tables
from matrixcommon.persistence.fences import leader_table
from matrixcommon.persistence.resource_row import EventColumns
from matrixcommon.telemetry.trace import TraceContexts
from matrixcommon.workflows.rows import WorkflowDrainRow, WorkflowRow
from matrixlink.contract.drains import DrainView
from matrixlink.contract.inventory import LinkView
from matrixlink.contract.peerings import PeeringView
from matrixlink.contract.programs import DesiredProgram, ProgramView
from matrixlink.contract.slices import SliceView
from matrixlink.fabric.condition.fabric import health
from matrixlink.model.slice_states import SLICE_STATES
from matrixresource.topology import Link

PENDING, PROGRAMMING_PEERS, PEERED = "PendingAcceptance", "Programming", "Active"
PEERING_DELETING = "Deleting"
"""A peering waits for consent, then for every agent's acknowledgement; Deleting, until no agent holds it any more."""

DRAINING, DRAINED, RESTORED = "Draining", "Drained", "Restored"
"""A drain waits until no agent holds a route over its elements; then maintenance may begin. If it is cancelled before,
its elements return to service."""
LANES = {0.5: "1/2", 0.25: "1/4"}
"""What an L1 chip's port can degrade to: a half or a quarter of its lanes (Ascend/mind-cluster fault codes). Other
shares are shown as rates: no source rules them out."""


class Base(DeclarativeBase):
    pass


journal_tables(Base.metadata)
leader_table(Base.metadata)


class SliceRow(ResourceRow, Base):
    """One slice. `program_generation` is the newest generation requested of agents; `kept` the share of its floor that
    it has now; `unprotected` why its protection is lost; `ports_seen` the impaired ports that its routes were made
    around; `view` its FabricView."""

    __tablename__ = "slices"
    __table_args__ = (UniqueConstraint("isolation", "isolation_key"),)
    kind = "slice"
    MOVES = SLICE_STATES

    SPEC: ClassVar = (
        "project", "labels", "allocation", "instance", "plane", "members", "qos_class", "floor_gbps", "ceiling_gbps",
        "weight", "latency_bound_us", "protection", "security_rules",
    )  # fmt: skip
    """The columns that hold the spec."""

    allocation: Mapped[str] = mapped_column(String(253), index=True)
    instance: Mapped[str] = mapped_column(String(253), index=True)
    plane: Mapped[str] = mapped_column(String(8))
    members: Mapped[list[str]] = mapped_column(JSON)
    qos_class: Mapped[str] = mapped_column(String(16))
    floor_gbps: Mapped[float] = mapped_column(Float)
    ceiling_gbps: Mapped[float | None] = mapped_column(Float)
    weight: Mapped[float] = mapped_column(Float)
    latency_bound_us: Mapped[float | None] = mapped_column(Float)
    protection: Mapped[str] = mapped_column(String(16), default="none")
    isolation: Mapped[str] = mapped_column(String(16))
    isolation_key: Mapped[int] = mapped_column(Integer)
    admitted_order: Mapped[int] = mapped_column(BigInteger)
    kept: Mapped[float] = mapped_column(Float, default=1.0)
    unprotected: Mapped[str] = mapped_column(String(300), default="")
    security_rules: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    program_generation: Mapped[int] = mapped_column(Integer, default=0)
    programmed: Mapped[int] = mapped_column(Integer, default=0)
    ports_seen: Mapped[dict[str, dict[str, float]]] = mapped_column(JSON, default=dict)
    fabric_view: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    view_generation: Mapped[int] = mapped_column(Integer, default=0)
    withdrawing_since: Mapped[float | None] = mapped_column(Float)

    @property
    def spec(self) -> tuple[object, ...]:
        """Everything that must be equal for a repeated PUT to change nothing."""
        return (sorted(self.members), *(getattr(self, column) or None for column in self.SPEC if column != "members"))

    @property
    def protected(self) -> bool | None:
        """Whether the floor would survive one more failure of its level; None if no protection was requested."""
        return None if (self.protection or "none") == "none" else not self.unprotected

    def view(self) -> SliceView:
        project = self.project or DEFAULT_PROJECT
        return self.view_as(
            SliceView,
            allocation=reference_to(self.allocation, project),
            instance=reference_to(self.instance, project),
            floor_gbps_per_npu=self.floor_gbps,
            floor_kept_gbps_per_npu=round(self.floor_gbps * (1.0 if self.kept is None else self.kept), 6),
            ceiling_gbps_per_npu=self.ceiling_gbps,
            protected=self.protected,
        )

    def shown(self) -> SliceView:
        return cast(SliceView, super().shown())


TRACES = TraceContexts()
"""The trace in which a slice's generation was requested, by `slice@generation`."""


class ProgramRow(ResourceRow, Base):
    """What one agent is to hold of one slice, and its state: Pending, Programmed, Failed or, if it is to be cleared,
    Clearing and Cleared."""

    __tablename__ = "programs"
    kind = "program"

    slice: Mapped[str] = mapped_column(String(253), index=True)
    node: Mapped[str] = mapped_column(String(63), index=True)
    action: Mapped[str] = mapped_column(String(8))
    body: Mapped[dict[str, Any]] = mapped_column(JSON)
    acknowledged: Mapped[int] = mapped_column(Integer, default=0)
    message: Mapped[str] = mapped_column(String(300), default="")

    def view(self) -> ProgramView:
        return ProgramView.from_stored(
            self.common_fields()
            | self.body
            | {
                "slice": self.slice,
                "node": self.node,
                "action": self.action,
                "acknowledged_generation": self.acknowledged or 0,
                "message": self.message or "",
            }
        )

    def desired(self, whole: bool) -> DesiredProgram:
        return DesiredProgram(
            slice=self.slice,
            generation=self.generation,
            plane=self.body["plane"],
            action="clear" if self.action == "clear" else "program",
            program=self.view() if whole else None,
        )


class LinkRow(ResourceRow, Base):
    """A link that has been below its rate; its state is Up, Degraded or Down. `reported_gbps` comes from its port and
    `probed_gbps` from probes (None: full rate); `gbps` is its presumed rate, 0 while it is `damped`. `penalty` is its
    flap penalty as of `penalty_at`."""

    __tablename__ = "links"
    kind = "link"

    node: Mapped[str] = mapped_column(String(63), index=True)
    port: Mapped[str] = mapped_column(String(40))
    gbps: Mapped[float] = mapped_column(Float)
    built: Mapped[dict[str, Any]] = mapped_column(JSON)
    reported_gbps: Mapped[float | None] = mapped_column(Float)
    probed_gbps: Mapped[float | None] = mapped_column(Float)
    reason: Mapped[str] = mapped_column(String(40), default="", server_default="")
    accused: Mapped[str | None] = mapped_column(String(80))
    """The part that probes found at fault: this link, or a switch at one of its ends."""
    penalty: Mapped[float] = mapped_column(Float, default=0.0, server_default="0")
    penalty_at: Mapped[float] = mapped_column(Float, default=0.0, server_default="0")
    damped_until: Mapped[float | None] = mapped_column(Float)
    announced: Mapped[str] = mapped_column(String(10), default="Up", server_default="Up")
    """The state of its port according to the newest event about it."""

    @property
    def port_state(self) -> str:
        """Up, Degraded or Down, by what its port reports alone."""
        return health(self.built_gbps if self.reported_gbps is None else self.reported_gbps, self.built_gbps)

    @property
    def built_gbps(self) -> float:
        return float(self.built["built_gbps"])

    @property
    def effective_gbps(self) -> float:
        """The lower of what the port reports and what probes found: the link's rate without damping."""
        status = self.built_gbps if (reported := self.reported_gbps) is None else reported
        return status if (probed := self.probed_gbps) is None else min(status, probed)

    def view(self) -> LinkView:
        until = self.damped_until
        lanes = LANES.get(round(self.effective_gbps / self.built_gbps, 6))
        return LinkView.from_stored(
            self.common_fields() | self.built
            | {"gbps": self.gbps, "reason": self.reason or "", "lanes": lanes,
               "damped_until": None if until is None else timestamp(until)}
        )  # fmt: skip


class EventRow(EventColumns, ResourceRow, Base):
    """Something that happened to a link, a switch or a slice, described for people."""

    __tablename__ = "events"
    kind = "event"

    about: Mapped[str] = mapped_column(String(253), index=True)


class DrainRow(ResourceRow, Base):
    """Elements taken out of use, and the ports that belong to them, by node or leaf. `waiting_for` is the number of
    programs that may still send over them."""

    __tablename__ = "drains"
    kind = "drain"

    elements: Mapped[list[str]] = mapped_column(JSON)
    ports: Mapped[dict[str, list[str]]] = mapped_column(JSON)
    reason: Mapped[str] = mapped_column(String(300), default="")
    even_if_floors_break: Mapped[bool] = mapped_column(Boolean, default=False)
    waiting_for: Mapped[int] = mapped_column(Integer, default=0)
    message: Mapped[str] = mapped_column(String(300), default="")

    @property
    def spec(self) -> tuple[object, ...]:
        return self.project, self.labels or {}, self.elements, self.reason, self.even_if_floors_break

    def view(self) -> DrainView:
        ports = sum(map(len, self.ports.values()))
        return self.view_as(DrainView, ports=ports, waiting_for=self.waiting_for or 0)


class OperationRow(WorkflowRow, Base):
    """One run of a workflow over a drain."""

    __tablename__ = "operations"


class WorkflowDrains(WorkflowDrainRow, Base):
    """Drains of this service's workflow engine."""

    __tablename__ = "workflow_drains"


class PeeringRow(ResourceRow, Base):
    """Two slices of a plane that may reach each other, with a key of the peering's own."""

    __tablename__ = "peerings"
    kind = "peering"

    slices: Mapped[list[str]] = mapped_column(JSON)
    plane: Mapped[str] = mapped_column(String(8))
    isolation: Mapped[str] = mapped_column(String(16))
    isolation_key: Mapped[int] = mapped_column(Integer)
    accepted_by: Mapped[list[str]] = mapped_column(JSON)
    security_rules: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    message: Mapped[str] = mapped_column(String(300), default="")

    def view(self) -> PeeringView:
        projects = {self.project or DEFAULT_PROJECT, *map(project_of, self.slices)}
        return self.view_as(PeeringView, projects=sorted(projects))


class AgentRow(Base):
    """The newest epoch of a node's agent; older ones are refused, even after a restart of this service."""

    __tablename__ = "agents"

    node: Mapped[str] = mapped_column(String(63), primary_key=True)
    epoch: Mapped[int] = mapped_column(BigInteger)


class WiringRow(Base):
    """A supernode's graph as last fetched: its spec's numbers, deviations of the drawing, and moved cables."""

    __tablename__ = "wirings"

    supernode: Mapped[str] = mapped_column(String(63), primary_key=True)
    document: Mapped[dict[str, Any]] = mapped_column(JSON)


class FenceRow(Base):
    """A node that may still hold an ended slice's program, and the key it would use. There is one for each key, since a
    new slice of that name has another."""

    __tablename__ = "fences"

    slice: Mapped[str] = mapped_column(String(253), primary_key=True)
    node: Mapped[str] = mapped_column(String(63), primary_key=True)
    isolation: Mapped[str] = mapped_column(String(16), primary_key=True)
    isolation_key: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    generation: Mapped[int] = mapped_column(Integer)


class SliceNameRow(Base):
    """The last generation of an ended slice of this name that agents may have heard of."""

    __tablename__ = "slice_names"

    name: Mapped[str] = mapped_column(String(253), primary_key=True)
    generation: Mapped[int] = mapped_column(Integer)


def built_properties(link: Link) -> dict[str, Any]:
    """The parts of a link's view that never change."""
    return {
        "plane": link.plane, "kind": link.kind, "node": link.node, "sub_plane": link.sub_plane,
        "ends": list(link.ends), "built_gbps": link.capacity_gbps,
    }  # fmt: skip
