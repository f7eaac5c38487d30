"""CloudMatrixInfers: a deployment of CloudMatrix-Infer on an instance, a pod for each of its nodes, and its metrics."""

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
from matrixcontainer.operator.reconciler import GONE_WALL_S, Reconciler
from matrixcontainer.operator.scale_in import ScaleIn
from matrixcontainer.operator.workload import metrics_of, pods_for
from matrixresource.contract.allocations import DEPLOYMENT_LABEL

log = logging.getLogger(__name__)


class InferReconciler(Reconciler):
    """A resource's deployment. `endpoint` is where CloudMatrix-Infer answers, for users to read in the status."""

    kind = INFER
    gone_status: ClassVar[dict[str, Any]] = {"pods": 0, "metrics": None}

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
            pods = await self._match_pods(body, {})
            return None if await self._inference.delete(key) and pods == 0 else GONE_WALL_S
        spec = body["spec"]
        instance = await self._compute.find_instance(key_in(body, spec["instance"], "spec.instance"))
        deployment = await self._inference.find(key)
        lacking = lacking_of(spec["instance"], instance)
        if deployment is None and lacking:
            pods = await self._match_pods(body, {})
            await self._report(body, None, pods, ("Waiting", f"waiting: {lacking}"), progressing=True)
            return None
        deployment = await self._inference.ensure(key, spec)
        pods = await self._match_pods(body, deployment.get("roles") or {})
        await self._scale_in.withdraw(body, deployment, instance)
        progressing, why = progress_of(deployment)
        if lacking and why[0] == "NoLayout":
            why = why[0], lacking
        await self._report(body, deployment, pods, why, progressing=progressing, lacking=lacking)
        return None

    async def report_refusal(self, key: str, body: dict[str, Any], refused: MatrixError, passes: bool) -> None:
        """A refused spec leaves a deployment that is there as it was, and the status says so."""
        deployment = await self._inference.find(key)
        if deployment is None and not passes:
            await super().report_refusal(key, body, refused, passes)
            return
        pods = (body.get("status") or {}).get("pods", 0)
        await self._report(body, deployment, pods, (refused.reason, refused.message), progressing=False)

    async def measure(self) -> str:
        """Write what each does now into its status, one after the other, for autoscalers; to be called as often as they
        look. One that cannot be asked is logged, and keeps none of the others."""
        bodies, _ = await self.kube.list(INFER)
        serving = [
            each
            for each in bodies
            if (each.get("status") or {}).get("pods") and not each["metadata"].get("deletionTimestamp")
        ]
        for body in serving:
            key = key_of_resource(body)
            try:
                with contextlib.suppress(NotFound, Conflict):  # gone, or newer than read: the next look sees it
                    async with self.turn(key):
                        await self.write_status(body, {"metrics": metrics_of(await self._inference.statistics(key))})
            except MatrixError as away:
                log.info("metrics are not reported", extra={"deployment": key, "why": away.message})
        return f"{len(serving)} deployments measured"

    async def _match_pods(self, body: dict[str, Any], roles: dict[str, str]) -> int:
        """Make the pods match the layout; returns how many there are now."""
        metadata = body["metadata"]
        wanted = pods_for(body, roles)
        labels = f"{MANAGED_LABEL}={MANAGED_BY},{DEPLOYMENT_LABEL}={metadata['name']}"
        present, _ = await self.kube.list(POD, metadata["namespace"], labels)
        names = {pod["metadata"]["name"] for pod in present}
        for pod in present:
            name = pod["metadata"]["name"]
            if name not in wanted:
                # Its node may be lost and nobody there to confirm: the workload has moved on, so does the pod.
                with contextlib.suppress(Conflict):  # another pod of that name by now
                    await self.kube.delete(POD, name, metadata["namespace"], grace_s=0, uid=pod["metadata"]["uid"])
                names.discard(name)
        for name, pod in wanted.items():
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
        why: tuple[str, str],
        *,
        progressing: bool,
        lacking: str = "",
    ) -> None:
        """Write the status; `why` are the reason and message of its Progressing condition, `lacking` says what its
        instance is not: CloudMatrix-Infer, which is asked what it serves, knows of that no more than its slices."""
        state = deployment["state"] if deployment is not None else "Pending"
        before = (body.get("status") or {}).get("state")
        reported = [c for c in (deployment or {}).get("conditions") or [] if c["type"] == "Ready"]
        waiting = why[1] if progressing else f"the deployment is {state}"
        message = reported[0]["message"] if reported else waiting
        if lacking and deployment is not None and state in ("Pending", "Unavailable"):
            message = lacking
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
            "conditions": self.condition({**body, "status": {"conditions": ready}}, "Progressing", progressing, *why),
        }
        if not pods:
            status["metrics"] = None  # nothing is measured any more, and an autoscaler would go by the last that was
        if await self.write_status(body, status) and state != before:
            await self.record_transition(body, "Normal", state, message)


def lacking_of(name: str, instance: InstanceView | None) -> str:
    """Why nothing can be served on an instance now; empty where it is ready."""
    if instance is None:
        return f"there is no instance {name}"
    if any(each.type == "Ready" and each.status == "True" for each in instance.conditions):
        return ""
    return f"instance {name} is {instance.state}"


def progress_of(deployment: dict[str, Any]) -> tuple[bool, tuple[str, str]]:
    """Whether the deployment is on the way to the sizes of its spec, with the reason and message that it gives."""
    for each in deployment.get("conditions") or []:
        if each["type"] == "Progressing" and each["reason"] != "Settled":
            return each["status"] == "True", (each["reason"], each["message"])
    return False, ("Settled", "everything is as specified")
