"""node_times: how long nodes took to be there, read off the operations that brought them: a free node boots, a spare
joins."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import select
from sqlalchemy.orm import Session

from matrixcompute.store.store import OperationRow

CREATES, GROWS = "create-instance", "scale-instance"
OPERATIONS_READ = 50


def node_times(session: Session, instance: str, known: tuple[float, float] | None = None) -> tuple[float, float] | None:
    """(boot, join), s: the longest that nodes of this instance were waited for, and the shortest that it was waited
    for nodes when it grew. None where neither has been seen; `known` counts for what no operation tells any more.

    Growing takes spares first, so the shortest is that of spares once it grew by no more than it had. Until then both
    are alike, and spares are worth no more than free nodes.
    """
    query = select(OperationRow).where(OperationRow.target == instance, OperationRow.state == "Done")
    newest = query.order_by(OperationRow.created_at.desc()).limit(OPERATIONS_READ)
    rows = [row for row in reversed(list(session.scalars(newest))) if row.verb in (CREATES, GROWS)]
    all_waits, grown_waits = list[float](), list[float]()
    before: int | None = None
    for row in rows:
        nodes, waited = row.shape.get("nodes", 0), _waited(row)
        if waited is not None and (row.verb == CREATES or (before is not None and nodes > before)):
            all_waits.append(waited)
            if row.verb == GROWS:
                grown_waits.append(waited)
        before = nodes
    if not all_waits:
        return known
    boot_s = max(all_waits + ([known[0]] if known else []))
    return boot_s, min([*grown_waits, known[1] if known else boot_s])


def _waited(row: OperationRow) -> float | None:
    """From when its nodes were asked for until all of them were there."""
    trace = row.trace or {}
    asked, there = (trace.get(step, {}).get("finishedAt") for step in ("bind_nodes", "await_ready"))
    return None if asked is None or there is None else max(0.0, there - asked)


def spares_of(members: Iterable[dict[str, object]]) -> int:
    """Nodes that an instance has beside its members."""
    return sum(each["role"] == "spare" for each in members)
