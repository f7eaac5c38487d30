"""Carry out moves of approved defragmentations: the current move, if it is of an instance's member.

MatrixResource says which move is next, and notices by itself when it is done. A move that cannot be made is reported to
it, so that the plan does not wait forever.
"""

from __future__ import annotations

from sqlalchemy import select

from matrixcommon.model.hardware_names import NodeName
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.instances.service import InstanceService
from matrixcompute.operations.context import RELOCATE
from matrixcompute.store.store import ComputeStore, InstanceRow, OperationRow
from matrixresource.contract.defragmentations import MoveRefused, MoveView

TEMPORARY_REASONS = ("Conflict", "StaleGeneration")
"""Refusals that may be temporary: a newer spec, a repair that goes first, a node that is not free yet."""
ATTEMPTS_MAX = 5


class DefragmentationExecutor:
    """`reconcile` once per period and whenever a defragmentation changes."""

    def __init__(self, store: ComputeStore, control_plane: ControlPlane, instance_service: InstanceService) -> None:
        self._store = store
        self._control_plane = control_plane
        self._instance_service = instance_service

    async def reconcile(self) -> str:
        """Begin the current moves that are of instances. Returns a summary."""
        begun = 0
        for plan in await self._control_plane.defragmentations("state=Running"):
            move = next((each for each in plan.moves if each.state == "Moving" and each.by == "MatrixCompute"), None)
            if move is None:
                continue
            parameters = {"defragmentation": plan.name, "node": move.source, "to": move.to}
            if (refused := self._refusal(move, parameters)) is not None:
                await self._control_plane.refuse_move(plan.name, refused)
            else:
                begun += self._instance_service.relocate(move.allocation, parameters)
        return f"{begun} moves begun"

    def _refusal(self, move: MoveView, parameters: dict[str, str]) -> MoveRefused | None:
        """Why a move failed, unless another attempt is worth while; None to try it."""
        with self._store.reading() as session:
            query = select(OperationRow).where(OperationRow.target == move.allocation, OperationRow.verb == RELOCATE)
            attempts = [
                row for row in session.scalars(query.order_by(OperationRow.version)) if row.parameters == parameters
            ]
            failed = [row.error for row in attempts if row.state in ("Failed", "Cancelled") and row.error]
            instance_gone = session.get(InstanceRow, move.allocation) is None
        if instance_gone:
            error = {"reason": "NotFound", "detail": f"there is no instance {move.allocation}"}
        elif failed and (failed[-1].get("reason") not in TEMPORARY_REASONS or len(failed) >= ATTEMPTS_MAX):
            error = failed[-1]
        else:
            return None
        return MoveRefused(
            allocation=move.allocation,
            node=NodeName(move.source),
            to=NodeName(move.to),
            reason=str(error.get("reason", "InternalError")),
            message=str(error.get("detail", ""))[:1000],
        )
