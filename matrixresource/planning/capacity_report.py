"""CapacityReport: utilisation and free capacity, computed from the ledger, and again only after something has
changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.contract.capacity import CapacityView, DomainCapacity, PlaceableBlock
from matrixresource.scheduler.metrics.capacity_metrics import capacity_snapshot
from matrixresource.scheduler.model.placement_arithmetic import nodes_in, used_nodes
from matrixresource.store.maintenance_domains import DomainRow
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow
from matrixresource.store.topology_versions import current_version

EVERYWHERE = "all"


class CapacityReport:
    """Over one store and its ledger."""

    def __init__(self, store: ResourceStore, ledger: LedgerSync) -> None:
        self._store = store
        self._ledger = ledger
        self._view_change = -1
        self._view: CapacityView | None = None

    def view(self) -> CapacityView:
        """Capacity as of the newest change."""
        newest = self._store.records.latest()
        if self._view is None or newest != self._view_change:
            with self._store.reading() as session:
                self._view = self._compute(session)
            self._view_change = newest
        return self._view

    def _compute(self, session: Session) -> CapacityView:
        ledger = self._ledger.open(session)
        snapshot = capacity_snapshot(ledger)
        used = self._die_usage(self._reserved_nodes(session))
        return CapacityView(
            topology_version=current_version(session),
            nodes=len(self._ledger.numbers),
            nodes_up=snapshot.nodes_up,
            nodes_free=snapshot.nodes_free,
            npus_free=snapshot.npus_free,
            spares=snapshot.spares,
            utilisation=_utilisation(used.values()),
            largest_block={level or EVERYWHERE: nodes for level, nodes in snapshot.largest.items()},
            fragmentation=snapshot.fragmentation,
            nodes_by_state=_count_nodes_by(session, NodeRow.state),
            nodes_by_health=_count_nodes_by(session, NodeRow.health),
            blocks=[PlaceableBlock.model_validate(block) for block in snapshot.blocks],
            cabinets=self._domains(session, "cabinet", used),
            supernodes=self._domains(session, "supernode", used),
        )

    def _domains(self, session: Session, level: str, used: dict[int, tuple[int, int]]) -> list[DomainCapacity]:
        shape, index = self._ledger.ledger.shape, self._ledger.ledger.index
        size = shape.nodes if level == "cabinet" else shape.nodes_per_supernode
        states = {row.name: row.state for row in session.scalars(select(DomainRow).where(DomainRow.level == level))}
        node_counts: Counter[int] = Counter(number // size for number in self._ledger.numbers.values())
        up: Counter[int] = Counter(number // size for number in self._ledger.numbers.values() if index.up[number])
        places = [allocation.place for allocation in self._ledger.ledger.allocations.values()]
        allocated_counts = Counter(
            number // size for number in set().union(*(used_nodes(index, place) for place in places))
        )
        spares = Counter(number // size for place in places for number in nodes_in(index, place.spares))
        reserved_counts = Counter(number // size for number in self._reserved_nodes(session))
        shares: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for number, share in used.items():
            shares[number // size].append(share)
        found = []
        for number in sorted(node_counts):
            first = next(name for name in self._ledger.names[number * size : (number + 1) * size] if name is not None)
            name = first.cabinet if level == "cabinet" else first.supernode
            free = index.whole[number].bit_count() if level == "cabinet" else index.whole_counts[number]
            found.append(
                DomainCapacity.model_validate(
                    {
                        "domain": name,
                        "level": level,
                        "state": states.get(name, "Open"),
                        "nodes": node_counts[number],
                        "up": up[number],
                        "free": free,
                        "allocated": allocated_counts[number],
                        "spares": spares[number],
                        "kept": reserved_counts[number],
                        "utilisation": _utilisation(shares[number]),
                        "largest_block": free,
                    }
                )
            )
        return found

    def _reserved_nodes(self, session: Session) -> set[int]:
        names = session.scalars(select(NodeRow.name).where(NodeRow.reserved_for_plan.is_not(None)))
        return {self._ledger.numbers[name] for name in names if name in self._ledger.numbers}

    def _die_usage(self, kept: set[int]) -> dict[int, tuple[int, int]]:
        """(dies held, dies in all) of every node that is up, held or kept."""
        index = self._ledger.ledger.index
        each = index.shape.dies.bit_count()
        found = {}
        for number in self._ledger.numbers.values():
            taken = each - (index.dies[number] | index.idle_faulty.get(number, 0)).bit_count()
            if taken or index.up[number] or number in kept:
                found[number] = taken, each
        return found


def _utilisation(dies: Iterable[tuple[int, int]]) -> float:
    taken, total = (sum(each) for each in zip(*dies, strict=True)) if dies else (0, 0)
    return round(taken / total, 6) if total else 0.0


def _count_nodes_by(session: Session, column: Any) -> dict[str, int]:
    return {str(value): int(count) for value, count in session.execute(select(column, func.count()).group_by(column))}
