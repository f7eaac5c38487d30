"""MatrixFaultScenarios: a scenario is run once by MatrixCompute, when its resource is applied.

The file is the same that matrixctl reads. The run bears the resource's name, and its uid as a label: a run that
somebody else made under that name is not touched. A deleted resource has its run stopped and rolled back first.
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
from matrixcontainer.operator.reconciler import GONE_WALL_S, Reconciler

UID_LABEL = "cloudmatrix.io/uid"


class ScenarioReconciler(Reconciler):
    """A resource's run in MatrixCompute."""

    kind = SCENARIO
    sent_as = "definition"

    def __init__(self, kube: KubeClient, compute: ComputeClient, wall: Callable[[], float]) -> None:
        super().__init__(kube, wall)
        self._compute = compute

    async def converge(self, key: str, body: dict[str, Any]) -> float | None:
        run = await self._compute.find_run(key)
        own = run is not None and run.labels.get(UID_LABEL) == body["metadata"]["uid"]
        if body["metadata"].get("deletionTimestamp"):
            return await self._end(key, run) if run is not None and own else None
        if run is not None and not own:
            raise Conflict(f"MatrixCompute has a run {key!r} that this resource has not made; take another name")
        if run is None and (body.get("status") or {}).get("verdict"):
            return None  # it was run once, and somebody has deleted the run
        if not body["spec"].get("suspend"):
            try:
                run = await self._compute.ensure_run(key, desired_run(body, run))
            except Conflict as refused:
                if run is None or refused.reason != "Conflict":
                    raise
                await self._report_changed(body, run)
                return None
        elif run is None:
            await self.report_ready(body, "Suspended", False, "Suspended", "it is run once spec.suspend is false")
            return None
        elif run.state in ("Pending", "Running"):
            run = await self._compute.stop_run(key)
        await self._show(body, run)
        return None

    async def _end(self, key: str, run: ScenarioRunView) -> float | None:
        """Have nothing of it left: neither what it injected nor the run itself."""
        if run.state in ("Pending", "Running"):
            run = await self._compute.stop_run(key)
        if run.state in BEGUN:
            return GONE_WALL_S
        return None if await self._compute.delete_run(key) else GONE_WALL_S

    async def _show(self, body: dict[str, Any], run: ScenarioRunView) -> None:
        shown = run.wire()
        await self.write_status(body, {name: shown.get(name) for name in SCENARIO_STATUS})
        failed = run.verdict not in (None, "PASS")
        reason = (run.verdict or run.state).capitalize()
        await self.report_ready(body, run.state, run.verdict == "PASS", reason, run.message, warning=failed)

    async def _report_changed(self, body: dict[str, Any], run: ScenarioRunView) -> None:
        """What runs, or has run, comes to its verdict and keeps it: another spec is another scenario."""
        why = "Changed", "it is run as it was before; to run what it says now, delete it and apply it again"
        shown = run.wire()
        status = {name: shown.get(name) for name in SCENARIO_STATUS} | {"state": run.state}
        if await self.write_status(body, status | {"conditions": self.condition(body, "Ready", False, *why)}):
            await self.record_transition(body, "Warning", *why)

    async def report_refusal(self, key: str, body: dict[str, Any], refused: MatrixError, passes: bool) -> None:
        """That another has the name is reported too, though that one may go."""
        await super().report_refusal(key, body, refused, passes and refused.reason != "Conflict")


def desired_run(body: dict[str, Any], run: ScenarioRunView | None = None) -> dict[str, Any]:
    """The run that a MatrixFaultScenario stands for, as MatrixCompute is asked for it. One that is there keeps its
    labels: other ones are no other scenario."""
    definition = {field: value for field, value in body["spec"].items() if field != "suspend"}
    labels = {**(body["metadata"].get("labels") or {}), UID_LABEL: body["metadata"]["uid"]}
    return {"definition": definition, "labels": labels if run is None else run.labels}
