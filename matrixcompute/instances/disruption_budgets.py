"""DisruptionBudgets: ensure and delete. Maintenances follow a change from their next check."""

from __future__ import annotations

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Unavailable
from matrixcommon.model.hardware_names import validate_resource_name
from matrixcommon.persistence.database_session import check_etag, find
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.maintenance.budgets import DisruptionBudgetRequest, DisruptionBudgetView
from matrixcompute.store.disruption_budgets import DisruptionBudgetRow
from matrixcompute.store.store import ComputeStore


class DisruptionBudgets:
    """The verbs over disruption budgets."""

    def __init__(self, store: ComputeStore, control_plane: ControlPlane, clock: Clock) -> None:
        self._store = store
        self._control_plane = control_plane
        self._clock = clock

    async def ensure(
        self, name: str, body: DisruptionBudgetRequest, *, if_match: str | None = None, validate_only: bool = False
    ) -> DisruptionBudgetView:
        """Create or change a budget. Nodes that are out already stay out. One that names a supernode that does not
        exist is accepted, since that may be added later, but shown as Inactive."""
        validate_resource_name(name)
        supernodes = None if body.supernode is None else await self._supernodes()
        with self._store.transaction(dry=validate_only) as session:
            row = session.get(DisruptionBudgetRow, name)
            check_etag(row, if_match)
            if row is None:
                row = DisruptionBudgetRow(name=name, state="Active", generation=1)
                session.add(row)
            row.declare(body)
            if body.supernode is None or supernodes is not None:
                row.update_state(supernodes or (), self._clock.now())
            session.flush()
            view = row.view()
        return view if validate_only else row.view()

    async def _supernodes(self) -> list[str] | None:
        """The supernodes that exist; None if MatrixResource does not answer, and the next check finds out."""
        try:
            return [domain.name for domain in await self._control_plane.domains("level=supernode")]
        except Unavailable:
            return None

    def delete(self, name: str) -> None:
        """Delete a budget, and with it its limit."""
        with self._store.transaction() as session:
            session.delete(find(session, DisruptionBudgetRow, name))
