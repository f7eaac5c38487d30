"""MatrixFaultScenarios: MatrixCompute runs a scenario once, when its resource is applied.

The spec has the same format as the files that matrixctl reads. The run has the resource's name and, as a label, its
uid: a run of that name that was created by other means is left alone. Deleting the resource first stops and rolls back
its run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matrixcommon.model.errors import Conflict, MatrixError
from matrixcompute.client import ComputeClient
from matrixcompute.scenarios.runs import ScenarioRunView
from matrixcompute.scenarios.states import BEGUN
from matrixcontainer.client.client import SCENARIO, KubeClient
from matrixcontainer.operator.crds import SCENARIO_STATUS
from matrixcontainer.operator.reconciler import DELETION_POLL_WALL_S, Reconciler

UID_LABEL = "cloudmatrix.io/uid"


class ScenarioReconciler(Reconciler):
    """Reconciles a MatrixFaultScenario with its run in MatrixCompute."""

    kind = SCENARIO
    spec_field = "definition"

    def __init__(self, kube: KubeClient, compute: ComputeClient, wall: Callable[[], float]) -> None:
        super().__init__(kube, wall)
        self._compute = compute

    async def converge(self, key: str, body: dict[str, Any]) -> float | None:
        run = await self._compute.find_run(key)
        own = run is not None and run.labels.get(UID_LABEL) == body["metadata"]["uid"]
        if body["metadata"].get("deletionTimestamp"):
            return await self._stop_and_delete(key, run) if run is not None and own else None
        if run is not None and not own:
            raise Conflict(f"MatrixCompute has a run {key!r} that this resource did not create; use another name")
        if run is None and (body.get("status") or {}).get("verdict"):
            return None  # it has run once, and the run was deleted since
        if not body["spec"].get("suspend"):
            try:
                run = await self._compute.ensure_run(key, desired_run(body, run))
            except Conflict as refused:
                if run is None or refused.reason != "Conflict":
                    raise
                await self._report_changed(body, run)
                return None
        elif run is None:
            await self.report_ready(body, "Suspended", False, "Suspended", "it runs once spec.suspend is false")
            return None
        elif run.state in ("Pending", "Running"):
            run = await self._compute.stop_run(key)
        await self._report(body, run)
        return None

    async def _stop_and_delete(self, key: str, run: ScenarioRunView) -> float | None:
        """Stop and roll back the run, then delete it."""
        if run.state in ("Pending", "Running"):
            run = await self._compute.stop_run(key)
        if run.state in BEGUN:
            return DELETION_POLL_WALL_S
        return None if await self._compute.delete_run(key) else DELETION_POLL_WALL_S

    async def _report(self, body: dict[str, Any], run: ScenarioRunView) -> None:
        fields = run.wire()
        await self.write_status(body, {name: fields.get(name) for name in SCENARIO_STATUS})
        failed = run.verdict not in (None, "PASS")
        reason = (run.verdict or run.state).capitalize()
        await self.report_ready(body, run.state, run.verdict == "PASS", reason, run.message, warning=failed)

    async def _report_changed(self, body: dict[str, Any], run: ScenarioRunView) -> None:
        """Report that the spec has changed since the run was created. The run keeps its definition and its verdict."""
        details = "Changed", "the run keeps its first spec; to run the new one, delete the resource and apply it again"
        fields = run.wire()
        status = {name: fields.get(name) for name in SCENARIO_STATUS} | {"state": run.state}
        if await self.write_status(body, status | {"conditions": self.condition(body, "Ready", False, *details)}):
            await self.record_transition(body, "Warning", *details)

    async def report_refusal(self, key: str, body: dict[str, Any], refused: MatrixError, temporary: bool) -> None:
        """Also report a name conflict, which may still resolve itself."""
        await super().report_refusal(key, body, refused, temporary and refused.reason != "Conflict")


def desired_run(body: dict[str, Any], run: ScenarioRunView | None = None) -> dict[str, Any]:
    """The request to MatrixCompute for a MatrixFaultScenario's run. An existing `run` keeps its labels: changed labels
    do not make it a different scenario."""
    definition = {field: value for field, value in body["spec"].items() if field != "suspend"}
    labels = {**(body["metadata"].get("labels") or {}), UID_LABEL: body["metadata"]["uid"]}
    return {"definition": definition, "labels": labels if run is None else run.labels}
