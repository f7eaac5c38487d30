"""Tables of MatrixLink and the questions asked of them.

`slices` is what was wished and how far it is, `programs` what each agent is asked to hold, `links` the ports that
agents reported or probes found below their rate, `events` what happened, `agents` the newest life of each. `fences`
remembers nodes that could not be asked to clear a slice before it ended: their isolation key is not given out again
until they have. `slice_names` keeps the last generation of slices that are gone, so that one made again under an old
name is never older than what an absent agent still holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CursorResult,
    Float,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from matrixlink.contract import DesiredProgram, EventView, LinkView, ProgramView, SliceView
from matrixlink.drain_contract import DrainView
from matrixlink.network_slice import SLICE_STATES
from matrixlink.peering_contract import PeeringView, SecurityRule
from matrixlink.protection import Protection
from matrixlink.qos import QosClass
from matrixresource.topology import Link
from matrixresource.vocabulary.bulk import first_row
from matrixresource.vocabulary.errors import InsufficientCapacity
from matrixresource.vocabulary.keeping import Keep, every, kept_by, shape_of
from matrixresource.vocabulary.names import NodeName
from matrixresource.vocabulary.planes import Plane
from matrixresource.vocabulary.quantities import timestamp
from matrixresource.vocabulary.records import Records, ResourceRow, find, journal_tables

PARTITION_KEYS = range(2, 0x7FFF)
"""Partition keys are 15 bits wide; 0 is none and 0x7FFF everybody (as in InfiniBand; UB's own width is unpublished)."""
VNIS = range(4096, 1 << 24)
"""VXLAN network identifiers are 24 bits wide (RFC 7348); the lowest are left to the provider."""


PENDING, PROGRAMMING_PEERS, PEERED = "PendingAcceptance", "Programming", "Active"
PEERING_DELETING = "Deleting"
"""A peering waits for consent, then for every agent's acknowledgement; Deleting, for every agent to be rid of it."""

DRAINING, DRAINED = "Draining", "Drained"
"""A drain waits until no agent holds a route that crosses its elements; then maintenance may begin."""
LANES = {0.5: "1/2", 0.25: "1/4"}
"""What an L1 chip's port degrades to: a half or a quarter of its lanes (Ascend/mind-cluster fault codes). Other shares
are shown as rates: no source says that a port cannot have them."""

T = TypeVar("T")

EVENTS_MAX = 5000
"""The oldest events are forgotten beyond this many."""


class Base(DeclarativeBase):
    pass


journal_tables(Base.metadata)


class SliceRow(ResourceRow, Base):
    """One slice. `program_generation` is the newest generation that agents were asked for; `kept` the part of its floor
    that it has now; `unprotected` why its protection is lost; `ports_seen` the ports below rate that its routes were
    made around; `view` its FabricView."""

    __tablename__ = "slices"
    __table_args__ = (UniqueConstraint("isolation", "isolation_key"),)
    kind = "slice"

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
    def wish(self) -> tuple[object, ...]:
        """All that a repeated PUT must agree on to be no news."""
        return (
            self.project, self.labels or {}, self.allocation, self.instance, self.plane, sorted(self.members),
            self.qos_class, self.floor_gbps, self.ceiling_gbps, self.weight, self.latency_bound_us,
            self.protection, self.security_rules or [],
        )  # fmt: skip

    @property
    def protected(self) -> bool | None:
        """Whether the floor would survive one more failure of its level; None where nothing was asked."""
        return None if (self.protection or "none") == "none" else not self.unprotected

    def move(self, state: str) -> None:
        self.state = SLICE_STATES.check(self.state, state)

    def view(self) -> SliceView:
        return SliceView(
            **self.common(),
            allocation=self.allocation,
            instance=self.instance,
            plane=Plane(self.plane),
            members=self.members,
            qos_class=QosClass(self.qos_class),
            floor_gbps_per_npu=self.floor_gbps,
            floor_kept_gbps_per_npu=round(self.floor_gbps * (1.0 if self.kept is None else self.kept), 6),
            ceiling_gbps_per_npu=self.ceiling_gbps,
            weight=self.weight,
            latency_bound_us=self.latency_bound_us,
            protection=Protection(self.protection or Protection.NONE),
            protected=self.protected,
            security_rules=[SecurityRule.model_validate(rule) for rule in self.security_rules or ()],
            isolation=self.isolation,
            isolation_key=self.isolation_key,
            programmed=self.programmed or 0,
            view_generation=self.view_generation or 0,
        )

    def shown(self) -> SliceView:
        return cast(SliceView, super().shown())


class ProgramRow(ResourceRow, Base):
    """What one agent is asked to hold of one slice, and how it stands: Pending, Programmed, Failed, or, when it is to
    be cleared, Clearing and Cleared."""

    __tablename__ = "programs"
    kind = "program"

    slice: Mapped[str] = mapped_column(String(253), index=True)
    node: Mapped[str] = mapped_column(String(63), index=True)
    action: Mapped[str] = mapped_column(String(8))
    body: Mapped[dict[str, Any]] = mapped_column(JSON)
    acknowledged: Mapped[int] = mapped_column(Integer, default=0)
    message: Mapped[str] = mapped_column(String(300), default="")

    def view(self) -> ProgramView:
        return ProgramView.model_validate(
            self.common()
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
    """A link that was once below its rate; its state is Up, Degraded or Down. `reported_gbps` is what its port says and
    `probed_gbps` what probes found (None: its rate); `gbps` is what is believed, 0 while it is `damped`. `penalty` is
    that of its flapping, as it was at `penalty_at`."""

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
    """The part that probes found at fault: this link, or a switch that it leads to."""
    penalty: Mapped[float] = mapped_column(Float, default=0.0, server_default="0")
    penalty_at: Mapped[float] = mapped_column(Float, default=0.0, server_default="0")
    damped_until: Mapped[float | None] = mapped_column(Float)

    @property
    def built_gbps(self) -> float:
        return float(self.built["built_gbps"])

    @property
    def said_gbps(self) -> float:
        """The least of what the port says and what probes found: the link's condition but for damping."""
        said = self.built_gbps if (reported := self.reported_gbps) is None else reported
        return said if (probed := self.probed_gbps) is None else min(said, probed)

    def view(self) -> LinkView:
        until = self.damped_until
        lanes = LANES.get(round(self.said_gbps / self.built_gbps, 6))
        return LinkView.model_validate(
            self.common() | self.built
            | {"gbps": self.gbps, "reason": self.reason or "", "lanes": lanes,
               "damped_until": None if until is None else timestamp(until)}
        )  # fmt: skip


class EventRow(ResourceRow, Base):
    """Something that happened to a link, a switch or a slice, in words."""

    __tablename__ = "events"
    kind = "event"

    about: Mapped[str] = mapped_column(String(253), index=True)
    type: Mapped[str] = mapped_column(String(10))
    reason: Mapped[str] = mapped_column(String(60))
    message: Mapped[str] = mapped_column(Text)
    at: Mapped[float] = mapped_column(Float, index=True)

    def view(self) -> Any:
        return EventView(
            name=self.name, about=self.about, at=timestamp(self.at), reason=self.reason, message=self.message,
            type="Warning" if self.type == "Warning" else "Normal", etag=self.etag,
        )  # fmt: skip


class DrainRow(ResourceRow, Base):
    """Elements that are taken out of use, and the ports that go with them, by node or leaf. `waiting_for` programs may
    still send over them."""

    __tablename__ = "drains"
    kind = "drain"

    elements: Mapped[list[str]] = mapped_column(JSON)
    ports: Mapped[dict[str, list[str]]] = mapped_column(JSON)
    reason: Mapped[str] = mapped_column(String(300), default="")
    even_if_floors_break: Mapped[bool] = mapped_column(Boolean, default=False)
    waiting_for: Mapped[int] = mapped_column(Integer, default=0)
    message: Mapped[str] = mapped_column(String(300), default="")

    @property
    def wish(self) -> tuple[object, ...]:
        return self.project, self.labels or {}, self.elements, self.reason, self.even_if_floors_break

    def view(self) -> DrainView:
        return DrainView(
            **self.common(),
            elements=self.elements,
            reason=self.reason,
            even_if_floors_break=self.even_if_floors_break,
            ports=sum(map(len, self.ports.values())),
            waiting_for=self.waiting_for or 0,
            message=self.message or "",
        )


class PeeringRow(ResourceRow, Base):
    """Two slices of a plane that may reach each other, over a key of the peering's own."""

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
        return PeeringView(
            **self.common(),
            slices=self.slices,
            plane=Plane(self.plane),
            isolation=self.isolation,
            isolation_key=self.isolation_key,
            accepted_by=self.accepted_by,
            security_rules=[SecurityRule.model_validate(rule) for rule in self.security_rules],
            message=self.message or "",
        )


class AgentRow(Base):
    """The newest life of a node's agent; older ones are refused, also after our own restart."""

    __tablename__ = "agents"

    node: Mapped[str] = mapped_column(String(63), primary_key=True)
    epoch: Mapped[int] = mapped_column(BigInteger)


class FenceRow(Base):
    """A node that may still hold an ended slice's program, and the key it would use."""

    __tablename__ = "fences"

    slice: Mapped[str] = mapped_column(String(253), primary_key=True)
    node: Mapped[str] = mapped_column(String(63), primary_key=True)
    generation: Mapped[int] = mapped_column(Integer)
    isolation: Mapped[str] = mapped_column(String(16))
    isolation_key: Mapped[int] = mapped_column(Integer)


class SliceNameRow(Base):
    """The last generation that agents may have heard of a slice of this name which is gone."""

    __tablename__ = "slice_names"

    name: Mapped[str] = mapped_column(String(253), primary_key=True)
    generation: Mapped[int] = mapped_column(Integer)


NAMES = cast(Table, SliceNameRow.__table__)


def built_of(link: Link) -> dict[str, Any]:
    """What never changes of a link, as its view has it."""
    return {
        "plane": link.plane, "kind": link.kind, "node": link.node, "sub_plane": link.sub_plane,
        "ends": list(link.ends), "built_gbps": link.capacity_gbps,
    }  # fmt: skip


class LinkStore:
    """The tables, asked in the words of the domain. Every method works inside the caller's transaction. All but the
    journal, the events and the names of slices that are gone is kept in memory between transactions."""

    def __init__(self, records: Records) -> None:
        self.records = records
        records.keep(
            Keep(SliceRow, by=("instance",)),
            Keep(ProgramRow, by=("slice", "node", "action")),
            Keep(LinkRow),
            Keep(DrainRow),
            Keep(PeeringRow),
            Keep(AgentRow),
            Keep(FenceRow, by=("slice", "node", "isolation")),
        )

    def transaction(self, dry: bool = False) -> AbstractContextManager[Session]:
        return self.records.transaction(dry)

    def reading(self) -> AbstractContextManager[Session]:
        return self.records.reading()

    # -- slices -------------------------------------------------------------------------------------------------------

    def slice(self, session: Session, name: str) -> SliceRow:
        return find(session, SliceRow, name)

    def slices(self, session: Session) -> list[SliceRow]:
        return sorted(every(session, SliceRow), key=_name)

    def slices_named(self, session: Session, names: Iterable[str]) -> list[SliceRow]:
        """Those of the named slices that are there, in the order of their names."""
        return sorted(_among(session, SliceRow, "name", names), key=_name)

    def of_instance(self, session: Session, instance: str) -> list[SliceRow]:
        return sorted(_where(session, SliceRow, "instance", instance), key=_name)

    def first_generation(self, session: Session, name: str) -> int:
        """For a slice made anew: one more than any slice of this name has had that some agent heard of."""
        held = first_row(session.connection(), f"SELECT generation FROM {NAMES.name} WHERE name = %s", (name,))
        return 1 + (0 if held is None else int(held[0]))

    def remember_generation(self, session: Session, row: SliceRow) -> None:
        """A slice that agents have heard of is going: one made again under its name must be younger."""
        asked = update(NAMES).where(NAMES.c.name == row.name).values(generation=row.generation)
        if not cast(CursorResult[Any], session.execute(asked)).rowcount:
            session.execute(insert(NAMES).values(name=row.name, generation=row.generation))

    # -- drains, peerings, fences -------------------------------------------------------------------------------------

    def drains(self, session: Session, state: str | None = None) -> list[DrainRow]:
        return sorted((row for row in every(session, DrainRow) if state in (None, row.state)), key=_name)

    def peerings(self, session: Session) -> list[PeeringRow]:
        return sorted(every(session, PeeringRow), key=_name)

    def fence(self, session: Session, row: SliceRow, program: ProgramRow) -> None:
        """A node may go on holding a slice that has ended."""
        held = session.get(FenceRow, (row.name, program.node))
        if held is None:
            held = FenceRow(
                slice=row.name, node=program.node, generation=program.generation, isolation=row.isolation,
                isolation_key=row.isolation_key,
            )  # fmt: skip
            session.add(held)
        held.generation, held.isolation, held.isolation_key = program.generation, row.isolation, row.isolation_key

    def fences_of(self, session: Session, slice: str) -> bool:
        """Whether some node may still hold this ended slice."""
        return bool(_where(session, FenceRow, "slice", slice))

    def fences_by_node(self, session: Session, nodes: Iterable[str]) -> dict[str, list[FenceRow]]:
        found: dict[str, list[FenceRow]] = {}
        for row in _among(session, FenceRow, "node", nodes):
            found.setdefault(row.node, []).append(row)
        return found

    def fenced(self, session: Session) -> bool:
        """Whether any node may still hold an ended slice."""
        return bool(every(session, FenceRow))

    # -- programs -----------------------------------------------------------------------------------------------------

    def clearing(self, session: Session) -> set[str]:
        """The slices of which some agent is asked to clear a program."""
        return {row.slice for row in _where(session, ProgramRow, "action", "clear")}

    def programs(self, session: Session, slice: str | None = None) -> list[ProgramRow]:
        found = every(session, ProgramRow) if slice is None else _where(session, ProgramRow, "slice", slice)
        return sorted(found, key=_name)

    def programs_by_node(self, session: Session, nodes: Iterable[str]) -> dict[str, list[ProgramRow]]:
        found: dict[str, list[ProgramRow]] = {node: [] for node in nodes}
        for row in sorted(_among(session, ProgramRow, "node", found), key=_name):
            found[row.node].append(row)
        return found

    # -- agents and links ---------------------------------------------------------------------------------------------

    def agents(self, session: Session, nodes: Iterable[str]) -> dict[str, AgentRow]:
        return {row.node: row for row in _among(session, AgentRow, "node", nodes)}

    def supernodes(self, session: Session) -> list[str]:
        """Those in which some agent was ever heard, as far as they were not forgotten."""
        return sorted({NodeName(row.node).supernode for row in every(session, AgentRow)})

    def forget_supernode(self, session: Session, name: str) -> None:
        """Its agents' lives, its ports' conditions and its fences: none of its cards is there any more."""
        inside = f"{name}-"
        told: list[AgentRow | LinkRow | FenceRow] = [*every(session, AgentRow), *every(session, LinkRow)]
        for row in [*told, *every(session, FenceRow)]:
            if row.node.startswith(inside):
                session.delete(row)

    def links(self, session: Session) -> list[LinkRow]:
        return sorted(every(session, LinkRow), key=_name)

    def links_named(self, session: Session, names: Iterable[str]) -> dict[str, LinkRow]:
        """The rows there are of these links, asked for at once."""
        return {row.name: row for row in _among(session, LinkRow, "name", names)}

    def new_link(self, session: Session, link: Link) -> LinkRow:
        """A row for a link that has none: whole."""
        row: LinkRow = shape_of(LinkRow).made(
            name=link.name, node=link.node, port=link.port, built=built_of(link), gbps=link.capacity_gbps, state="Up"
        )
        session.add(row)
        return row

    def events(self, session: Session) -> list[EventRow]:
        return list(session.scalars(select(EventRow).order_by(EventRow.at, EventRow.name)))

    def say(self, session: Session, about: str, reason: str, message: str, at: float, warning: bool = False) -> None:
        """Note an event."""
        asked = select(func.count()).select_from(EventRow).where(EventRow.about == about)
        with session.no_autoflush:
            count = session.scalar(asked) or 0
        count += sum(isinstance(each, EventRow) and each.about == about for each in session.new)
        session.add(
            EventRow(
                name=f"{about}.{int(at * 1000):x}.{count}", about=about, type="Warning" if warning else "Normal",
                reason=reason, message=message[:1000], at=at, state="Seen",
            )
        )  # fmt: skip

    def forget_events(self, session: Session) -> int:
        """Drop the oldest events beyond what is kept; how many."""
        over = (session.scalar(select(func.count()).select_from(EventRow)) or 0) - EVENTS_MAX
        if over <= 0:
            return 0
        for row in session.scalars(select(EventRow).order_by(EventRow.at).limit(over)):
            session.delete(row)
        return over

    def free_key(self, session: Session, isolation: str, held: Collection[int], fenced: bool = True) -> int:
        """The lowest key of its kind that nobody holds and no fenced node (if there may be any) might still use."""
        taken = held
        if fenced:
            taken = {row.isolation_key for row in _where(session, FenceRow, "isolation", isolation)}.union(held)
        keys = VNIS if isolation == "vni" else PARTITION_KEYS
        free = next((key for key in keys if key not in taken), None)
        if free is None:
            raise InsufficientCapacity(f"every {isolation} is taken", field="isolation")
        return free


def _name(row: ResourceRow) -> str:
    return row.name


def _where(session: Session, kind: type[T], attribute: str, value: str) -> list[T]:
    """The rows of a kind with that value; in no order."""
    if (kept := kept_by(session)) is not None:
        return kept.where(kind, attribute, value)
    return list(session.scalars(select(kind).where(getattr(kind, attribute) == value)))


def _among(session: Session, kind: type[T], attribute: str, values: Iterable[str]) -> list[T]:
    """The same for one of several values; `attribute` may be the key."""
    wanted = dict.fromkeys(values)
    if (kept := kept_by(session)) is None:
        return list(session.scalars(select(kind).where(getattr(kind, attribute).in_(wanted)))) if wanted else []
    if kept.is_by(kind, attribute):
        return [row for value in wanted for row in kept.where(kind, attribute, value)]
    return [row for value in wanted if (row := kept.get(kind, value)) is not None]
