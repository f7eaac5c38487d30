"""Resizing: the placement of an allocation whose size changes in place, and the record of how it grew."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace as changed_to

from sqlalchemy.orm import Session

from matrixcommon.model.hardware_names import NodeName
from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.allocations.promotion import warm_spares
from matrixresource.contract.allocations import GROWN_CONDITION
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.store import ResourceStore


class Resizing:
    """Chooses which members stay and which spares are promoted. The caller has opened the ledger."""

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
        """The new placement, and whom it preempts. Remaining members stay where they are. When shrinking, excluded
        nodes leave first, then the highest ranks; when growing, ready spares are used before free nodes."""
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

    def missing_request(self, allocation: AllocationRow, request: PlacementRequest) -> PlacementRequest:
        """What is requested beyond what is held, for the text of a refusal."""
        before = self._ledger.ledger.allocations[allocation.name].request
        return changed_to(
            request,
            nodes=max(0, request.nodes - before.nodes),
            spares=max(0, request.spares - before.spares),
            cpus=max(0, request.cpus - before.cpus),
            mem=max(0, request.mem - before.mem),
        )

    def roles(self, session: Session, allocation: AllocationRow) -> dict[str, str | None]:
        """The role of each of its whole nodes, by name."""
        return {node.name: node.role for node in self._store.allocated_to(session, allocation.name)}

    def record_growth(
        self, session: Session, allocation: AllocationRow, before: dict[str, str | None], now: float
    ) -> None:
        """Record in the condition Grown, for this generation, how many of the new members had been spares `before`.

        It is written in the same transaction as the change, so that it survives any crash.
        """
        roles = self.roles(session, allocation)
        new: Collection[str] = [name for name, role in roles.items() if role == "member" and before.get(name) != role]
        if new:
            promoted = sum(before.get(name) == "spare" for name in new)
            message = f"{promoted} of {len(new)} new members were spares"
            allocation.set_condition(GROWN_CONDITION, True, "FromSpares" if promoted else "FromFreeNodes", message, now)
