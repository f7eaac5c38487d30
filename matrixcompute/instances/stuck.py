"""What is stuck: its operation cannot be resumed, or it has been in a transitional state past the deadline.

While members of an instance drain, the deadline of its state is suspended: a drain may be given up to a day, and a
longer one is stuck by the deadline of its step.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.quantities import parse_timestamp
from matrixcommon.model.resource_key import name_of
from matrixcommon.model.resource_model import StuckView
from matrixcommon.workflows.progress import Trace
from matrixcompute.model.states import INSTANCE_STATES
from matrixcompute.store.maintenances import MaintenanceRow, open_maintenances
from matrixcompute.store.scenarios import ScenarioRunRow, runs_begun
from matrixcompute.store.store import ComputeStore, InstanceRow, OperationRow

DRAIN_STEPS = (
    ("drain_members", "startedAt", ("finishedAt", "undoneAt")),
    ("await_loaded", "undoStartedAt", ("undoneAt",)),
)
"""The steps of an operation that wait for drains (the second while it is undone), with the trace fields of their start
and end."""


def stuck_instances(store: ComputeStore, session: Session, now: float) -> list[StuckView]:
    """The stuck instances, by name. An operation that this release cannot resume is listed at once."""
    operations = {each.target: each for each in store.open_operations(session)}
    found = (_stuck(row, operations.get(row.name), now) for row in store.instances(session))
    return [view for view in found if view is not None]


def stuck_maintenances(session: Session, now: float) -> list[StuckView]:
    """Maintenances that have been bringing nodes back past the deadline, with what they wait for."""
    return [_overdue(row, now) for row in open_maintenances(session) if row.is_overdue(now)]


def stuck_scenario_runs(session: Session, now: float) -> list[StuckView]:
    """Scenario runs that have been rolling back past the deadline."""
    return [_overdue(row, now) for row in runs_begun(session) if row.is_overdue(now)]


def _overdue(row: MaintenanceRow | ScenarioRunRow, now: float) -> StuckView:
    return row.overdue_view(now, f"{row.kind} {row.name}: {row.message}")


def _stuck(row: InstanceRow, operation: OperationRow | None, now: float) -> StuckView | None:
    is_stuck = operation is not None and operation.stuck is not None
    reported = operation.stuck if operation is not None and is_stuck else row.find_condition("Progressing")
    if reported is None:
        return None
    since = parse_timestamp(reported["lastTransitionTime"])
    drained_s = 0.0 if operation is None else _drained_s(operation.trace or {}, since, now)
    if operation is not None and is_stuck:
        reason, message = reported["reason"], f"operation {name_of(operation.name)}: {reported['message']}"
    elif INSTANCE_STATES.stuck(row.state, since + drained_s, now):
        deadline_s = INSTANCE_STATES.states[row.state].deadline_s
        reason, message = "DeadlineExceeded", f"{row.state} for longer than {deadline_s:g} s"
        message += f", not counting {drained_s:.0f} s of draining" if drained_s else ""
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


def _drained_s(trace: Trace, since: float, now: float) -> float:
    """How long an operation has waited for drains since `since` (s). Of a drain that was repeated for a later failure
    only the end of the first is known, so all time until then counts."""
    drained_s, counted = 0.0, since
    for step, start, ends in DRAIN_STEPS:
        entry = trace.get(step, {})
        if (first := entry.get("firstFinishedAt")) is not None and first > counted:
            drained_s, counted = drained_s + first - counted, first
        if (began := entry.get(start)) is not None:
            end = next((entry[each] for each in ends if entry.get(each) is not None), now)
            drained_s += max(0.0, end - max(began, counted))
    return drained_s
