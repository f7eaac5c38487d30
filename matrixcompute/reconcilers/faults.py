"""Keep the table of detected faults in line with the nodes as MatrixResource shows them: node by node as they change,
and all of them when a change may have been missed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from matrixcommon.api.client import WatchEvent
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.model.faults import NODE_LOST, detect, may_have_faults
from matrixcompute.store.store import ComputeStore, FaultRow, InstanceRow
from matrixresource.contract.nodes import NodeView


class FaultReconciler:
    """Call `observe` for every change of a node and `reconcile_changed` soon after; `reconcile` periodically, and after
    the watch was interrupted.

    Nodes fail together, so their changes are written in one transaction, and repairs need not wait for several.
    """

    def __init__(self, store: ComputeStore, control_plane: ControlPlane) -> None:
        self._store = store
        self._control_plane = control_plane
        self._faulty: set[str] | None = None
        """The nodes with faults in the table, so that changes of other nodes cost nothing; None: not read yet."""
        self._changed: dict[str, NodeView] = {}

    async def reconcile(self) -> str:
        """Update the table from all nodes, and delete rows of nodes that no longer exist. Returns a summary."""
        self._changed.clear()  # older than what is read now
        nodes = await self._control_plane.nodes()
        with self._store.transaction() as session:
            rows = self._rows(session)
            faulty = {node.name for node in nodes if self._update_rows(session, node, rows.pop(node.name, {}))}
            for row in (row for gone in rows.values() for row in gone.values()):
                session.delete(row)
        self._faulty = faulty
        return f"{len(faulty)} nodes have faults"

    def observe(self, event: WatchEvent) -> bool:
        """Take a change of one node. Returns whether it may affect the table."""
        node = NodeView.from_stored(event.view)
        if event.type == "DELETED":
            node = node.model_copy(update={"faults": [], "agent": "Connected"})
        relevant = self._faulty is None or may_have_faults(node) or node.name in self._faulty | self._changed.keys()
        if relevant:
            self._changed[node.name] = node
        return relevant

    async def reconcile_changed(self) -> str:
        """Write the changes taken since the last call."""
        nodes, self._changed = self._changed, {}
        if nodes:
            with self._store.transaction() as session:
                rows = self._rows(session, list(nodes))
                faulty = {name for name, node in nodes.items() if self._update_rows(session, node, rows.get(name, {}))}
            if self._faulty is not None:
                self._faulty = (self._faulty - nodes.keys()) | faulty
        return f"{len(nodes)} nodes have changed"

    def _rows(self, session: Session, nodes: Sequence[str] | None = None) -> dict[str, dict[str, FaultRow]]:
        """The rows by node and name; of all nodes, or of those given."""
        query = select(FaultRow) if nodes is None else select(FaultRow).where(FaultRow.node.in_(nodes))
        found: dict[str, dict[str, FaultRow]] = defaultdict(dict)
        for row in session.scalars(query):
            found[row.node][row.name] = row
        return dict(found)

    def _update_rows(self, session: Session, node: NodeView, before: Mapping[str, FaultRow]) -> bool:
        """Write the faults of one node. Returns whether it has any now. The holder is read only if it may have some."""
        has_holder = node.allocation is not None and may_have_faults(node)
        holder = session.get(InstanceRow, node.allocation) if has_holder else None
        found = detect(node, instance=holder is not None)
        for name in sorted(before.keys() - found.keys()):
            session.delete(before[name])
        for name, fault in found.items():
            row = before.get(name)
            since = fault.since
            if row is None:
                row = FaultRow(name=name, node=node.name, component=fault.component, code=fault.code)
                session.add(row)
            elif fault.code == NODE_LOST:
                since = row.since  # `updated_at` of the node may have moved for another reason
            row.state = "Active" if fault.active else "Inactive"
            row.level, row.action, row.since = fault.level, fault.action, since
            row.message, row.raised_by = fault.message, fault.raised_by
            row.instance = None if holder is None else holder.name
        return bool(found)
