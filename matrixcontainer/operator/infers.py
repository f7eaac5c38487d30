"""CloudMatrixInfers: a CloudMatrix-Infer deployment on an instance, one pod per node, and the deployment's metrics."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any, ClassVar

from matrixcommon.model.errors import Conflict, MatrixError, NotFound
from matrixcompute.client import ComputeClient
from matrixcompute.contract import InstanceView
from matrixcontainer.client.client import INFER, POD, KubeClient
from matrixcontainer.operator.decision import MANAGED_BY, MANAGED_LABEL, key_in, key_of_resource
from matrixcontainer.operator.ports import Inference
from matrixcontainer.operator.reconciler import DELETION_POLL_WALL_S, Reconciler
from matrixcontainer.operator.scale_in import ScaleIn
from matrixcontainer.operator.workload import metrics_of, pods_for
from matrixresource.contract.allocations import DEPLOYMENT_LABEL

log = logging.getLogger(__name__)


class InferReconciler(Reconciler):
    """Reconciles a CloudMatrixInfer with its deployment. `endpoint` is CloudMatrix-Infer's URL, shown in the status."""

    kind = INFER
    deleted_status: ClassVar[dict[str, Any]] = {"pods": 0, "metrics": None}

    def __init__(
        self,
        kube: KubeClient,
        compute: ComputeClient,
        inference: Inference,
        scale_in: ScaleIn,
        wall: Callable[[], float],
        endpoint: str,
    ) -> None:
        super().__init__(kube, wall)
        self._compute = compute
        self._inference = inference
        self._scale_in = scale_in
        self._endpoint = endpoint

    async def converge(self, key: str, body: dict[str, Any]) -> float | None:
        if body["metadata"].get("deletionTimestamp"):
            pods = await self._sync_pods(body, {})
            return None if await self._inference.delete(key) and pods == 0 else DELETION_POLL_WALL_S
        spec = body["spec"]
        instance = await self._compute.find_instance(key_in(body, spec["instance"], "spec.instance"))
        deployment = await self._inference.find(key)
        not_ready = not_ready_reason(spec["instance"], instance)
        if deployment is None and not_ready:
            pods = await self._sync_pods(body, {})
            await self._report(body, None, pods, ("Waiting", f"waiting: {not_ready}"), progressing=True)
            return None
        deployment = await self._inference.ensure(key, spec)
        pods = await self._sync_pods(body, deployment.get("roles") or {})
        await self._scale_in.undrain_unneeded(body, deployment, instance)
        progressing, details = progress(deployment)
        if not_ready and details[0] == "NoLayout":
            details = details[0], not_ready
        await self._report(body, deployment, pods, details, progressing=progressing, not_ready=not_ready)
        return None

    async def report_refusal(self, key: str, body: dict[str, Any], refused: MatrixError, temporary: bool) -> None:
        """Report a refused spec. An existing deployment is unaffected, and its status is still shown."""
        deployment = await self._inference.find(key)
        if deployment is None and not temporary:
            await super().report_refusal(key, body, refused, temporary)
            return
        pods = (body.get("status") or {}).get("pods", 0)
        await self._report(body, deployment, pods, (refused.reason, refused.message), progressing=False)

    async def update_metrics(self) -> str:
        """Write every serving deployment's current metrics into its status, for autoscalers.

        Call it as often as autoscalers read them. A deployment whose statistics cannot be read is logged and does not
        hold up the others."""
        bodies, _ = await self.kube.list(INFER)
        serving = [
            each
            for each in bodies
            if (each.get("status") or {}).get("pods") and not each["metadata"].get("deletionTimestamp")
        ]
        for body in serving:
            key = key_of_resource(body)
            try:
                with contextlib.suppress(NotFound, Conflict):  # deleted or changed since; the next call sees that
                    async with self.lock_for(key):
                        await self.write_status(body, {"metrics": metrics_of(await self._inference.statistics(key))})
            except MatrixError as failure:
                log.info("metrics not updated", extra={"deployment": key, "why": failure.message})
        return f"{len(serving)} deployments measured"

    async def _sync_pods(self, body: dict[str, Any], roles: dict[str, str]) -> int:
        """Create and delete pods to match the layout; return how many there are now."""
        metadata = body["metadata"]
        desired = pods_for(body, roles)
        labels = f"{MANAGED_LABEL}={MANAGED_BY},{DEPLOYMENT_LABEL}={metadata['name']}"
        current, _ = await self.kube.list(POD, metadata["namespace"], labels)
        names = {pod["metadata"]["name"] for pod in current}
        for pod in current:
            name = pod["metadata"]["name"]
            if name not in desired:
                # Delete by force: if the node is lost, no kubelet is there to confirm, and the workload has moved on.
                with contextlib.suppress(Conflict):  # replaced by another pod of the same name
                    await self.kube.delete(POD, name, metadata["namespace"], grace_s=0, uid=pod["metadata"]["uid"])
                names.discard(name)
        for name, pod in desired.items():
            if name not in names:
                with contextlib.suppress(Conflict):
                    await self.kube.create(POD, pod, metadata["namespace"])
                names.add(name)
        return len(names)

    async def _report(
        self,
        body: dict[str, Any],
        deployment: dict[str, Any] | None,
        pods: int,
        details: tuple[str, str],
        *,
        progressing: bool,
        not_ready: str = "",
    ) -> None:
        """Write the status. `details` is the reason and message of the Progressing condition; `not_ready` says why the
        instance is not ready, which CloudMatrix-Infer cannot: it knows no more of the instance than its slices."""
        state = deployment["state"] if deployment is not None else "Pending"
        before = (body.get("status") or {}).get("state")
        ready_conditions = [c for c in (deployment or {}).get("conditions") or [] if c["type"] == "Ready"]
        default_message = details[1] if progressing else f"the deployment is {state}"
        message = ready_conditions[0]["message"] if ready_conditions else default_message
        if not_ready and deployment is not None and state in ("Pending", "Unavailable"):
            message = not_ready
        ready = self.condition(body, "Ready", state == "Serving", state, message)
        pools = (deployment or {}).get("pools", {})
        for memory in (c for c in (deployment or {}).get("conditions") or [] if c["type"] == "CacheMemory"):
            shown = memory["status"] == "True", memory["reason"], memory["message"]
            ready = self.condition({**body, "status": {"conditions": ready}}, "CacheMemory", *shown)
        status = {
            "state": state,
            "observedGeneration": body["metadata"].get("generation", 1),
            "endpoint": self._endpoint,
            "prefillNpus": pools.get("prefillNpus", 0),
            "decodeNpus": pools.get("decodeNpus", 0),
            "cachingNodes": pools.get("cachingNodes", 0),
            "pods": pods,
            "conditions": self.condition(
                {**body, "status": {"conditions": ready}}, "Progressing", progressing, *details
            ),
        }
        if not pods:
            status["metrics"] = None  # no longer measured: an autoscaler must not act on old values
        if await self.write_status(body, status) and state != before:
            await self.record_transition(body, "Normal", state, message)


def not_ready_reason(name: str, instance: InstanceView | None) -> str:
    """Why an instance cannot serve now; empty if it is ready."""
    if instance is None:
        return f"there is no instance {name}"
    if any(each.type == "Ready" and each.status == "True" for each in instance.conditions):
        return ""
    return f"instance {name} is {instance.state}"


def progress(deployment: dict[str, Any]) -> tuple[bool, tuple[str, str]]:
    """Whether the deployment is still moving to the sizes in its spec, with its reason and message."""
    for each in deployment.get("conditions") or []:
        if each["type"] == "Progressing" and each["reason"] != "Settled":
            return each["status"] == "True", (each["reason"], each["message"])
    return False, ("Settled", "everything is as specified")
