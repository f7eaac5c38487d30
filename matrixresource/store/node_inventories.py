"""What nodes were found to consist of, and the condition on a node that follows from comparing it with the spec."""

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
    """The last inventory a node reported: a `NodeInventory` in its wire form."""

    __tablename__ = "inventories"

    node: Mapped[str] = mapped_column(String(63), primary_key=True)
    reported_at: Mapped[float] = mapped_column(Float)
    found: Mapped[dict[str, Any]] = mapped_column(JSON)


_KNOWN = select(InventoryRow.node).where(InventoryRow.node.in_(bindparam("nodes", expanding=True)))


def known(session: Session, nodes: Iterable[str]) -> set[str]:
    """Those of these nodes that have reported an inventory."""
    names = [*map(str, nodes)]
    return set(session.scalars(_KNOWN, {"nodes": names})) if names else set()


def take(session: Session, node: NodeRow, found: NodeInventory, spec: SupernodeSpec, now: float) -> None:
    """Keep what a node reported, and say in its conditions whether that is what `spec` expects."""
    row = session.get(InventoryRow, node.name)
    if row is None:
        row = InventoryRow(node=node.name)
        session.add(row)
    row.reported_at, row.found = now, found.wire()
    node.firmware = found.firmware or None
    differs = mismatches(spec, found)
    reason = "InventoryMismatch" if differs else "AsExpected"
    node.set_condition(INVENTORY_MATCHES, not differs, reason, "; ".join(differs), now)


def forget(session: Session, nodes: Iterable[str]) -> None:
    """Of nodes that are taken out: one that comes back under such a name is asked what it consists of."""
    session.execute(delete(InventoryRow).where(InventoryRow.node.in_([*map(str, nodes)])))


def inventory_view(session: Session, node: NodeRow, spec: SupernodeSpec) -> InventoryView:
    """What is known of a node's parts. Raises NotFound where it has reported none."""
    row = session.get(InventoryRow, node.name)
    if row is None:
        raise NotFound(f"{node.name} has not reported what it consists of", field="name")
    found = NodeInventory.from_stored(row.found)
    return InventoryView(
        node=node.name, reported_at=timestamp(row.reported_at), found=found, mismatches=mismatches(spec, found)
    )
