"""Maintenances: the request, and the progress of each node or of the switch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import JSON, Float, String, Text, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from matrixcommon.model.quantities import timestamp
from matrixcommon.persistence.resource_row import TimedStateRow
from matrixcompute.maintenance.spec import (
    MaintenanceCounts,
    MaintenanceRequest,
    MaintenanceSpec,
    MaintenanceUnit,
    MaintenanceView,
)
from matrixcompute.maintenance.states import MAINTENANCE_STATES, OPEN, UNDER_WAY
from matrixcompute.store.store import Base


class MaintenanceRow(TimedStateRow, Base):
    """One maintenance. `units` are `MaintenanceUnit`s in their wire form."""

    __tablename__ = "maintenances"
    kind = "maintenance"
    MOVES = MAINTENANCE_STATES

    spec: Mapped[dict[str, Any]] = mapped_column(JSON)
    units: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    phase_reason: Mapped[str] = mapped_column(String(40), default="")
    message: Mapped[str] = mapped_column(Text, default="")
    started_at: Mapped[float | None] = mapped_column(Float)
    finished_at: Mapped[float | None] = mapped_column(Float)

    @property
    def request(self) -> MaintenanceRequest:
        return MaintenanceRequest.from_stored(self.spec)

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return self.state in OPEN

    def progress(self) -> list[MaintenanceUnit]:
        return [MaintenanceUnit.from_stored(unit) for unit in self.units]

    def write(self, units: Sequence[MaintenanceUnit]) -> None:
        written = [unit.wire() for unit in units]
        if written != self.units:
            self.units = written

    def view(self) -> MaintenanceView:
        request, units = self.request, self.progress()
        states = [unit.state for unit in units]
        return self.view_as(
            MaintenanceView,
            **{field: getattr(request, field) for field in MaintenanceSpec.model_fields},
            units=units,
            counts=MaintenanceCounts(
                total=len(units),
                pending=states.count("Pending") + states.count("Cordoned"),
                under_way=sum(state in UNDER_WAY for state in states),
                done=states.count("Done"),
                failed=states.count("Failed"),
                skipped=states.count("Skipped"),
            ),
            instances=sorted({name for unit in units if not unit.settled for name in unit.instances}),
            started_at=timestamp(self.started_at) if self.started_at is not None else None,
            finished_at=timestamp(self.finished_at) if self.finished_at is not None else None,
        )


_OPEN = select(MaintenanceRow).where(MaintenanceRow.state.in_(OPEN)).order_by(MaintenanceRow.name)


def open_maintenances(session: Session) -> list[MaintenanceRow]:
    """The maintenances that have not ended, ordered by name."""
    return list(session.scalars(_OPEN))
