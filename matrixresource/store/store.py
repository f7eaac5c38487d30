"""ResourceStore: the queries on MatrixResource's tables."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from matrixcommon.model.hardware_names import CabinetName
from matrixcommon.persistence.database_session import Database, ResourceRow, Store, find
from matrixcommon.persistence.table_cache import CachedTable, all_rows, rows_where
from matrixresource.store.allocation_tables import AllocationRow, AssignmentRow
from matrixresource.store.tables import NodeRow, PartitionRow, SupernodeRow


def _name(row: ResourceRow) -> str:
    return row.name


class ResourceStore(Store):
    """Nodes, allocations and assignments."""

    def __init__(self, records: Database) -> None:
        super().__init__(records)
        records.cache_tables(
            CachedTable(NodeRow, by=("holder",)),
            CachedTable(PartitionRow, by=("allocation", "node")),
            CachedTable(AssignmentRow),
            CachedTable(AllocationRow),
        )

    def nodes(self, session: Session, names: Sequence[str] | None = None) -> list[NodeRow]:
        """All nodes, or the existing ones of these names, sorted by name."""
        found = all_rows(session, NodeRow) if names is None else rows_where(session, NodeRow, "name", *names)
        return sorted(found, key=_name)

    def names_in(self, session: Session, cabinet: CabinetName) -> list[str]:
        """The names of the nodes in a cabinet."""
        within = NodeRow.supernode == cabinet.supernode, NodeRow.name.startswith(f"{cabinet}-")
        return list(session.scalars(select(NodeRow.name).where(*within)))

    def node(self, session: Session, name: str) -> NodeRow:
        return find(session, NodeRow, name)

    def allocated_to(self, session: Session, allocation: str) -> list[NodeRow]:
        """Members in rank order, then spares by name."""
        return sorted(
            rows_where(session, NodeRow, "holder", allocation),
            key=lambda node: (node.role != "member", node.role != "successor", node.rank or 0, node.name),
        )

    def parts(self, session: Session, allocation: str | None = None, node: str | None = None) -> list[PartitionRow]:
        """Parts of nodes, of one allocation or node if given, by rank and then by node."""
        if allocation is not None:
            found = rows_where(session, PartitionRow, "allocation", allocation)
        elif node is not None:
            found = rows_where(session, PartitionRow, "node", node)
        else:
            found = all_rows(session, PartitionRow)
        found = [part for part in found if node in (None, part.node)]
        return sorted(found, key=lambda part: (part.rank is None, part.rank or 0, part.node, part.allocation))

    def nodes_with_parts(self, session: Session) -> frozenset[str]:
        """Nodes of which some NPUs are held in parts; sockets and memory alone do not count."""
        return frozenset(part.node for part in all_rows(session, PartitionRow) if part.dies)

    def allocation(self, session: Session, name: str) -> AllocationRow:
        return find(session, AllocationRow, name)

    def allocations(self, session: Session) -> list[AllocationRow]:
        return sorted(all_rows(session, AllocationRow), key=_name)

    def supernodes(self, session: Session) -> list[SupernodeRow]:
        return list(session.scalars(select(SupernodeRow).order_by(SupernodeRow.name)))

    def assignments(self, session: Session) -> list[AssignmentRow]:
        return sorted(all_rows(session, AssignmentRow), key=_name)
