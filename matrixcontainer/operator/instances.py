"""CloudMatrixInstances: observe the instance, decide (`decision.py`), perform, report (`status.py`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from matrixcommon.model.errors import Conflict, MatrixError, NotFound
from matrixcommon.model.resource_key import key_of
from matrixcompute.client import ComputeClient
from matrixcompute.contract import InstanceView
from matrixcontainer.client.client import INSTANCE, KubeClient
from matrixcontainer.client.events import record
from matrixcontainer.operator.decision import desired_instance, next_action
from matrixcontainer.operator.reconciler import AGAIN_WALL_S, GONE_WALL_S, Reconciler, StaleRead, name_field
from matrixcontainer.operator.scale_in import ScaleIn
from matrixcontainer.operator.status import (
    NOTHING_LEFT,
    SYNCED,
    event_object,
    instance_status,
    planned_status,
    reported_of,
)

FOLLOWED = "cloudmatrix.io/followed-scale"
"""Annotation of a resource whose scale a policy owns: the `nodes` and `suspend` that were written for it."""


class InstanceReconciler(Reconciler):
    """A resource's instance in MatrixCompute."""

    kind = INSTANCE
    gone_status = NOTHING_LEFT

    def __init__(self, kube: KubeClient, compute: ComputeClient, scale_in: ScaleIn, wall: Callable[[], float]) -> None:
        super().__init__(kube, wall)
        self._compute = compute
        self._scale_in = scale_in

    async def converge(self, key: str, body: dict[str, Any]) -> float | None:
        observed = await self._compute.find_instance(key)
        await self._follow_policy(body, observed)
        action = next_action(body, observed)
        again_s = None
        if action.verb == "PlanInstance":
            await self._plan(key, body, observed)
            return None
        if action.request is not None:
            leave = await self._scale_in.leave(body, observed, action.request)
            if leave.waiting and observed is not None:
                observed, again_s = leave.shown_in(observed), AGAIN_WALL_S
            else:
                observed = await self._compute.ensure_instance(key, action.request, leaving=leave.nodes)
        elif action.verb == "DeleteInstance":
            again_s = None if await self._compute.delete_instance(key) else GONE_WALL_S
        elif observed is None and (body["spec"].get("dryRun") or body["metadata"].get("deletionTimestamp")):
            return None  # its plan says all there is to say, or nothing is left
        await self._report(body, observed)
        return again_s

    async def _follow_policy(self, body: dict[str, Any], observed: InstanceView | None) -> None:
        """Where a scaling policy owns the instance's scale, the resource asks for as many nodes as that has decided,
        as with an autoscaler of Kubernetes. Once that is gone it follows a last time, unless somebody has asked for
        something since: a policy that goes at zero has brought the instance back."""
        metadata, spec = body["metadata"], body["spec"]
        if observed is None or metadata.get("deletionTimestamp") or spec.get("dryRun"):
            return
        followed = (metadata.get("annotations") or {}).get(FOLLOWED)
        asked = {"nodes": spec["nodes"], "suspend": bool(spec.get("suspend"))}
        decided = {"nodes": observed.nodes, "suspend": observed.suspend}
        follows: str | None = json.dumps(decided)
        if observed.scaling_policy is None:
            decided, follows = decided if followed == json.dumps(asked) else asked, None
        if (asked, followed) == (decided, follows):
            return
        noted = {"resourceVersion": metadata["resourceVersion"], "annotations": {FOLLOWED: follows}}
        try:
            written = await self.kube.merge(
                INSTANCE, metadata["name"], {"metadata": noted, "spec": decided}, metadata["namespace"]
            )
        except NotFound:
            return
        except Conflict as newer:
            raise StaleRead(newer.message) from newer
        body["metadata"], body["spec"] = written["metadata"], written["spec"]

    async def _plan(self, key: str, body: dict[str, Any], observed: InstanceView | None) -> None:
        """Ask whether it would fit and write the answer into the status, beside what is there already."""
        plan, refused = None, None
        try:
            plan = await self._compute.ensure_instance(key, desired_instance(body), validate_only=True)
        except MatrixError as why:
            if why.retryable:
                raise
            name_field(why)
            refused = why
        await self.write_status(body, planned_status(body, observed, plan, refused, self.wall()))

    async def report_refusal(self, key: str, body: dict[str, Any], refused: MatrixError, passes: bool) -> None:
        """A refused spec leaves an instance that is there as it was, and the status shows it and says so."""
        observed = None if passes else await self._compute.find_instance(key)
        if observed is None:
            await super().report_refusal(key, body, refused, passes)
        else:
            await self._report(body, observed, refused)

    async def _report(
        self, body: dict[str, Any], observed: InstanceView | None, refused: MatrixError | None = None
    ) -> None:
        status, before = instance_status(body, observed, self.wall(), refused), _not_followed(body)
        if (body.get("status") or {}).get("plan") and not body["spec"].get("dryRun"):
            status["plan"] = None  # what was planned is the spec now
        if await self.write_status(body, status) and (synced := _not_followed(body)) and synced != before:
            about = (synced["reason"], synced["message"], self.wall(), synced["lastTransitionTime"])
            await record(self.kube, reported_of(self.kind, body, "Warning", *about))

    async def record(self, event: dict[str, Any]) -> None:
        """Record what MatrixCompute reports of an instance on its resource; recorded twice, it is there once."""
        resource = await self.read(key_of(event["project"], event["instance"]))
        if resource is not None:  # otherwise the instance was made over REST, or its resource is gone
            metadata = resource["metadata"]
            await record(self.kube, event_object(event, metadata["namespace"], metadata["uid"], self.wall()))


def _not_followed(body: dict[str, Any]) -> dict[str, Any] | None:
    """The condition that says why the spec is not followed; None while it is."""
    conditions = (body.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == SYNCED), None)
