"""Maintenance domains: the compute cabinets and the supernodes, each open or closed for new work.

What runs in a closed domain continues. Nobody is moved from here: a draining domain shows which allocations are still
in it, and their owners move them.
"""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import Boolean, String, select
from sqlalchemy.orm import Mapped, Session, mapped_column, object_session

from matrixcommon.model.hardware_names import NodeName
from matrixcommon.persistence.database_session import ResourceRow
from matrixresource.contract.topology import DomainView
from matrixresource.store.tables import Base, NodeRow, PartitionRow
from matrixresource.topology.supernode import Supernode


class DomainRow(ResourceRow, Base):
    """One domain and whether it is open."""

    __tablename__ = "domains"
    kind = "domain"
    SELECTABLE = frozenset({"level", "state", "supernode"})

    level: Mapped[str] = mapped_column(String(10))
    supernode: Mapped[str] = mapped_column(String(63), index=True)
    closed: Mapped[bool] = mapped_column(Boolean, default=False)
    reason: Mapped[str] = mapped_column(String(200), default="")
    by: Mapped[str] = mapped_column(String(63), default="")

    def view(self) -> DomainView:
        session = object_session(self)
        return self.view_of(allocations_in(session, self.name) if session is not None else [])

    def view_of(self, allocations: list[str]) -> DomainView:
        return self.view_as(DomainView, allocations=allocations)


def new_domains(supernode: Supernode) -> list[DomainRow]:
    """The domains of a new supernode, all open."""
    whole = DomainRow(name=supernode.name, level="supernode", supernode=supernode.name, state="Open")
    cabinets = [
        DomainRow(name=name, level="cabinet", supernode=supernode.name, state="Open")
        for name in supernode.compute_cabinets()
    ]
    return [whole, *cabinets]


def closed_cabinets(session: Session) -> set[str]:
    """Cabinets that are closed, by themselves or with their supernode."""
    closed = session.scalars(select(DomainRow).where(DomainRow.closed)).all()
    whole = [row.supernode for row in closed if row.level == "supernode"]
    under = select(DomainRow.name).where(DomainRow.level == "cabinet", DomainRow.supernode.in_(whole))
    return {row.name for row in closed if row.level == "cabinet"} | set(session.scalars(under) if whole else ())


def allocations_in(session: Session, domain: str) -> list[str]:
    """The allocations that hold anything in a cabinet or a supernode."""
    return sorted({holder for _, holder in _holdings(session, f"{domain}-", domain.partition("-")[0])})


def allocations_on(session: Session, node: str) -> list[str]:
    """The allocations that hold anything of a node."""
    return sorted({holder for name, holder in _holdings(session, node) if name == node})


def allocations_by_domain(session: Session) -> dict[str, list[str]]:
    """By domain, the allocations that hold anything there; empty domains are left out."""
    found: dict[str, set[str]] = defaultdict(set)
    for node, holder in _holdings(session):
        found[node.cabinet].add(holder)
        found[node.supernode].add(holder)
    return {domain: sorted(holders) for domain, holders in found.items()}


def _holdings(session: Session, prefix: str = "", supernode: str | None = None) -> list[tuple[NodeName, str]]:
    """(node, allocation) for everything held, in one supernode if given. The only place that knows how holdings are
    stored."""
    current = select(NodeRow.name, NodeRow.holder).where(NodeRow.holder.is_not(None), NodeRow.name.startswith(prefix))
    if supernode is not None:
        current = current.where(NodeRow.supernode == supernode)
    parts = select(PartitionRow.node, PartitionRow.allocation).where(PartitionRow.node.startswith(prefix))
    return [(NodeName(name), str(holder)) for each in (current, parts) for name, holder in session.execute(each)]
