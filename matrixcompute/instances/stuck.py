"""What does not get on: its operation cannot be resumed, or a passing state has outlived its deadline."""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.quantities import from_timestamp
from matrixcommon.model.resource_key import name_of
from matrixcommon.model.resource_model import StuckView
from matrixcommon.workflows.rows import STUCK
from matrixcompute.model.states import INSTANCE_STATES
from matrixcompute.store.maintenances import MaintenanceRow, open_maintenances
from matrixcompute.store.scenarios import ScenarioRunRow, runs_begun
from matrixcompute.store.store import ComputeStore, InstanceRow, OperationRow


def stuck_instances(store: ComputeStore, session: Session, now: float) -> list[StuckView]:
    """By name. What no release at hand can resume is listed at once: no deadline makes a difference to it."""
    operations = {each.target: each for each in store.open_operations(session) if each.stuck is not None}
    found = (_stuck(row, operations.get(row.name), now) for row in store.instances(session))
    return [view for view in found if view is not None]


def stuck_maintenances(session: Session, now: float) -> list[StuckView]:
    """Those that bring back what is under way for longer than that may take, with what they wait for."""
    return [_overdue(row, now) for row in open_maintenances(session) if row.overdue(now)]


def stuck_scenario_runs(session: Session, now: float) -> list[StuckView]:
    """Those that roll back what they did for longer than that may take."""
    return [_overdue(row, now) for row in runs_begun(session) if row.overdue(now)]


def _overdue(row: MaintenanceRow | ScenarioRunRow, now: float) -> StuckView:
    return row.overdue_view(now, f"{row.kind} {row.name}: {row.message}")


def _stuck(row: InstanceRow, operation: OperationRow | None, now: float) -> StuckView | None:
    reported = operation.find_condition(STUCK) if operation is not None else row.find_condition("Progressing")
    if reported is None:
        return None
    since = from_timestamp(reported["lastTransitionTime"])
    if operation is not None:
        reason, message = reported["reason"], f"operation {name_of(operation.name)}: {reported['message']}"
    elif INSTANCE_STATES.stuck(row.state, since, now):
        deadline_s = INSTANCE_STATES.states[row.state].deadline_s
        reason, message = "DeadlineExceeded", f"{row.state} for longer than {deadline_s:g} s"
    else:
        return None
    return StuckView(
        name=name_of(row.name),
        project=row.project,
        state=row.state,
        seconds=round(now - since, 1),
        reason=reason,
        message=message,
    )
