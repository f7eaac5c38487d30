"""summary: why a maintenance is in its state, or what it waits for, from the progress of its units. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from matrixcompute.maintenance.spec import MaintenanceSpec, MaintenanceUnit
from matrixcompute.maintenance.states import UNDER_WAY

BLOCKED_REASONS = ("NoRoom", "InstanceChanging", "InstanceFailed")
"""Reasons for which members that should move do not."""


def summary(state: str, spec: MaintenanceSpec, units: Sequence[MaintenanceUnit]) -> tuple[str, str]:
    """The reason and message of the whole maintenance."""
    counts = Counter[str](unit.state for unit in units)
    under_way = sum(counts[each] for each in UNDER_WAY)
    done = f"{counts['Done']} of {len(units)} done"
    done += f", {under_way} under way" if under_way else ""
    done += f", {counts['Failed']} failed" if counts["Failed"] else ""
    if state == "Scheduled":
        return "NotYet", f"it starts no earlier than {spec.not_before}"
    if state == "Paused":
        return "Paused", f"{done}; no new node is begun until it is resumed"
    if state in ("Expiring", "Expired"):
        return "DeadlinePassed", f"{done}; its deadline, {spec.deadline}, has passed"
    if state in ("Aborting", "Aborted"):
        return "Aborted", f"{done}; it was aborted"
    failed = next((unit for unit in units if unit.state == "Failed"), None)
    if state == "Failed" and failed is not None:
        return failed.reason, f"{done}; {failed.name}: {failed.message}"
    if state == "Completed":
        return "Completed", done + (f", {counts['Skipped']} skipped" if counts["Skipped"] else "")
    blocked = next((unit for unit in units if unit.state in UNDER_WAY and unit.reason in BLOCKED_REASONS), None)
    waiting = blocked or next((unit for unit in units if unit.state in ("Pending", "Cordoned") and unit.reason), None)
    if waiting is not None and (blocked is not None or not under_way):
        return waiting.reason, f"{done}; {waiting.name} waits: {waiting.message}"
    switch = next((unit for unit in units if spec.target.kind == "switch" and unit.reason), None)
    if switch is not None:
        return switch.reason, f"{switch.state}: {switch.message}"
    return "Rolling", done
