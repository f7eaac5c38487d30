"""The operator's protagonist: observe, decide, perform, report, for each kind of resource.

`reconcile_instance` and its siblings take the resource as it is now and bring the services nearer to it; run twice they
do nothing the second time. Kopf calls them on every change of a resource, `Reporter` on every change in the services.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from matrixcommon.model.errors import Conflict, MatrixError, NotFound
from matrixcommon.model.resource_model import condition
from matrixcompute.client import ComputeClient
from matrixcompute.contract import InstanceView
from matrixcontainer.client.client import EVENT, FAULT, INFER, INSTANCE, POD, Kind, KubeClient
from matrixcontainer.operator.decision import (
    MANAGED_BY,
    MANAGED_LABEL,
    desired_instance,
    key_in,
    key_of_resource,
    next_action,
)
from matrixcontainer.operator.ports import Faults, Inference
from matrixcontainer.operator.scale_in import ScaleIn
from matrixcontainer.operator.status import event_object, instance_status, planned_status, reported_of
from matrixcontainer.operator.workload import DEPLOYMENT_LABEL, metrics_of, pods_for

log = logging.getLogger(__name__)


class Operator:
    """Everything the handlers do. `endpoint` is where CloudMatrix-Infer answers, for users to read in the status."""

    def __init__(
        self,
        kube: KubeClient,
        compute: ComputeClient,
        inference: Inference,
        faults: Faults,
        wall: Callable[[], float],
        endpoint: str,
    ) -> None:
        self._kube = kube
        self._compute = compute
        self._inference = inference
        self._faults = faults
        self._wall = wall
        self._endpoint = endpoint
        self._scale_in = ScaleIn(kube, compute, inference, wall)

    # -- CloudMatrixInstance -------------------------------------------------------------------------------------

    async def reconcile_instance(self, body: dict[str, Any]) -> str:
        """Ensure the instance is as its resource says, and report. Raises what MatrixCompute refuses."""
        name = key_of_resource(body)
        observed = await self._compute.find_instance(name)
        action = next_action(body, observed)
        if action.verb == "PlanInstance":
            await self._plan(body, observed)
            return f"{action.verb}: {action.why}"
        if action.verb == "EnsureInstance":
            assert action.request is not None
            leave = await self._scale_in.leave(body, observed, action.request)
            if leave.waiting and observed is not None:
                await self.report_instance(body, leave.shown_in(observed))
                return f"DrainNodes: {leave.waiting}"
            observed = await self._compute.ensure_instance(name, action.request, leaving=leave.nodes)
        elif action.verb == "DeleteInstance":
            await self._compute.delete_instance(name)
        await self.report_instance(body, observed)
        return f"{action.verb}: {action.why}"

    async def _plan(self, body: dict[str, Any], observed: InstanceView | None) -> None:
        """Ask whether it would fit and write the answer into the status, beside what is there already."""
        metadata = body["metadata"]
        plan, refused = None, None
        try:
            plan = await self._compute.ensure_instance(
                key_of_resource(body), desired_instance(body), validate_only=True
            )
        except MatrixError as why:
            if why.retryable:
                raise
            refused = why
        status = planned_status(body, observed, plan, refused, self._wall())
        await self._kube.merge(INSTANCE, metadata["name"], {"status": status}, metadata["namespace"], "status")

    async def delete_instance(self, name: str) -> bool:
        """Ask for deletion; True once nothing is left."""
        return await self._compute.delete_instance(name)

    async def report_instance(self, body: dict[str, Any], observed: InstanceView | None) -> None:
        """Write the status, if it says anything new."""
        status = instance_status(body, observed, self._wall())
        current = body.get("status") or {}
        if current.get("plan") and not body["spec"].get("dryRun"):
            status["plan"] = None  # what was planned is the spec now
        if any(current.get(key) != value for key, value in status.items()):
            metadata = body["metadata"]
            await self._kube.merge(INSTANCE, metadata["name"], {"status": status}, metadata["namespace"], "status")

    async def report_all(self) -> str:
        """Compare every CloudMatrixInstance with its instance; heal what somebody changed behind our back."""
        resources, _ = await self._kube.list(INSTANCE)
        if not resources:
            return "no instances"
        instances = {each.key: each for each in await self._compute.instances()}
        for body in resources:
            observed = instances.get(key_of_resource(body))
            try:
                verb = next_action(body, observed).verb
                if verb in ("EnsureInstance", "PlanInstance"):
                    await self.reconcile_instance(body)
                elif body["spec"].get("dryRun") and observed is None:
                    continue
                elif not body["metadata"].get("deletionTimestamp") or observed is not None:
                    await self.report_instance(body, observed)
            except NotFound:
                continue  # deleted while we looked
            except MatrixError as refused:
                log.warning("instance refused", extra={"instance": body["metadata"]["name"], "why": refused.message})
        return f"{len(resources)} instances reported"

    async def record_event(self, event: dict[str, Any]) -> None:
        """Record what happened to an instance as an Event on its resource; recorded twice, it is there once."""
        namespace = event["project"]
        found = await self._kube.find(INSTANCE, event["instance"], namespace)
        if found is None:
            return  # the instance was made over REST, or its resource is gone
        body = event_object(event, namespace, found["metadata"]["uid"], self._wall())
        with contextlib.suppress(Conflict):
            await self._kube.create(EVENT, body, namespace)

    # -- CloudMatrixInfer ----------------------------------------------------------------------------------------

    async def reconcile_infer(self, body: dict[str, Any]) -> bool:
        """Deploy the workload once its instance serves, a pod for each of its nodes. True when it is as specified."""
        spec = body["spec"]
        instance = await self._compute.find_instance(key_in(body, spec["instance"], "spec.instance"))
        deployment = await self._inference.find(key_of_resource(body))
        if deployment is None:
            ready = instance is not None and any(c.type == "Ready" and c.status == "True" for c in instance.conditions)
            if not ready:
                state = "no such instance" if instance is None else f"it is {instance.state}"
                await self._report_infer(body, None, f"waiting for instance {spec['instance']}: {state}", 0)
                return False
        deployment = await self._inference.ensure(key_of_resource(body), spec)
        pods = await self._match_pods(body, deployment.get("roles") or {})
        await self._scale_in.withdraw(body, deployment, instance)
        await self._report_infer(body, deployment, "", pods)
        return True

    async def report_metrics(self) -> str:
        """What every workload does now, for autoscalers; to be called as often as they look."""
        resources, _ = await self._kube.list(INFER)
        for body in resources:
            metadata = body["metadata"]
            if not (body.get("status") or {}).get("pods") or metadata.get("deletionTimestamp"):
                continue
            with contextlib.suppress(NotFound):
                metrics = metrics_of(await self._inference.statistics(key_of_resource(body)))
                if metrics != body["status"].get("metrics"):
                    status = {"status": {"metrics": metrics}}
                    await self._kube.merge(INFER, metadata["name"], status, metadata["namespace"], "status")
        return f"metrics of {len(resources)} deployments reported"

    async def delete_infer(self, body: dict[str, Any]) -> bool:
        """Stop the workload and remove its pods; True once nothing is left."""
        pods = await self._match_pods(body, {})
        return await self._inference.delete(key_of_resource(body)) and pods == 0

    async def _match_pods(self, body: dict[str, Any], roles: dict[str, str]) -> int:
        """Make the pods match the layout; returns how many there are now."""
        metadata = body["metadata"]
        wanted = pods_for(body, roles)
        labels = f"{MANAGED_LABEL}={MANAGED_BY},{DEPLOYMENT_LABEL}={metadata['name']}"
        present, _ = await self._kube.list(POD, metadata["namespace"], labels)
        names = {pod["metadata"]["name"] for pod in present}
        for pod in present:
            name = pod["metadata"]["name"]
            if name not in wanted:
                # Its node may be lost and nobody there to confirm: the workload has moved on, so does the pod.
                await self._kube.delete(POD, name, metadata["namespace"], grace_s=0)
                names.discard(name)
        for name, pod in wanted.items():
            if name not in names:
                with contextlib.suppress(Conflict):
                    await self._kube.create(POD, pod, metadata["namespace"])
                names.add(name)
        return len(names)

    async def _report_infer(
        self,
        body: dict[str, Any],
        deployment: dict[str, Any] | None,
        waiting: str,
        pods: int,
        refused: MatrixError | None = None,
    ) -> None:
        """Write the status. A `refused` spec leaves a deployment that is there as it was, and the status says so."""
        current = body.get("status") or {}
        generation = body["metadata"].get("generation", 1)
        state = deployment["state"] if deployment is not None else "Pending"
        serving = state == "Serving"
        reported = [c for c in (deployment or {}).get("conditions") or [] if c["type"] == "Ready"]
        message = reported[0]["message"] if reported else waiting or f"the deployment is {state}"
        now = self._wall()
        conditions = condition(
            current.get("conditions") or [], "Ready", serving, state, message, generation=generation, now=now
        )
        why = ("Settled", "everything is as specified") if not waiting else ("Waiting", waiting)
        if refused is not None:
            why = (refused.reason, refused.message)
        conditions = condition(
            conditions, "Progressing", bool(waiting) and refused is None, *why, generation=generation, now=now
        )
        status = {
            "state": state,
            "observedGeneration": generation,
            "endpoint": self._endpoint,
            "prefillNpus": (deployment or {}).get("pools", {}).get("prefillNpus", 0),
            "decodeNpus": (deployment or {}).get("pools", {}).get("decodeNpus", 0),
            "pods": pods,
            "conditions": conditions,
        }
        if any(current.get(key) != value for key, value in status.items()):
            metadata = body["metadata"]
            await self._kube.merge(INFER, metadata["name"], {"status": status}, metadata["namespace"], "status")
            if state != current.get("state"):
                await self._record_ready_event(body, "Normal", state, message, status["conditions"])

    async def report_infers(self) -> str:
        """Look at every CloudMatrixInfer again: the layout follows the instance as nodes come and go."""
        resources, _ = await self._kube.list(INFER)
        for body in resources:
            if body["metadata"].get("deletionTimestamp"):
                continue
            try:
                await self.reconcile_infer(body)
            except NotFound:
                continue
            except MatrixError as refused:
                await self._report_infer(
                    body,
                    await self._inference.find(key_of_resource(body)),
                    f"{refused.reason}: {refused.message}",
                    (body.get("status") or {}).get("pods", 0),
                    refused,
                )
        return f"{len(resources)} deployments reported"

    async def report_refusal(self, kind: Kind, body: dict[str, Any], refused: MatrixError) -> None:
        """Write into the status why a spec is refused; it stays so until the spec changes."""
        metadata = body["metadata"]
        conditions = condition(
            (body.get("status") or {}).get("conditions") or [],
            "Ready",
            False,
            refused.reason,
            refused.message,
            generation=metadata.get("generation", 1),
            now=self._wall(),
        )
        status = {
            "state": "Refused",
            "observedGeneration": metadata.get("generation", 1),
            "conditions": conditions,
        }
        with contextlib.suppress(NotFound):
            await self._kube.merge(kind, metadata["name"], {"status": status}, metadata.get("namespace"), "status")
            await self._record_ready_event(body, "Warning", refused.reason, refused.message, conditions)

    async def _record_ready_event(
        self, body: dict[str, Any], type: str, reason: str, message: str, conditions: list[dict[str, Any]]
    ) -> None:
        """An event on the resource, once for each time its Ready condition came to say so."""
        since = next(each["lastTransitionTime"] for each in conditions if each["type"] == "Ready")
        event = reported_of(body, type, reason, message, self._wall(), since)
        with contextlib.suppress(Conflict, NotFound):
            await self._kube.create(EVENT, event, event["metadata"]["namespace"])

    # -- MatrixFault ---------------------------------------------------------------------------------------------

    async def inject_fault(self, body: dict[str, Any]) -> None:
        """Put the fault on the hardware and say so. Raises what the emulated hardware refuses."""
        spec = body["spec"]
        parameters = {key: _number(value) for key, value in (spec.get("parameters") or {}).items()}
        request = {"kind": spec["kind"], "target": spec["target"], "parameters": parameters}
        await self._faults.inject(body["metadata"]["name"], request)
        current, generation = body.get("status") or {}, body["metadata"].get("generation", 1)
        if (current.get("state"), current.get("observedGeneration")) == ("Injected", generation):
            return
        message = f"{spec['kind']} is on {spec['target']}; the control plane is not informed"
        conditions = condition(
            current.get("conditions") or [], "Ready", True, "Injected", message, generation=generation, now=self._wall()
        )
        status = {"state": "Injected", "observedGeneration": generation, "conditions": conditions}
        await self._kube.merge(FAULT, body["metadata"]["name"], {"status": status}, subresource="status")
        await self._record_ready_event(body, "Normal", "Injected", message, conditions)

    async def clear_fault(self, name: str) -> None:
        with contextlib.suppress(NotFound):
            await self._faults.clear(name)


def _number(text: str) -> Any:
    """A parameter as the hardware wants it: the port is a word, the share a number."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
