"""HorizontalPodAutoscalers: every fifteen seconds, read the metrics, decide a size, write it to the target's scale.

The period and the windows are in seconds of `Core.emulated_time`, in which the targets and their metrics live. The
target may be any object with a scale subresource, built-in or custom. usage_reader.py reads the metrics,
autoscaler_decision.py decides. An autoscaler remembers recommendations and changes for its windows; after a restart it
starts from the current size, so it never scales down a target that it knows nothing about.
"""

from matrixcontainer.kubeapi.controllers.runtime.event_recorder import EventRecorder
from matrixcontainer.kubeapi.controllers.runtime.informers import Informers
from matrixcontainer.kubeapi.controllers.runtime.workqueue import WorkloadController
from matrixcontainer.kubeapi.controllers.workloads.autoscaler_decision import (
    MetricUnavailable,
    Obj,
    Sample,
    ScalingHistory,
    limit_change,
    record_change,
    replicas_by_average,
    replicas_by_pods,
    replicas_by_ratio,
    stabilize_recommendation,
    tolerances,
)
from matrixcontainer.kubeapi.kubelet.pod_info import Name
from matrixcontainer.kubeapi.kubelet.usage_reader import UsageReader
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.conditions import set_condition
from matrixcontainer.kubeapi.meta.jsonpath import compile_path
from matrixcontainer.kubeapi.meta.quantities import format_milli, milli
from matrixcontainer.kubeapi.meta.selectors import LabelSelector
from matrixcontainer.kubeapi.meta.timestamps import timestamp
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.registry.scale import scale_of
from matrixcontainer.kubeapi.schema.structural import copy_json
from matrixcontainer.kubeapi.storage.objects import Change

PERIOD_S = 15.0
PERIOD_WALL_S_MIN, PERIOD_WALL_S_MAX = 0.1, 15.0
"""Bounds on the wait, in wall-clock seconds, as the speed of emulated time may change meanwhile."""


class HorizontalController(WorkloadController):
    storage = "horizontalpodautoscalers.autoscaling"
    account = "horizontal-pod-autoscaler"

    def __init__(self, core: Core, informers: Informers, events: EventRecorder, usages: UsageReader) -> None:
        super().__init__(core, informers, events)
        self.usages = usages
        self._histories: dict[str, ScalingHistory] = {}

    def on_change(self, change: Change) -> None:
        """Ignore status updates."""
        if change.type == "DELETED":
            self._histories.pop(change.record.uid, None)
        elif change.previous is None or _generation(change.previous.obj) != _generation(change.record.obj):
            super().on_change(change)

    async def reconcile(self, key: Name) -> float | None:
        record = self.record(key)
        if record is None or b'"deletionTimestamp"' in record.body:
            return None
        evaluation = _Evaluation(self, record.obj, self._histories.setdefault(record.uid, ScalingHistory()))
        await evaluation.run()
        status = evaluation.status
        if status != (record.obj.get("status") or {}):
            await self.write_status(key, status)
        return min(max(self.core.emulated_time.wall_s(PERIOD_S), PERIOD_WALL_S_MIN), PERIOD_WALL_S_MAX)


def _generation(obj: Obj) -> int:
    return int(obj["metadata"].get("generation", 0))


class _Evaluation:
    """One evaluation of one autoscaler."""

    def __init__(self, controller: HorizontalController, hpa: Obj, history: ScalingHistory) -> None:
        self.controller, self.hpa, self.history = controller, hpa, history
        self.core, self.informers, self.events = controller.core, controller.informers, controller.events
        self.usages = controller.usages
        self.now = self.core.now()
        self.elapsed_s = self.core.emulated_time.now()
        self.namespace = hpa["metadata"]["namespace"]
        self.status: Obj = copy_json(hpa.get("status") or {})
        self.tolerance = tolerances(hpa)

    def set_condition(self, kind: str, value: bool, reason: str, message: str) -> None:
        set_condition(self.status, kind, "True" if value else "False", reason, message, self.now)

    async def run(self) -> None:
        self.status["observedGeneration"] = self.hpa["metadata"].get("generation", 0)
        target = self._target()
        if target is None:
            self.status.setdefault("desiredReplicas", 0)
            return
        resource, obj, current = target
        self.status["currentReplicas"] = current
        text = "the HPA controller was able to get the target's current scale"
        self.set_condition("AbleToScale", True, "SucceededGetScale", text)
        least, most = self.hpa["spec"].get("minReplicas", 1), self.hpa["spec"]["maxReplicas"]
        desired, why = current, ""
        if current == 0 and least != 0:
            self.set_condition(
                "ScalingActive",
                False,
                "ScalingDisabled",
                "scaling is disabled since the replica count of the target is zero",
            )
        elif current > most:
            desired, why = most, "Current number of replicas above Spec.MaxReplicas"
        elif current < least:
            desired, why = least, "Current number of replicas below Spec.MinReplicas"
        else:
            decided = self._decide(obj, resource, current)
            if decided is None:
                self.status.setdefault("desiredReplicas", current)
                return
            desired, why = decided
        self.status["desiredReplicas"] = desired
        if desired != current:
            await self._rescale(resource, obj, current, desired, why)

    def _target(self) -> tuple[Resource, Obj, int] | None:
        reference = self.hpa["spec"]["scaleTargetRef"]
        resource = self.core.registry.by_kind(reference.get("apiVersion", ""), reference["kind"])
        why = (
            f"the HPA controller was unable to get the target's current scale: {reference['kind']} {reference['name']}"
        )
        if resource is None or resource.scale is None:
            self.set_condition("AbleToScale", False, "FailedGetScale", f"{why}: no such kind with a scale subresource")
            return None
        record = self.core.store.get((resource.storage, self.namespace, reference["name"]))
        if record is None:
            self.set_condition("AbleToScale", False, "FailedGetScale", f"{why}: not found")
            return None
        obj = resource.served_object(record)
        return resource, obj, int(compile_path(resource.scale.spec).first(obj) or 0)

    # ---- metrics

    def _decide(self, obj: Obj, resource: Resource, current: int) -> tuple[int, str] | None:
        proposals, failures, reported = [], [], []
        for metric in self.hpa["spec"].get("metrics") or []:
            try:
                size, name, status = self._propose_replicas(metric, obj, resource, current)
                proposals.append((size, name))
                reported.append(status)
            except MetricUnavailable as failure:
                failures.append(failure)
        if failures and (not proposals or max(proposals)[0] < current):
            first = failures[0]
            text = f"the HPA was unable to compute the replica count: {first}"
            if not any(c.get("message") == text for c in self.status.get("conditions") or []):
                self.events.event(self.hpa, first.reason, str(first), self.controller.account, warning=True)
            self.set_condition("ScalingActive", False, first.reason, text)
            return None
        desired, name = max(proposals, key=lambda proposal: proposal[0])
        self.status["currentMetrics"] = reported
        self.set_condition(
            "ScalingActive",
            True,
            "ValidMetricFound",
            f"the HPA was able to successfully calculate a replica count from {name}",
        )
        return self._apply_bounds(desired, name, current)

    def _apply_bounds(self, desired: int, name: str, current: int) -> tuple[int, str]:
        size, reason = stabilize_recommendation(self.history, self.hpa, desired, current, self.elapsed_s)
        if reason:
            text = "recent recommendations were higher than current one, applying the highest recent recommendation"
            if reason == "ScaleUpStabilized":
                text = "recent recommendations were lower than current one, applying the lowest recent recommendation"
            self.set_condition("AbleToScale", True, reason, text)
        else:
            self.set_condition("AbleToScale", True, "ReadyForNewScale", "recommended size matches current size")
        size, reason, text = limit_change(self.history, self.hpa, size, current, self.elapsed_s)
        self.set_condition("ScalingLimited", bool(reason), reason or "DesiredWithinRange", text)
        return size, f"{name} {'above' if desired > current else 'below'} target" if size != current else ""

    def _propose_replicas(self, metric: Obj, obj: Obj, resource: Resource, current: int) -> tuple[int, str, Obj]:
        """(proposal, description of the metric, its entry in the status)."""
        kind = metric["type"]
        if kind in ("Resource", "ContainerResource"):
            return self._from_resource(metric, kind, obj, resource, current)
        if kind == "Pods":
            reported = metric["pods"]
            name = reported["metric"]["name"]
            pods = self._pods(obj, resource)
            samples = [Sample(self.usages.custom_of_pod(pod, name), 0, ready) for pod, ready in pods]
            if all(sample.used is None for sample in samples):
                raise MetricUnavailable("FailedGetPodsMetric", f"unable to get metric {name}: no pod reports it")
            target = milli(reported["target"]["averageValue"])
            size, average = replicas_by_pods(samples, target, current, self.tolerance, of_requests=False, cpu=False)
            status = {"metric": reported["metric"], "current": {"averageValue": format_milli(average)}}
            return size, f"pods metric {name}", {"type": kind, "pods": status}
        if kind == "Object":
            reported = metric["object"]
            name, described = reported["metric"]["name"], reported["describedObject"]
            value = self.usages.custom_of(self.usages.object(described, self.namespace), name)
            if value is None:
                raise MetricUnavailable(
                    "FailedGetObjectMetric", f"unable to get metric {name} of {described['kind']} {described['name']}"
                )
            size, shown = self._from_value(value, reported["target"], obj, resource, current)
            status = {"metric": reported["metric"], "describedObject": described, "current": shown}
            return size, f"{described['kind']} metric {name}", {"type": kind, "object": status}
        if kind == "External":
            reported = metric["external"]
            name = reported["metric"]["name"]
            value = self.usages.external(self.namespace, name)
            if value is None:
                raise MetricUnavailable(
                    "FailedGetExternalMetric", f"unable to get external metric {self.namespace}/{name}"
                )
            size, shown = self._from_value(value, reported["target"], obj, resource, current)
            return (
                size,
                f"external metric {name}",
                {"type": kind, "external": {"metric": reported["metric"], "current": shown}},
            )
        raise MetricUnavailable("InvalidMetricSourceType", f"unknown metric source type {kind!r}")

    def _from_value(self, value: int, target: Obj, obj: Obj, resource: Resource, current: int) -> tuple[int, Obj]:
        if target.get("averageValue") is not None:
            size = replicas_by_average(value, milli(target["averageValue"]), current, self.tolerance)
            return size, {"averageValue": format_milli(value // max(current, 1))}
        ready = sum(ready for _, ready in self._pods(obj, resource))
        return replicas_by_ratio(value / milli(target["value"]), current, ready, self.tolerance), {
            "value": format_milli(value)
        }

    def _from_resource(
        self, metric: Obj, kind: str, obj: Obj, resource: Resource, current: int
    ) -> tuple[int, str, Obj]:
        part = kind[0].lower() + kind[1:]
        reported = metric[part]
        name, only, target = reported["name"], reported.get("container", ""), reported["target"]
        of_requests = target.get("averageUtilization") is not None
        samples = []
        for pod, ready in self._pods(obj, resource):
            containers = [c for c in pod["spec"]["containers"] if only in ("", c["name"])]
            asked = [((c.get("resources") or {}).get("requests") or {}).get(name) for c in containers]
            if of_requests and (not asked or any(text is None for text in asked)):
                raise MetricUnavailable(
                    "FailedGetResourceMetric", f"failed to get {name} utilization: missing request for {name}"
                )
            used: int | None = None
            if (pod.get("status") or {}).get("phase") == "Running":
                usage = self.usages.of_pod(pod)
                used = sum(usage[container["name"]].get(name, 0) for container in containers)
            samples.append(Sample(used, sum(milli(text) for text in asked if text is not None), ready))
        goal = target["averageUtilization"] / 100 if of_requests else milli(target["averageValue"])
        size, average = replicas_by_pods(samples, goal, current, self.tolerance, of_requests, cpu=name == "cpu")
        shown: Obj = {"averageUtilization": average} if of_requests else {}
        known = [sample.used for sample in samples if sample.used is not None]
        shown["averageValue"] = format_milli(
            sum(known) // len(known) // 1000 * 1000 if name == "memory" else sum(known) // len(known)
        )
        words = f"{name} {'container ' if only else ''}resource" + (
            " utilization (percentage of request)" if of_requests else ""
        )
        status = {"name": name, "current": shown} | ({"container": only} if only else {})
        return size, words, {"type": kind, part: status}

    def _pods(self, obj: Obj, resource: Resource) -> list[tuple[Obj, bool]]:
        """The target's active pods, by its scale's selector, each with whether it is ready."""
        assert resource.scale is not None
        text = scale_of(obj, resource.scale)["status"].get("selector", "")
        if not text:
            raise MetricUnavailable("InvalidSelector", "the HPA target's scale is missing a selector")
        selector = LabelSelector(text)
        found = []
        for record in self.core.store.objects_of("pods", self.namespace):
            info = self.informers.pods.get(record.key[1:])
            if info is not None and info.active and selector.matches({"metadata": {"labels": info.labels}}):
                found.append((record.obj, info.ready))
        return found

    # ---- writing

    async def _rescale(self, resource: Resource, obj: Obj, current: int, desired: int, why: str) -> None:
        assert resource.scale is not None
        path, name = compile_path(resource.scale.spec), obj["metadata"]["name"]

        def change(document: Obj) -> Obj:
            if int(path.first(document) or 0) != current:
                raise errors.conflict(resource.plural, resource.group, name)
            path.set(document, desired)
            return document

        await self.core.verbs.modify(resource, self.namespace, name, change, self.controller.options("scale"))
        record_change(self.history, self.hpa, desired - current, self.elapsed_s)
        self.set_condition(
            "AbleToScale",
            True,
            "SucceededRescale",
            f"the HPA controller was able to update the target scale to {desired}",
        )
        self.status["lastScaleTime"] = timestamp(self.now)
        self.events.event(self.hpa, "SuccessfulRescale", f"New size: {desired}; reason: {why}", self.controller.account)
