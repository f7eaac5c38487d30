"""ScalingPolicies: one policy in MatrixCompute for each resource, its decisions shown in the status.

An instance's scale has one owner, the first to claim it: a policy is refused if a HorizontalPodAutoscaler already
scales its target, and a HorizontalPodAutoscaler created after the policy gets a warning event. While a policy owns a
CloudMatrixInstance, `spec.nodes` follows MatrixCompute (see `instances.py`), so anything else written there is
overwritten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matrixcommon.model.errors import Conflict, MatrixError
from matrixcommon.model.resource_model import set_condition
from matrixcompute.autoscaling.policy_view import ScalingPolicyView
from matrixcompute.client import ComputeClient
from matrixcontainer.client.client import AUTOSCALER, INSTANCE, SCALING_POLICY, KubeClient
from matrixcontainer.client.events import record_event
from matrixcontainer.operator.crds import POLICY_STATUS
from matrixcontainer.operator.decision import key_in, namespace_of
from matrixcontainer.operator.reconciler import DELETION_POLL_WALL_S, Reconciler
from matrixcontainer.operator.status import resource_event


class ScalingPolicyReconciler(Reconciler):
    """Reconciles a ScalingPolicy with its policy in MatrixCompute."""

    kind = SCALING_POLICY

    def __init__(self, kube: KubeClient, compute: ComputeClient, wall: Callable[[], float]) -> None:
        super().__init__(kube, wall)
        self._compute = compute

    async def converge(self, key: str, body: dict[str, Any]) -> float | None:
        if body["metadata"].get("deletionTimestamp"):
            return None if await self._compute.delete_policy(key) else DELETION_POLL_WALL_S
        spec, namespace = body["spec"], namespace_of(body)
        target = spec["scaleTargetRef"]["name"]
        key_in(body, target, "spec.scaleTargetRef.name")
        for autoscaler in await self._autoscalers_of(namespace, target):
            name = autoscaler["metadata"]["name"]
            if _created(autoscaler) <= _created(body):
                await self._compute.delete_policy(key)
                raise Conflict(
                    f"HorizontalPodAutoscaler {name!r} already owns the scale of {target!r}",
                    field="scaleTargetRef.name",
                )
            await self._warn_autoscaler(autoscaler, body, target)
        labels = body["metadata"].get("labels") or {}
        view = await self._compute.ensure_policy(key, {**spec, "project": namespace, "labels": labels})
        fields, generation = view.wire(), body["metadata"].get("generation", 1)
        conditions = (body.get("status") or {}).get("conditions") or []
        for each in view.conditions:
            details = each.status == "True", each.reason, each.message
            conditions = set_condition(conditions, each.type, *details, generation=generation, now=self.wall())
        await self.write_status(body, {name: fields.get(name) for name in POLICY_STATUS} | {"conditions": conditions})
        await self._record_decision(body, view)
        await self.report_ready(body, view.state, True, "Owner", f"owns the scale of {target}")
        return None

    async def _record_decision(self, body: dict[str, Any], view: ScalingPolicyView) -> None:
        """Record an event for the newest decision, once, if it changes the scale or the pools."""
        previous, last = ([None, None, *view.decisions])[-2:]
        pools_changed = (
            previous is not None and last is not None and previous.desired_pools != last.desired_pools is not None
        )
        if last is not None and (last.desired_replicas != last.current_replicas or pools_changed):
            details = "Normal", last.reason, last.message
            await record_event(self.kube, resource_event(self.kind, body, *details, self.wall(), last.at))

    async def report_refusal(self, key: str, body: dict[str, Any], refused: MatrixError, temporary: bool) -> None:
        """Also report a conflict with another owner, which resolves itself when that owner goes."""
        await super().report_refusal(key, body, refused, temporary and refused.reason != "Conflict")

    async def _autoscalers_of(self, namespace: str, target: str) -> list[dict[str, Any]]:
        """The HorizontalPodAutoscalers that scale that instance."""
        target_ref = {"kind": INSTANCE.kind, "name": target}
        autoscalers = (await self.kube.list(AUTOSCALER, namespace))[0]
        return [each for each in autoscalers if target_ref.items() <= each["spec"]["scaleTargetRef"].items()]

    async def _warn_autoscaler(self, autoscaler: dict[str, Any], policy: dict[str, Any], target: str) -> None:
        """Record a warning event, once, on an autoscaler created after the policy."""
        name, uid = policy["metadata"]["name"], policy["metadata"]["uid"]
        text = f"ScalingPolicy {name!r} owns the scale of {target!r} and reverts other changes; delete one of the two"
        details = "Warning", "ScaleOwned", text
        await record_event(self.kube, resource_event(AUTOSCALER, autoscaler, *details, self.wall(), uid))


def _created(body: dict[str, Any]) -> str:
    """Creation time in UTC with one-second precision; earlier times sort first."""
    return str(body["metadata"]["creationTimestamp"])
