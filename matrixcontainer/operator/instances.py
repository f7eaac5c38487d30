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
from matrixcontainer.client.events import record_event
from matrixcontainer.operator.decision import desired_instance, next_action
from matrixcontainer.operator.reconciler import (
    DELETION_POLL_WALL_S,
    REQUEUE_AFTER_WALL_S,
    Reconciler,
    StaleRead,
    prefix_field,
)
from matrixcontainer.operator.scale_in import ScaleIn
from matrixcontainer.operator.status import (
    EMPTY_STATUS,
    SYNCED,
    event_object,
    instance_status,
    planned_status,
    resource_event,
)

FOLLOWED_SCALE = "cloudmatrix.io/followed-scale"
"""Annotation of a resource whose scale a policy owns: the `nodes` and `suspend` last written on the policy's behalf."""


class InstanceReconciler(Reconciler):
    """Reconciles a CloudMatrixInstance with its instance in MatrixCompute."""

    kind = INSTANCE
    deleted_status = EMPTY_STATUS

    def __init__(self, kube: KubeClient, compute: ComputeClient, scale_in: ScaleIn, wall: Callable[[], float]) -> None:
        super().__init__(kube, wall)
        self._compute = compute
        self._scale_in = scale_in

    async def converge(self, key: str, body: dict[str, Any]) -> float | None:
        observed = await self._compute.find_instance(key)
        await self._follow_policy(body, observed)
        action = next_action(body, observed)
        requeue_after_s = None
        if action.verb == "PlanInstance":
            await self._plan(key, body, observed)
            return None
        if action.request is not None:
            drain = await self._scale_in.drain_leaving_members(body, observed, action.request)
            if drain.waiting and observed is not None:
                observed, requeue_after_s = drain.with_progress(observed), REQUEUE_AFTER_WALL_S
            else:
                observed = await self._compute.ensure_instance(key, action.request, leaving=drain.nodes)
        elif action.verb == "DeleteInstance":
            requeue_after_s = None if await self._compute.delete_instance(key) else DELETION_POLL_WALL_S
        elif observed is None and (body["spec"].get("dryRun") or body["metadata"].get("deletionTimestamp")):
            return None  # the plan is already in the status, or nothing is left
        await self._report(body, observed)
        return requeue_after_s

    async def _follow_policy(self, body: dict[str, Any], observed: InstanceView | None) -> None:
        """Write a scaling policy's decision into the resource's spec, as a HorizontalPodAutoscaler would.

        When the policy has gone, the spec follows the instance one last time (a policy deleted while scaled to zero has
        resumed the instance), unless a user has changed the spec since."""
        metadata, spec = body["metadata"], body["spec"]
        if observed is None or metadata.get("deletionTimestamp") or spec.get("dryRun"):
            return
        followed = (metadata.get("annotations") or {}).get(FOLLOWED_SCALE)
        current = {"nodes": spec["nodes"], "suspend": bool(spec.get("suspend"))}
        desired = {"nodes": observed.nodes, "suspend": observed.suspend}
        annotation: str | None = json.dumps(desired)
        if observed.scaling_policy is None:
            desired, annotation = desired if followed == json.dumps(current) else current, None
        if (current, followed) == (desired, annotation):
            return
        patched = {"resourceVersion": metadata["resourceVersion"], "annotations": {FOLLOWED_SCALE: annotation}}
        try:
            written = await self.kube.merge(
                INSTANCE, metadata["name"], {"metadata": patched, "spec": desired}, metadata["namespace"]
            )
        except NotFound:
            return
        except Conflict as newer:
            raise StaleRead(newer.message) from newer
        body["metadata"], body["spec"] = written["metadata"], written["spec"]

    async def _plan(self, key: str, body: dict[str, Any], observed: InstanceView | None) -> None:
        """Ask MatrixCompute for a plan and write it to `status.plan`; the rest of the status keeps describing the
        existing instance, if any."""
        plan, refused = None, None
        try:
            plan = await self._compute.ensure_instance(key, desired_instance(body), validate_only=True)
        except MatrixError as error:
            if error.retryable:
                raise
            prefix_field(error)
            refused = error
        await self.write_status(body, planned_status(body, observed, plan, refused, self.wall()))

    async def report_refusal(self, key: str, body: dict[str, Any], refused: MatrixError, temporary: bool) -> None:
        """Report a refused spec. An existing instance is unaffected, and its status is still shown."""
        observed = None if temporary else await self._compute.find_instance(key)
        if observed is None:
            await super().report_refusal(key, body, refused, temporary)
        else:
            await self._report(body, observed, refused)

    async def _report(
        self, body: dict[str, Any], observed: InstanceView | None, refused: MatrixError | None = None
    ) -> None:
        status, before = instance_status(body, observed, self.wall(), refused), _synced_condition(body)
        if (body.get("status") or {}).get("plan") and not body["spec"].get("dryRun"):
            status["plan"] = None  # outdated: dryRun is off
        if await self.write_status(body, status) and (synced := _synced_condition(body)) and synced != before:
            details = (synced["reason"], synced["message"], self.wall(), synced["lastTransitionTime"])
            await record_event(self.kube, resource_event(self.kind, body, "Warning", *details))

    async def record(self, event: dict[str, Any]) -> None:
        """Record one of MatrixCompute's instance events on the instance's resource. Idempotent."""
        resource = await self.read(key_of(event["project"], event["about"]))
        if resource is not None:  # otherwise the instance was created over REST, or its resource is gone
            metadata = resource["metadata"]
            await record_event(self.kube, event_object(event, metadata["namespace"], metadata["uid"], self.wall()))


def _synced_condition(body: dict[str, Any]) -> dict[str, Any] | None:
    """The Synced condition, which says why the spec is not followed; None while it is followed."""
    conditions = (body.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == SYNCED), None)
