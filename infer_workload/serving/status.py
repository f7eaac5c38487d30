"""How a deployment stands, written down as it changes, and the machine of one that named none.

That is the machine of the supernodes its instance lies on. It is found once, when the deployment is asked for or with
the first view of its fabric, and is then the deployment's as if it had been named: should its instance come to lie on
another kind of supernode, no times change without a word.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from infer_workload.layout.machines import found_machine, naming
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.states import DEPLOYMENT_STATES, IDLE
from infer_workload.serving.store import DeploymentRow, InferStore
from infer_workload.timing.calibration import Calibration
from matrixcommon.model.errors import MatrixError
from matrixcommon.model.quantities import counted, timestamp
from matrixcommon.model.resource_model import StuckView, condition

log = logging.getLogger(__name__)


def write_status(store: InferStore, live: LiveDeployment, endpoint: str, now: float) -> None:
    """Write it where it is news; nothing where the deployment is gone."""
    try:
        with store.records.transaction() as session:
            row = session.get(DeploymentRow, live.name)
            if row is None:
                return
            laid, reported = live.engine is not None, row.conditions or []
            stands = [
                ("Ready", live.state == "Serving", live.state, live.why),
                ("LaidOut", laid, "LaidOut" if laid else "NoLayout", live.beside if laid else live.why),
            ]
            stands.append(("Progressing", *progress(live)))
            if live.lending is not None:
                stands.append(live.lending.condition())
            for kind, holds, reason, why in stands:
                reported = condition(reported, kind, holds, reason, why, generation=row.generation, now=now)
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
        log.warning("state not written", extra={"deployment": live.name, "why": refused.message})


def stuck_deployments(store: InferStore, now: float) -> list[StuckView]:
    """Those that load, or rebuild their ranks, for longer than that may take; by name."""
    with store.records.reading() as session:
        late = [row for row in store.deployments(session) if row.overdue(now)]
        return [row.overdue_view(now, _why(row)) for row in late]


def _why(row: DeploymentRow) -> str:
    ready = next((each["message"] for each in row.conditions or [] if each["type"] == "Ready"), "")
    return f"{row.state} for longer than {DEPLOYMENT_STATES.states[row.state].deadline_s:g} s: {ready}"


def progress(live: LiveDeployment) -> tuple[bool, str, str]:
    """Whether its layout is on the way to the sizes that were asked for, with a reason and what it waits for."""
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
            what = f"{', '.join(sorted(handover.yields))}, which other deployments are to have,"
            return True, "HandingOver", f"requests that run on {what} end first, until {until} at the latest"
        return True, "RolesChanging", f"requests that run in roles that change end first, until {until} at the latest"
    if not handover.settled(live.engine) and (drain := live.draining) is not None:
        return True, "RolesChanging", f"other sizes count when the drain of {', '.join(sorted(drain.nodes))} is over"
    if not handover.lacks_nodes(live.engine):
        return False, "Settled", ""
    if live.layout.loading.nodes:
        return True, "NodesLoading", f"{', '.join(sorted(live.layout.loading.nodes))} load before they are used"
    if (scale := handover.scale) is not None:
        there = len(live.engine.deployment.pools.nodes)
        why = f"asked for {counted(scale.nodes, 'node')}, {there} serving, in pools as near as they allow"
        return True, "LacksNodes", why
    return False, "Settled", ""


def use_machine(live: LiveDeployment, machine: str | None, machines: Mapping[str, Calibration]) -> bool:
    """Time a deployment that had no machine so far on this one; whether it had none, and there is one."""
    if live.spec.machine is not None or machine is None or machine not in machines:
        return False
    live.spec = naming(live.spec, machine)
    live.layout.calibration = live.layout.weights.calibration = machines[machine]
    return True


def settle_machine(
    store: InferStore, live: LiveDeployment, view: Any | None, machines: Mapping[str, Calibration]
) -> None:
    """Have the machine that this view shows for good, and write it down."""
    if not use_machine(live, found_machine(view), machines):
        return
    with store.records.transaction() as session:
        if (row := session.get(DeploymentRow, live.name)) is not None:
            row.request = live.spec.wire()
