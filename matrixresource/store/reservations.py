"""Reservations in time: promised now, protected until their start, then held.

Until its start a reservation is a promise in the ledger. Then it becomes an unbound allocation of the same name;
requests that name it in `reservation` draw on that. At its end, what nobody took is released.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from sqlalchemy import JSON, Float, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from matrixcommon.model.quantities import timestamp
from matrixcommon.model.resource_key import DEFAULT_PROJECT
from matrixcommon.model.state_machine import State, StateMachine
from matrixcommon.persistence.database_session import ResourceRow
from matrixcommon.persistence.table_cache import all_rows
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.reservations import ReservationView
from matrixresource.scheduler.model.request import Placement
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.tables import Base

RESERVATION_STATES = StateMachine(
    "reservation",
    start="Promised",
    states=[
        State("Promised", "protected from allocations that would still be there at its start"),
        State(
            "Waiting",
            "its start has come; not all of its nodes are free, and nowhere else has room",
        ),
        State("Active", "held by an allocation of the same name, from which others may draw"),
        State("Ended", "its end has come, or all of it has been drawn"),
    ],
    moves={
        "Promised": ["Waiting", "Active", "Ended"],
        "Waiting": ["Active", "Ended"],
        "Active": ["Ended"],
        "Ended": [],
    },
)


class ReservationRow(ResourceRow, Base):
    """One reservation. `place` names its nodes and what it has of each."""

    __tablename__ = "reservations"
    kind = "reservation"
    MOVES = RESERVATION_STATES

    starts_at: Mapped[float] = mapped_column(Float)
    ends_at: Mapped[float] = mapped_column(Float)
    request: Mapped[dict[str, Any]] = mapped_column(JSON)
    place: Mapped[dict[str, Any]] = mapped_column(JSON)

    @property
    def promised(self) -> bool:
        return self.state in ("Promised", "Waiting")

    def has_period(self, start: float, end: float) -> bool:
        """Whether it has this start and end, compared as they are shown: in whole milliseconds."""
        return abs(self.starts_at - start) < 1e-3 and abs(self.ends_at - end) < 2e-3

    def spec(self) -> AllocationRequest:
        return AllocationRequest.from_stored(self.request)

    @property
    def nodes(self) -> set[str]:
        """The nodes of which it has anything."""
        return {entry[0] for entries in self.place.values() for entry in entries}

    def view(self) -> ReservationView:
        return self.view_as(
            ReservationView,
            starts_at=timestamp(self.starts_at),
            ends_at=timestamp(self.ends_at),
            duration_s=round(self.ends_at - self.starts_at, 6),
            request=self.spec().request_for(self.project or DEFAULT_PROJECT),
            nodes=sorted(self.nodes),
        )


def active_reservations(session: Session) -> list[ReservationRow]:
    """Reservations whose end has not come, ordered by start."""
    rows = (row for row in all_rows(session, ReservationRow) if row.state != "Ended")
    return sorted(rows, key=lambda row: (row.starts_at, row.name))


def reservations_on(session: Session, nodes: Set[str]) -> list[str]:
    """The reservations that are promised anything of these nodes."""
    return sorted(row.name for row in active_reservations(session) if row.promised and not nodes.isdisjoint(row.nodes))


def delete_ended_reservations(session: Session, before: float) -> int:
    """Delete reservations that had ended by then (s, emulated) and have no allocation. Return how many."""
    rows = all_rows(session, ReservationRow)
    ended = {row.name: row for row in rows if row.state == "Ended" and row.updated_at < before}
    if not ended:
        return 0
    for name, request in session.execute(select(AllocationRow.name, AllocationRow.request)):
        ended.pop(name, None)
        ended.pop(request.get("reservation"), None)
    for row in ended.values():
        session.delete(row)
    return len(ended)


def placement_to_json(place: Placement, name: Any, offsets: Any, width: int) -> dict[str, list[list[Any]]]:
    """A placement as JSON: by kind, entries of a node's name and how much of it. `name` maps a node's number to its
    name."""

    def nodes(masks: list[tuple[int, int]]) -> list[list[Any]]:
        return [[name(cabinet * width + offset), 1] for cabinet, mask in masks for offset in offsets(mask)]

    def amounts(entries: list[tuple[int, int]]) -> list[list[Any]]:
        return [[name(node), amount] for node, amount in entries]

    return {
        "whole": nodes(place.whole),
        "spares": nodes(place.spares),
        "parts": amounts(place.parts),
        "cpus": amounts(place.cpus),
        "mem": amounts(place.mem),
    }


def placement_from_json(document: dict[str, list[list[Any]]], number: Any, width: int) -> Placement:
    """The inverse of `placement_to_json`; nodes that no longer exist are left out."""
    place = Placement()
    for kind in ("whole", "spares"):
        masks: dict[int, int] = {}
        for name, _ in document[kind]:
            if (node := number(name)) is not None:
                masks[node // width] = masks.get(node // width, 0) | 1 << node % width
        setattr(place, kind, sorted(masks.items()))
    for kind in ("parts", "cpus", "mem"):
        found = [(number(name), amount) for name, amount in document[kind]]
        setattr(place, kind, [(node, amount) for node, amount in found if node is not None])
    return place
