"""Resizing: the place of an allocation that is to have another size in place, and what is said of how it grew."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace as changed_to

from sqlalchemy.orm import Session

from matrixcommon.model.hardware_names import NodeName
from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.allocations.promotion import warm_spares
from matrixresource.contract.allocations import GROWN
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.store import ResourceStore


class Resizing:
    """Chooses who stays and who is promoted. The ledger is open."""

    def __init__(self, store: ResourceStore, ledger: LedgerSync) -> None:
        self._store = store
        self._ledger = ledger

    def place(
        self,
        session: Session,
        allocation: AllocationRow,
        request: PlacementRequest,
        excluded: Sequence[NodeName],
        now: float,
    ) -> tuple[Placement | None, list[str]]:
        """Who stays keeps its place; where there are to be fewer, those excluded go first, then the last ranks. Where
        there are to be more, spares that stand ready come before free nodes. And whom it preempts."""
        ledger = self._ledger
        before = ledger.ledger.allocations[allocation.name].request
        nodes = self._store.allocated_to(session, allocation.name)
        ranked = [node.node_name for node in nodes if node.role == "member"]
        ranked += [
            NodeName(part.node)
            for part in self._store.parts(session, allocation.name)
            if part.dies and not part.releasing
        ]
        warm: list[int] = []
        if request.nodes < before.nodes:
            ranked = sorted(ranked, key=lambda node: node in excluded)[: request.nodes]
        keep = [ledger.numbers[name] for name in ranked]
        if request.nodes > len(ranked):
            warm = warm_spares(ledger, request, allocation, nodes, keep)
        return ledger.resize(allocation.name, request, keep, now, warm)

    def missing(self, allocation: AllocationRow, request: PlacementRequest) -> PlacementRequest:
        """What is asked beyond what is held, for a refusal to speak of."""
        before = self._ledger.ledger.allocations[allocation.name].request
        return changed_to(
            request,
            nodes=max(0, request.nodes - before.nodes),
            spares=max(0, request.spares - before.spares),
            cpus=max(0, request.cpus - before.cpus),
            mem=max(0, request.mem - before.mem),
        )

    def roles(self, session: Session, allocation: AllocationRow) -> dict[str, str | None]:
        """What each of its whole nodes is, by name."""
        return {node.name: node.role for node in self._store.allocated_to(session, allocation.name)}

    def note(self, session: Session, allocation: AllocationRow, before: dict[str, str | None], now: float) -> None:
        """Into the condition Grown, of this generation: how many of the members that it has more were spares `before`.

        It is written with the change itself, so that who asked hears of it after any crash.
        """
        roles = self.roles(session, allocation)
        new: Collection[str] = [name for name, role in roles.items() if role == "member" and before.get(name) != role]
        if new:
            promoted = sum(before.get(name) == "spare" for name in new)
            message = f"{promoted} of {len(new)} new members were spares"
            allocation.set_condition(GROWN, True, "FromSpares" if promoted else "FromFreeNodes", message, now)
