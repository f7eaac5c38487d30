"""Reported inventories of nodes, and the condition that results from comparing them with the spec."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import JSON, Float, String, bindparam, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from matrixcommon.model.errors import NotFound
from matrixcommon.model.quantities import timestamp
from matrixresource.contract.nodes import InventoryView, NodeInventory
from matrixresource.nodes.expected_inventory import mismatches
from matrixresource.store.tables import INVENTORY_MATCHES, Base, NodeRow
from matrixresource.topology.spec import SupernodeSpec


class InventoryRow(Base):
    """The last inventory of a node: a `NodeInventory` in wire form."""

    __tablename__ = "inventories"

    node: Mapped[str] = mapped_column(String(63), primary_key=True)
    reported_at: Mapped[float] = mapped_column(Float)
    found: Mapped[dict[str, Any]] = mapped_column(JSON)


_NODES_WITH_INVENTORY = select(InventoryRow.node).where(InventoryRow.node.in_(bindparam("nodes", expanding=True)))


def nodes_with_inventory(session: Session, nodes: Iterable[str]) -> set[str]:
    """Those of these nodes that have reported an inventory."""
    names = [*map(str, nodes)]
    return set(session.scalars(_NODES_WITH_INVENTORY, {"nodes": names})) if names else set()


def record_inventory(session: Session, node: NodeRow, found: NodeInventory, spec: SupernodeSpec, now: float) -> None:
    """Store a reported inventory, and set the node's condition by whether it matches `spec`."""
    row = session.get(InventoryRow, node.name)
    if row is None:
        row = InventoryRow(node=node.name)
        session.add(row)
    row.reported_at, row.found = now, found.wire()
    node.firmware = found.firmware or None
    differs = mismatches(spec, found)
    reason = "InventoryMismatch" if differs else "AsExpected"
    node.set_condition(INVENTORY_MATCHES, not differs, reason, "; ".join(differs), now)


def delete_inventories(session: Session, nodes: Iterable[str]) -> None:
    """Delete the inventories of nodes that are removed: a node that returns under such a name is asked for its own."""
    session.execute(delete(InventoryRow).where(InventoryRow.node.in_([*map(str, nodes)])))


def inventory_view(session: Session, node: NodeRow, spec: SupernodeSpec) -> InventoryView:
    """The last inventory of a node. Raises NotFound if it has reported none."""
    row = session.get(InventoryRow, node.name)
    if row is None:
        raise NotFound(f"{node.name} has not reported an inventory", field="name")
    found = NodeInventory.from_stored(row.found)
    return InventoryView(
        node=node.name, reported_at=timestamp(row.reported_at), found=found, mismatches=mismatches(spec, found)
    )
