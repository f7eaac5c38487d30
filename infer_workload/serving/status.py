"""The recorded status of a deployment, and the default of its machine.

A deployment that names no machine gets that of its instance's supernodes. It is determined once, on creation or with
the first view of its fabric, and then fixed as if it had been named: should the instance move to another kind of
supernode, the timing does not change silently.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from infer_workload.layout.machines import machine_of_view, with_default_machine
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.states import DEPLOYMENT_STATES, IDLE
from infer_workload.serving.store import DeploymentRow, InferStore
from infer_workload.timing.calibration import Calibration
from matrixcommon.model.errors import MatrixError
from matrixcommon.model.quantities import pluralized, timestamp
from matrixcommon.model.resource_model import StuckView, set_condition

log = logging.getLogger(__name__)


def write_status(store: InferStore, live: LiveDeployment, endpoint: str, now: float) -> None:
    """Write the status to the database if it changed; does nothing if the deployment is gone."""
    try:
        with store.records.transaction() as session:
            row = session.get(DeploymentRow, live.name)
            if row is None:
                return
            laid, reported = live.engine is not None, row.conditions or []
            conditions = [
                ("Ready", live.state == "Serving", live.state, live.why),
                ("LaidOut", laid, "LaidOut" if laid else "NoLayout", live.others if laid else live.why),
            ]
            conditions.append(("Progressing", *progress(live)))
            if live.memory_grant is not None:
                conditions.append(live.memory_grant.condition())
            for kind, holds, reason, why in conditions:
                reported = set_condition(reported, kind, holds, reason, why, generation=row.generation, now=now)
            fresh = {
                "state": live.state,
                "conditions": reported,
                "pools": live.layout.pools_view().wire(),
                "roles": live.layout.roles(),
                "fabric_generation": 0 if live.fabric is None else live.fabric.generation,
                "endpoint": endpoint,
                "drain": None if live.draining is None else live.draining.view().wire(),
            }
            before = row.state
            for column, value in fresh.items():
                if getattr(row, column) != value:
                    setattr(row, column, value)
            row.state_changed(before)
    except MatrixError as refused:
        log.warning("could not write the deployment's status", extra={"deployment": live.name, "why": refused.message})


def stuck_deployments(store: InferStore, now: float) -> list[StuckView]:
    """Deployments that have been loading, or rebuilding ranks, past the deadline of their state; by name."""
    with store.records.reading() as session:
        late = [row for row in store.deployments(session) if row.is_overdue(now)]
        return [row.overdue_view(now, _why(row)) for row in late]


def _why(row: DeploymentRow) -> str:
    ready = next((each["message"] for each in row.conditions or [] if each["type"] == "Ready"), "")
    return f"{row.state} for more than {DEPLOYMENT_STATES.states[row.state].deadline_s:g} s: {ready}"


def progress(live: LiveDeployment) -> tuple[bool, str, str]:
    """The Progressing condition: whether the layout is still moving to the requested sizes, the reason, and what it
    waits for."""
    handover = live.handover
    if live.state == IDLE:
        return False, "Settled", ""
    if live.engine is None:
        return False, "NoLayout", live.why
    if not live.serves:
        return True, "Loading", live.why
    if (change := handover.role_change) is not None:
        until = timestamp(change.deadline_at)
        if handover.yields:
            nodes = ", ".join(sorted(handover.yields))
            why = f"until {until}, waiting for requests on {nodes} to finish before other deployments get the nodes"
            return True, "HandingOver", why
        return True, "RolesChanging", f"until {until}, waiting for requests on nodes that change role to finish"
    if not handover.sizes_reached(live.engine) and (drain := live.draining) is not None:
        nodes = ", ".join(sorted(drain.nodes))
        return True, "RolesChanging", f"the new sizes take effect when the drain of {nodes} has ended"
    if not handover.lacks_nodes(live.engine):
        return False, "Settled", ""
    if live.layout.loading.nodes:
        return True, "NodesLoading", f"{', '.join(sorted(live.layout.loading.nodes))} loading before use"
    if (scale := handover.scale) is not None:
        there = len(live.engine.deployment.pools.nodes)
        why = f"{there} of {pluralized(scale.nodes, 'requested node')} serving, split as near the request as possible"
        return True, "LacksNodes", why
    return False, "Settled", ""


def set_machine(live: LiveDeployment, machine: str | None, machines: Mapping[str, Calibration]) -> bool:
    """Set the machine of a deployment that has none yet. Return whether it was set."""
    if live.spec.machine is not None or machine is None or machine not in machines:
        return False
    live.spec = with_default_machine(live.spec, machine)
    live.layout.calibration = live.layout.weights.calibration = machines[machine]
    return True


def record_machine(
    store: InferStore, live: LiveDeployment, view: Any | None, machines: Mapping[str, Calibration]
) -> None:
    """If the deployment has no machine yet, fix the one that this view shows, and store it."""
    if not set_machine(live, machine_of_view(view), machines):
        return
    with store.records.transaction() as session:
        if (row := session.get(DeploymentRow, live.name)) is not None:
            row.request = live.spec.wire()
