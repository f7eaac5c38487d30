"""store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

from sqlalchemy import select
from sqlalchemy.orm import Session

from matrixcommon.persistence.database_session import Database, ResourceRow, find
from matrixcommon.persistence.table_cache import CachedTable, CachingSession, kept_by
from matrixresource.store.tables import AllocationRow, AssignmentRow, NodeRow, PartitionRow, SupernodeRow


def _name(row: ResourceRow) -> str:
    return row.name


class ResourceStore:
    """The tables, asked in the words of the domain. Every method works inside the caller's transaction."""

    def __init__(self, records: Database) -> None:
        self.records = records
        records.keep(
            CachedTable(NodeRow, by=("holder",)),
            CachedTable(PartitionRow, by=("allocation", "node")),
            CachedTable(AssignmentRow),
            CachedTable(AllocationRow),
        )

    def transaction(self, dry: bool = False) -> AbstractContextManager[CachingSession]:
        """One verb. Whoever decides holds the journal's lock from the start: what it reads stays so until it commits,
        whatever other replicas want meanwhile."""
        return self.records.transaction(dry)

    def reading(self) -> AbstractContextManager[Session]:
        return self.records.reading()

    def nodes(self, session: Session, names: Sequence[str] | None = None) -> list[NodeRow]:
        """All nodes, or those of these names that exist, by name."""
        if (kept := kept_by(session)) is not None:
            found = kept.all(NodeRow) if names is None else [kept.get(NodeRow, name) for name in {*map(str, names)}]
            return sorted((row for row in found if row is not None), key=_name)
        wanted = select(NodeRow).order_by(NodeRow.name)
        return list(session.scalars(wanted if names is None else wanted.where(NodeRow.name.in_([*map(str, names)]))))

    def node(self, session: Session, name: str) -> NodeRow:
        return find(session, NodeRow, name)

    def allocated_to(self, session: Session, allocation: str) -> list[NodeRow]:
        """Members in rank order, then spares by name."""
        current: Iterable[NodeRow]
        if (kept := kept_by(session)) is not None:
            current = kept.where(NodeRow, "holder", allocation)
        else:
            current = session.scalars(select(NodeRow).where(NodeRow.holder == allocation))
        return sorted(
            current, key=lambda node: (node.role != "member", node.role != "successor", node.rank or 0, node.name)
        )

    def parts(self, session: Session, allocation: str | None = None, node: str | None = None) -> list[PartitionRow]:
        """Parts of nodes, of one allocation or node if given, in rank order and then by node."""
        found: Iterable[PartitionRow]
        if (kept := kept_by(session)) is not None:
            if allocation is not None:
                found = kept.where(PartitionRow, "allocation", allocation)
            else:
                found = kept.all(PartitionRow) if node is None else kept.where(PartitionRow, "node", node)
            found = [part for part in found if node is None or part.node == node]
        else:
            wanted = select(PartitionRow)
            if allocation is not None:
                wanted = wanted.where(PartitionRow.allocation == allocation)
            if node is not None:
                wanted = wanted.where(PartitionRow.node == node)
            found = session.scalars(wanted)
        return sorted(found, key=lambda part: (part.rank is None, part.rank or 0, part.node, part.allocation))

    def allocation(self, session: Session, name: str) -> AllocationRow:
        return find(session, AllocationRow, name)

    def allocations(self, session: Session) -> list[AllocationRow]:
        if (kept := kept_by(session)) is not None:
            return sorted(kept.all(AllocationRow), key=_name)
        return list(session.scalars(select(AllocationRow).order_by(AllocationRow.name)))

    def supernodes(self, session: Session) -> list[SupernodeRow]:
        return list(session.scalars(select(SupernodeRow).order_by(SupernodeRow.name)))

    def assignments(self, session: Session) -> list[AssignmentRow]:
        return list(session.scalars(select(AssignmentRow).order_by(AssignmentRow.name)))
