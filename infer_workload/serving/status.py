"""How a deployment stands, written down as it changes."""

from __future__ import annotations

import logging

from infer_workload.serving.live_deployment import LiveDeployment
from infer_workload.serving.store import DeploymentRow, InferStore
from matrixcommon.model.errors import MatrixError
from matrixcommon.model.resource_model import condition

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
                ("LaidOut", laid, "LaidOut" if laid else "NoLayout", "" if laid else live.why),
            ]
            if live.lending is not None:
                stands.append(live.lending.condition())
            for kind, holds, reason, why in stands:
                reported = condition(reported, kind, holds, reason, why, generation=row.generation, now=now)
            fresh = {
                "state": live.state,
                "conditions": reported,
                "pools": live.pools_view().wire(),
                "roles": live.roles(),
                "fabric_generation": 0 if live.fabric is None else live.fabric.generation,
                "endpoint": endpoint,
                "drain": None if live.draining is None else live.draining.view().wire(),
            }
            for column, value in fresh.items():
                if getattr(row, column) != value:
                    setattr(row, column, value)
    except MatrixError as refused:
        log.warning("state not written", extra={"deployment": live.name, "why": refused.message})
