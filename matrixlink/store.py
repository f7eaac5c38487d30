"""Tables of MatrixLink and the questions asked of them.

`slices` is what was wished and how far it is, `programs` what each agent is asked to hold, `links` the ports that
agents reported below their rate, `agents` the newest life of each. `fences` remembers nodes that could not be asked to
clear a slice before it ended: their isolation key is not given out again until they have. `slice_names` keeps the last
generation of every name, so that a slice made again under an old name is never older than what an absent agent still
holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import JSON, BigInteger, Float, Integer, String, UniqueConstraint, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from matrixlink.contract import DesiredProgram, LinkView, ProgramView, SliceView
from matrixlink.fabric.link import health
from matrixlink.network_slice import SLICE_STATES
from matrixlink.qos import TERMS, QosClass
from matrixresource.topology import Link
from matrixresource.vocabulary.errors import InsufficientCapacity
from matrixresource.vocabulary.planes import Plane
from matrixresource.vocabulary.records import Records, ResourceRow, find, journal_tables

PARTITION_KEYS = range(2, 0x7FFF)
"""Partition keys are 15 bits wide; 0 is none and 0x7FFF everybody (as in InfiniBand; UB's own width is unpublished)."""
VNIS = range(4096, 1 << 24)
"""VXLAN network identifiers are 24 bits wide (RFC 7348); the lowest are left to the provider."""


class Base(DeclarativeBase):
    pass


journal_tables(Base.metadata)


class SliceRow(ResourceRow, Base):
    """One slice. `program_generation` is the newest generation that agents were asked for; `kept` the part of its floor
    that it has now; `ports_seen` the ports below rate that its routes were made around; `view` its FabricView."""

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
    isolation: Mapped[str] = mapped_column(String(16))
    isolation_key: Mapped[int] = mapped_column(Integer)
    admitted_order: Mapped[int] = mapped_column(BigInteger)
    kept: Mapped[float] = mapped_column(Float, default=1.0)
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
        )  # fmt: skip

    @property
    def rank(self) -> tuple[int, int]:
        """Who keeps a floor when not all can: the better class, then the older slice."""
        return TERMS[QosClass(self.qos_class)].rank, self.admitted_order

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
            isolation=self.isolation,
            isolation_key=self.isolation_key,
            programmed=self.programmed or 0,
            view_generation=self.view_generation or 0,
        )


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
    """A link that some agent once reported below its rate; its state is Up, Degraded or Down."""

    __tablename__ = "links"
    kind = "link"

    node: Mapped[str] = mapped_column(String(63), index=True)
    port: Mapped[str] = mapped_column(String(40))
    gbps: Mapped[float] = mapped_column(Float)
    built: Mapped[dict[str, Any]] = mapped_column(JSON)

    def view(self) -> LinkView:
        return LinkView.model_validate(self.common() | self.built | {"gbps": self.gbps})


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
    """The last generation that a slice of this name has had."""

    __tablename__ = "slice_names"

    name: Mapped[str] = mapped_column(String(253), primary_key=True)
    generation: Mapped[int] = mapped_column(Integer)


def built_of(link: Link) -> dict[str, Any]:
    """What never changes of a link, as its view has it."""
    return {
        "plane": link.plane, "kind": link.kind, "node": link.node, "sub_plane": link.sub_plane,
        "ends": list(link.ends), "built_gbps": link.capacity_gbps,
    }  # fmt: skip


class LinkStore:
    """The tables, asked in the words of the domain. Every method works inside the caller's transaction."""

    def __init__(self, records: Records) -> None:
        self.records = records

    def transaction(self, dry: bool = False) -> AbstractContextManager[Session]:
        return self.records.transaction(dry)

    def reading(self) -> AbstractContextManager[Session]:
        return self.records.reading()

    def slice(self, session: Session, name: str) -> SliceRow:
        return find(session, SliceRow, name)

    def slices(self, session: Session) -> list[SliceRow]:
        return list(session.scalars(select(SliceRow).order_by(SliceRow.name)))

    def of_instance(self, session: Session, instance: str) -> list[SliceRow]:
        return list(session.scalars(select(SliceRow).where(SliceRow.instance == instance).order_by(SliceRow.name)))

    def programs(self, session: Session, slice: str | None = None) -> list[ProgramRow]:
        asked = select(ProgramRow).order_by(ProgramRow.name)
        return list(session.scalars(asked if slice is None else asked.where(ProgramRow.slice == slice)))

    def programs_by_node(self, session: Session, nodes: list[str]) -> dict[str, list[ProgramRow]]:
        found: dict[str, list[ProgramRow]] = {node: [] for node in nodes}
        for row in session.scalars(select(ProgramRow).where(ProgramRow.node.in_(nodes)).order_by(ProgramRow.name)):
            found[row.node].append(row)
        return found

    def agents(self, session: Session, nodes: list[str]) -> dict[str, AgentRow]:
        return {row.node: row for row in session.scalars(select(AgentRow).where(AgentRow.node.in_(nodes)))}

    def fences_by_node(self, session: Session, nodes: list[str]) -> dict[str, list[FenceRow]]:
        found: dict[str, list[FenceRow]] = {}
        for row in session.scalars(select(FenceRow).where(FenceRow.node.in_(nodes))):
            found.setdefault(row.node, []).append(row)
        return found

    def links(self, session: Session) -> list[LinkRow]:
        return list(session.scalars(select(LinkRow).order_by(LinkRow.name)))

    def links_named(self, session: Session, names: Iterable[str]) -> dict[str, LinkRow]:
        """The rows there are of these links, asked for at once."""
        wanted = list(names)
        rows = session.scalars(select(LinkRow).where(LinkRow.name.in_(wanted))) if wanted else ()
        return {row.name: row for row in rows}

    def set_port(self, session: Session, link: Link, gbps: float, known: dict[str, LinkRow]) -> None:
        """Write down what a link carries now. `known`: all rows that there are of the links being written."""
        row, state = known.get(link.name), health(gbps, link.capacity_gbps)
        if row is None:
            row = known[link.name] = LinkRow(
                name=link.name, node=link.node, port=link.port, built=built_of(link), gbps=gbps, state=state
            )
            session.add(row)
        else:
            row.gbps, row.state = gbps, state

    def free_key(self, session: Session, isolation: str) -> int:
        """The lowest key of its kind that no slice holds and no fenced node might still use."""
        taken = set(session.scalars(select(SliceRow.isolation_key).where(SliceRow.isolation == isolation)))
        taken |= set(session.scalars(select(FenceRow.isolation_key).where(FenceRow.isolation == isolation)))
        keys = VNIS if isolation == "vni" else PARTITION_KEYS
        free = next((key for key in keys if key not in taken), None)
        if free is None:
            raise InsufficientCapacity(f"every {isolation} is taken", field="isolation")
        return free

    def next_generation(self, session: Session, name: str, beyond: int = 0) -> int:
        """One more than any slice of this name has ever had, and more than `beyond`."""
        row = session.get(SliceNameRow, name)
        if row is None:
            row = SliceNameRow(name=name, generation=0)
            session.add(row)
        row.generation = max(row.generation, beyond) + 1
        return row.generation
