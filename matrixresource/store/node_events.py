"""Events of nodes, described for people: verbs that were called, and decisions of rules."""

from __future__ import annotations

from sqlalchemy import String, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from matrixcommon.persistence.database_session import ResourceRow
from matrixcommon.persistence.resource_row import EventColumns
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import Base

EVENTS_MAX = 2000
"""The number of events kept; the oldest are deleted first."""


class NodeEventRow(EventColumns, ResourceRow, Base):
    """Something that happened to a node."""

    __tablename__ = "events"
    kind = "event"

    about: Mapped[str] = mapped_column(String(253), index=True)


def record_node_event(
    session: Session, node: str, reason: str, message: str, at: float, *, warning: bool = False
) -> None:
    """Add an event on hardware, which belongs to no project."""
    type = "Warning" if warning else "Normal"
    NodeEventRow.note(session, at, type, reason, message[:1000], about=node, project="")


def delete_old_events(store: ResourceStore) -> None:
    """Delete the oldest events beyond that number."""
    with store.transaction() as session:
        over = (session.scalar(select(func.count()).select_from(NodeEventRow)) or 0) - EVENTS_MAX
        for row in session.scalars(select(NodeEventRow).order_by(NodeEventRow.at).limit(max(0, over))):
            session.delete(row)
