"""LinkStore: the queries on MatrixLink's tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, cast

from sqlalchemy import (
    CursorResult,
    Table,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.orm import Session

from matrixcommon.model.errors import InsufficientCapacity
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.persistence.bulk_writes import fetch_one
from matrixcommon.persistence.database_session import Database, ResourceRow, Store, find
from matrixcommon.persistence.table_cache import CachedTable, all_rows, mapping_of, rows_where
from matrixlink.store.tables import (
    RESTORED,
    AgentRow,
    DrainRow,
    EventRow,
    FenceRow,
    LinkRow,
    PeeringRow,
    ProgramRow,
    SliceNameRow,
    SliceRow,
    WiringRow,
    built_properties,
)
from matrixresource.topology import Link

PARTITION_KEYS = range(2, 0x7FFF)
"""Partition keys are 15 bits wide; 0 is none and 0x7FFF everybody (as in InfiniBand; UB's own width is unpublished)."""
VNIS = range(4096, 1 << 24)
"""VXLAN network identifiers are 24 bits wide (RFC 7348); the lowest ones are left to the provider."""

EVENTS_MAX = 5000
"""The number of events kept; the oldest beyond are deleted."""
SLICE_NAMES = cast(Table, SliceNameRow.__table__)
SLICE_NAMES_MAX = 10_000
"""The number of names of ended slices kept; beyond it, those with the lowest generations are forgotten."""
ANY_NAME = "*"
"""Stands for all forgotten names, with the highest generation that any of them had."""


class LinkStore(Store):
    """Everything except the change log, events and names of ended slices is cached in memory between transactions."""

    def __init__(self, records: Database) -> None:
        super().__init__(records)
        records.cache_tables(
            CachedTable(SliceRow, by=("instance",)),
            CachedTable(ProgramRow, by=("slice", "node", "action")),
            CachedTable(LinkRow),
            CachedTable(DrainRow),
            CachedTable(PeeringRow),
            CachedTable(AgentRow),
            CachedTable(FenceRow, by=("slice", "node", "isolation")),
        )

    # -- slices -------------------------------------------------------------------------------------------------------

    def slice(self, session: Session, name: str) -> SliceRow:
        return find(session, SliceRow, name)

    def slices(self, session: Session) -> list[SliceRow]:
        return sorted(all_rows(session, SliceRow), key=_row_name)

    def slices_named(self, session: Session, names: Iterable[str]) -> list[SliceRow]:
        """Existing slices among these names, sorted by name."""
        return sorted(rows_where(session, SliceRow, "name", *names), key=_row_name)

    def of_instance(self, session: Session, instance: str) -> list[SliceRow]:
        return sorted(rows_where(session, SliceRow, "instance", instance), key=_row_name)

    def first_generation(self, session: Session, name: str) -> int:
        """For a new slice: one above any generation that an agent has heard of for this name."""
        asked = f"SELECT max(generation) FROM {SLICE_NAMES.name} WHERE name IN (%s, %s)"
        current = fetch_one(session.connection(), asked, (name, ANY_NAME))
        return 1 + (0 if current is None or current[0] is None else int(current[0]))

    def remember_generation(self, session: Session, row: SliceRow) -> None:
        """Record the generation of an ending slice: a new one of the same name must start above it."""
        asked = update(SLICE_NAMES).where(SLICE_NAMES.c.name == row.name).values(generation=row.generation)
        if not cast(CursorResult[Any], session.execute(asked)).rowcount:
            session.execute(insert(SLICE_NAMES).values(name=row.name, generation=row.generation))

    def forget_generations(self, session: Session, most: int = SLICE_NAMES_MAX) -> int:
        """Forget names beyond `most` and return how many: a new slice of any such name starts above all of them."""
        over = (
            session.scalar(select(func.count()).select_from(SLICE_NAMES).where(SLICE_NAMES.c.name != ANY_NAME)) or 0
        ) - most
        if over <= 0:
            return 0
        oldest = (
            select(SLICE_NAMES)
            .where(SLICE_NAMES.c.name != ANY_NAME)
            .order_by(SLICE_NAMES.c.generation, SLICE_NAMES.c.name)
            .limit(over)
        )
        forgotten = session.execute(oldest).all()
        session.execute(delete(SLICE_NAMES).where(SLICE_NAMES.c.name.in_([row.name for row in forgotten])))
        highest = max(row.generation for row in forgotten)
        before = session.execute(
            select(SLICE_NAMES.c.generation).where(SLICE_NAMES.c.name == ANY_NAME)
        ).scalar_one_or_none()
        if before is None:
            session.execute(insert(SLICE_NAMES).values(name=ANY_NAME, generation=highest))
        elif highest > before:
            session.execute(update(SLICE_NAMES).where(SLICE_NAMES.c.name == ANY_NAME).values(generation=highest))
        return len(forgotten)

    # -- drains, peerings, fences -------------------------------------------------------------------------------------

    def drains(self, session: Session, state: str | None = None) -> list[DrainRow]:
        return sorted((row for row in all_rows(session, DrainRow) if state in (None, row.state)), key=_row_name)

    def active_drains(self, session: Session) -> list[DrainRow]:
        """Drains whose elements are not in service."""
        return [row for row in self.drains(session) if row.state != RESTORED]

    def peerings(self, session: Session) -> list[PeeringRow]:
        return sorted(all_rows(session, PeeringRow), key=_row_name)

    def peerings_named(self, session: Session, names: Iterable[str]) -> list[PeeringRow]:
        """Existing peerings among these names, sorted by name."""
        return sorted(rows_where(session, PeeringRow, "name", *names), key=_row_name)

    def fence(self, session: Session, row: SliceRow, program: ProgramRow) -> None:
        """Record that a node may still hold a slice that has ended."""
        self._fence(session, row.name, program.node, row.isolation, row.isolation_key, program.generation)

    def fence_key(self, session: Session, slice: str, isolation: str, isolation_key: int) -> None:
        """Record that the nodes that may still hold a slice may also use this key."""
        for row in rows_where(session, FenceRow, "slice", slice):
            self._fence(session, slice, row.node, isolation, isolation_key, row.generation)

    def _fence(
        self, session: Session, slice: str, node: str, isolation: str, isolation_key: int, generation: int
    ) -> None:
        stored = session.get(FenceRow, (slice, node, isolation, isolation_key))
        if stored is None:
            stored = FenceRow(slice=slice, node=node, isolation=isolation, isolation_key=isolation_key)
            stored.generation = generation
            session.add(stored)
        stored.generation = max(stored.generation, generation)

    def fences_by_node(self, session: Session, nodes: Iterable[str]) -> dict[str, list[FenceRow]]:
        found: dict[str, list[FenceRow]] = {}
        for row in rows_where(session, FenceRow, "node", *nodes):
            found.setdefault(row.node, []).append(row)
        return found

    def fenced(self, session: Session) -> bool:
        """Whether any node may still hold an ended slice."""
        return bool(all_rows(session, FenceRow))

    # -- programs -----------------------------------------------------------------------------------------------------

    def slices_clearing(self, session: Session) -> set[str]:
        """The slices of which some agent is to clear a program."""
        return {row.slice for row in rows_where(session, ProgramRow, "action", "clear")}

    def programs(self, session: Session, slice: str | None = None) -> list[ProgramRow]:
        found = all_rows(session, ProgramRow) if slice is None else rows_where(session, ProgramRow, "slice", slice)
        return sorted(found, key=_row_name)

    def programs_by_node(self, session: Session, nodes: Iterable[str]) -> dict[str, list[ProgramRow]]:
        found: dict[str, list[ProgramRow]] = {node: [] for node in nodes}
        for row in sorted(rows_where(session, ProgramRow, "node", *found), key=_row_name):
            found[row.node].append(row)
        return found

    # -- agents and links ---------------------------------------------------------------------------------------------

    def agents(self, session: Session, nodes: Iterable[str]) -> dict[str, AgentRow]:
        return {row.node: row for row in rows_where(session, AgentRow, "node", *nodes)}

    def supernodes(self, session: Session) -> list[str]:
        """Supernodes from which an agent was ever heard, except forgotten ones."""
        return sorted({NodeName(row.node).supernode for row in all_rows(session, AgentRow)})

    def forget_supernode(self, session: Session, name: str) -> None:
        """Delete its agents' epochs, its ports' conditions and its fences: none of its cards exists any more."""
        inside = f"{name}-"
        reported: list[AgentRow | LinkRow | FenceRow] = [*all_rows(session, AgentRow), *all_rows(session, LinkRow)]
        for row in [*reported, *all_rows(session, FenceRow)]:
            if row.node.startswith(inside):
                session.delete(row)
        if (wiring := session.get(WiringRow, name)) is not None:
            session.delete(wiring)

    def wirings(self, session: Session) -> dict[str, dict[str, Any]]:
        """The stored graphs of supernodes, by supernode."""
        return {row.supernode: row.document for row in session.scalars(select(WiringRow))}

    def links(self, session: Session) -> list[LinkRow]:
        return sorted(all_rows(session, LinkRow), key=_row_name)

    def new_link(self, session: Session, link: Link) -> LinkRow:
        """A row for a link that has none, at full rate."""
        row: LinkRow = mapping_of(LinkRow).made(
            name=link.name,
            node=link.node,
            port=link.port,
            built=built_properties(link),
            gbps=link.capacity_gbps,
            state="Up",
        )
        session.add(row)
        return row

    def events(self, session: Session) -> list[EventRow]:
        return list(session.scalars(select(EventRow).order_by(EventRow.at, EventRow.name)))

    def record_event(
        self,
        session: Session,
        about: str,
        reason: str,
        message: str,
        at: float,
        warning: bool = False,
        project: str = "",
    ) -> None:
        """Add an event. `project`: the project it concerns; None for hardware."""
        type = "Warning" if warning else "Normal"
        EventRow.note(session, at, type, reason, message[:1000], about=about, project=project)

    def forget_events(self, session: Session) -> int:
        """Delete the oldest events beyond the number kept. Return how many."""
        over = (session.scalar(select(func.count()).select_from(EventRow)) or 0) - EVENTS_MAX
        if over <= 0:
            return 0
        for row in session.scalars(select(EventRow).order_by(EventRow.at).limit(over)):
            session.delete(row)
        return over

    def free_key(self, session: Session, isolation: str, current: Collection[int], fenced: bool = True) -> int:
        """The lowest key of its kind that nobody holds and that no fenced node (if there may be any) might still
        use."""
        taken = current
        if fenced:
            taken = {row.isolation_key for row in rows_where(session, FenceRow, "isolation", isolation)}.union(current)
        keys = VNIS if isolation == "vni" else PARTITION_KEYS
        free = next((key for key in keys if key not in taken), None)
        if free is None:
            raise InsufficientCapacity(f"every {isolation} is in use", field="isolation")
        return free


def _row_name(row: ResourceRow) -> str:
    return row.name
