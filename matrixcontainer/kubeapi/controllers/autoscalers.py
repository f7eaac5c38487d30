"""HorizontalPodAutoscalers: every fifteen seconds, metrics in, one size out, written to the target's scale.

Its seconds are those of `KubeApi.time_scale`: what it reads and scales lives in emulated time, and so do its windows.
The target may be any object with a scale subresource, of a built-in or a custom kind. Where the metrics come from is
in usage.py, what they lead to in autoscaling_plan.py. An autoscaler remembers recommendations and changes for its
windows; after a restart it starts from the present size, so it never shrinks a target it knows nothing about.
"""

from typing import Any

from matrixcontainer.kubeapi import errors
from matrixcontainer.kubeapi.controllers.amounts import milli, spelled
from matrixcontainer.kubeapi.controllers.autoscaling_plan import (
    Memory,
    NoMetric,
    Obj,
    Sample,
    by_average,
    by_pods,
    by_ratio,
    limited,
    remember,
    stabilized,
    tolerances,
)
from matrixcontainer.kubeapi.controllers.pod_facts import Name
from matrixcontainer.kubeapi.controllers.turns import Controller
from matrixcontainer.kubeapi.crds import set_condition
from matrixcontainer.kubeapi.jsonpath import JsonPath
from matrixcontainer.kubeapi.object_meta import timestamp
from matrixcontainer.kubeapi.records import Change
from matrixcontainer.kubeapi.resources import Resource
from matrixcontainer.kubeapi.schema import copy_json
from matrixcontainer.kubeapi.selectors import LabelSelector

PERIOD_S = 15.0
PERIOD_WALL_S_MIN = 0.1


class Autoscalers(Controller):
    storage = "horizontalpodautoscalers.autoscaling"
    account = "horizontal-pod-autoscaler"

    def __init__(self, workloads: Any) -> None:
        super().__init__(workloads)
        self._memories: dict[str, Memory] = {}

    def notice(self, change: Change) -> None:
        """Its own status is no news."""
        if change.type == "DELETED":
            self._memories.pop(change.record.uid, None)
        elif change.previous is None or _generation(change.previous.obj) != _generation(change.record.obj):
            super().notice(change)

    async def reconcile(self, key: Name) -> float | None:
        record = self.record(key)
        if record is None or b'"deletionTimestamp"' in record.body:
            return None
        turn = _Turn(self, record.obj, self._memories.setdefault(record.uid, Memory()))
        await turn.run()
        status = turn.status
        if status != (record.obj.get("status") or {}):
            resource = self.workloads.hpa_resource
            await self.api.verbs.modify(resource, *key, lambda obj: obj | {"status": status}, self.options("status"))
        return max(PERIOD_S / self.api.time_scale, PERIOD_WALL_S_MIN)


def _generation(obj: Obj) -> int:
    return int(obj["metadata"].get("generation", 0))


class _Turn:
    """One look at one autoscaler."""

    def __init__(self, controller: Autoscalers, hpa: Obj, memory: Memory) -> None:
        self.controller, self.hpa, self.memory = controller, hpa, memory
        self.api, self.workloads = controller.api, controller.workloads
        self.now = self.api.now()
        self.elapsed_s = self.now * self.api.time_scale
        self.namespace = hpa["metadata"]["namespace"]
        self.status: Obj = copy_json(hpa.get("status") or {})
        self.tolerance = tolerances(hpa)

    def say(self, kind: str, value: bool, reason: str, message: str) -> None:
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
        self.say("AbleToScale", True, "SucceededGetScale", text)
        least, most = self.hpa["spec"].get("minReplicas", 1), self.hpa["spec"]["maxReplicas"]
        wanted, why = current, ""
        if current == 0 and least != 0:
            self.say(
                "ScalingActive",
                False,
                "ScalingDisabled",
                "scaling is disabled since the replica count of the target is zero",
            )
        elif current > most:
            wanted, why = most, "Current number of replicas above Spec.MaxReplicas"
        elif current < least:
            wanted, why = least, "Current number of replicas below Spec.MinReplicas"
        else:
            decided = self._decide(obj, resource, current)
            if decided is None:
                self.status.setdefault("desiredReplicas", current)
                return
            wanted, why = decided
        self.status["desiredReplicas"] = wanted
        if wanted != current:
            await self._rescale(resource, obj, current, wanted, why)

    def _target(self) -> tuple[Resource, Obj, int] | None:
        reference = self.hpa["spec"]["scaleTargetRef"]
        resource = self.api.registry.by_kind(reference.get("apiVersion", ""), reference["kind"])
        why = (
            f"the HPA controller was unable to get the target's current scale: {reference['kind']} {reference['name']}"
        )
        if resource is None or resource.scale is None:
            self.say("AbleToScale", False, "FailedGetScale", f"{why}: no such kind with a scale subresource")
            return None
        record = self.api.store.get((resource.storage, self.namespace, reference["name"]))
        if record is None:
            self.say("AbleToScale", False, "FailedGetScale", f"{why}: not found")
            return None
        obj = resource.show(record)
        return resource, obj, int(JsonPath(resource.scale.spec).first(obj) or 0)

    # ---- metrics

    def _decide(self, obj: Obj, resource: Resource, current: int) -> tuple[int, str] | None:
        proposals, failures, told = [], [], []
        for metric in self.hpa["spec"].get("metrics") or []:
            try:
                size, name, status = self._propose(metric, obj, resource, current)
                proposals.append((size, name))
                told.append(status)
            except NoMetric as failure:
                failures.append(failure)
        if failures and (not proposals or max(proposals)[0] < current):
            first = failures[0]
            text = f"the HPA was unable to compute the replica count: {first}"
            if not any(c.get("message") == text for c in self.status.get("conditions") or []):
                self.workloads.tell(self.hpa, first.reason, str(first), self.controller.account, warning=True)
            self.say("ScalingActive", False, first.reason, text)
            return None
        wanted, name = max(proposals, key=lambda proposal: proposal[0])
        self.status["currentMetrics"] = told
        self.say(
            "ScalingActive",
            True,
            "ValidMetricFound",
            f"the HPA was able to successfully calculate a replica count from {name}",
        )
        return self._bounded(wanted, name, current)

    def _bounded(self, wanted: int, name: str, current: int) -> tuple[int, str]:
        size, reason = stabilized(self.memory, self.hpa, wanted, current, self.elapsed_s)
        if reason:
            text = "recent recommendations were higher than current one, applying the highest recent recommendation"
            if reason == "ScaleUpStabilized":
                text = "recent recommendations were lower than current one, applying the lowest recent recommendation"
            self.say("AbleToScale", True, reason, text)
        else:
            self.say("AbleToScale", True, "ReadyForNewScale", "recommended size matches current size")
        size, reason, text = limited(self.memory, self.hpa, size, current, self.elapsed_s)
        self.say("ScalingLimited", bool(reason), reason or "DesiredWithinRange", text)
        return size, f"{name} {'above' if wanted > current else 'below'} target" if size != current else ""

    def _propose(self, metric: Obj, obj: Obj, resource: Resource, current: int) -> tuple[int, str, Obj]:
        """(proposal, the metric in words, what the status says of it)."""
        kind = metric["type"]
        if kind in ("Resource", "ContainerResource"):
            return self._from_resource(metric, kind, obj, resource, current)
        if kind == "Pods":
            told = metric["pods"]
            name = told["metric"]["name"]
            pods = self._pods(obj, resource)
            samples = [Sample(self.workloads.usages.custom_of_pod(pod, name), 0, ready) for pod, ready in pods]
            if all(sample.used is None for sample in samples):
                raise NoMetric("FailedGetPodsMetric", f"unable to get metric {name}: no pod says it")
            target = milli(told["target"]["averageValue"])
            size, average = by_pods(samples, target, current, self.tolerance, of_requests=False, cpu=False)
            status = {"metric": told["metric"], "current": {"averageValue": spelled(average)}}
            return size, f"pods metric {name}", {"type": kind, "pods": status}
        if kind == "Object":
            told = metric["object"]
            name, described = told["metric"]["name"], told["describedObject"]
            value = self.workloads.usages.custom_of(self.workloads.usages.object(described, self.namespace), name)
            if value is None:
                raise NoMetric(
                    "FailedGetObjectMetric", f"unable to get metric {name} of {described['kind']} {described['name']}"
                )
            size, shown = self._from_value(value, told["target"], obj, resource, current)
            status = {"metric": told["metric"], "describedObject": described, "current": shown}
            return size, f"{described['kind']} metric {name}", {"type": kind, "object": status}
        if kind == "External":
            told = metric["external"]
            name = told["metric"]["name"]
            value = self.workloads.usages.external(self.namespace, name)
            if value is None:
                raise NoMetric("FailedGetExternalMetric", f"unable to get external metric {self.namespace}/{name}")
            size, shown = self._from_value(value, told["target"], obj, resource, current)
            return (
                size,
                f"external metric {name}",
                {"type": kind, "external": {"metric": told["metric"], "current": shown}},
            )
        raise NoMetric("InvalidMetricSourceType", f"unknown metric source type {kind!r}")

    def _from_value(self, value: int, target: Obj, obj: Obj, resource: Resource, current: int) -> tuple[int, Obj]:
        if target.get("averageValue") is not None:
            size = by_average(value, milli(target["averageValue"]), current, self.tolerance)
            return size, {"averageValue": spelled(value // max(current, 1))}
        ready = sum(ready for _, ready in self._pods(obj, resource))
        return by_ratio(value / milli(target["value"]), current, ready, self.tolerance), {"value": spelled(value)}

    def _from_resource(
        self, metric: Obj, kind: str, obj: Obj, resource: Resource, current: int
    ) -> tuple[int, str, Obj]:
        part = kind[0].lower() + kind[1:]
        told = metric[part]
        name, only, target = told["name"], told.get("container", ""), told["target"]
        of_requests = target.get("averageUtilization") is not None
        samples = []
        for pod, ready in self._pods(obj, resource):
            containers = [c for c in pod["spec"]["containers"] if only in ("", c["name"])]
            asked = [((c.get("resources") or {}).get("requests") or {}).get(name) for c in containers]
            if of_requests and (not asked or any(text is None for text in asked)):
                raise NoMetric(
                    "FailedGetResourceMetric", f"failed to get {name} utilization: missing request for {name}"
                )
            used: int | None = None
            if (pod.get("status") or {}).get("phase") == "Running":
                usage = self.workloads.usages.of_pod(pod)
                used = sum(usage[container["name"]].get(name, 0) for container in containers)
            samples.append(Sample(used, sum(milli(text) for text in asked if text is not None), ready))
        goal = target["averageUtilization"] / 100 if of_requests else milli(target["averageValue"])
        size, average = by_pods(samples, goal, current, self.tolerance, of_requests, cpu=name == "cpu")
        shown: Obj = {"averageUtilization": average} if of_requests else {}
        known = [sample.used for sample in samples if sample.used is not None]
        shown["averageValue"] = spelled(
            sum(known) // len(known) // 1000 * 1000 if name == "memory" else sum(known) // len(known)
        )
        words = f"{name} {'container ' if only else ''}resource" + (
            " utilization (percentage of request)" if of_requests else ""
        )
        status = {"name": name, "current": shown} | ({"container": only} if only else {})
        return size, words, {"type": kind, part: status}

    def _pods(self, obj: Obj, resource: Resource) -> list[tuple[Obj, bool]]:
        """The target's live pods, each with whether it is ready: found by the selector of its scale."""
        from matrixcontainer.kubeapi.subresources import scale_of

        assert resource.scale is not None
        text = scale_of(obj, resource.scale)["status"].get("selector", "")
        if not text:
            raise NoMetric("InvalidSelector", "the HPA target's scale is missing a selector")
        selector = LabelSelector(text)
        found = []
        for record in self.api.store.objects_of("pods", self.namespace):
            facts = self.workloads.pods.get(record.key[1:])
            if facts is not None and facts.active and selector.matches({"metadata": {"labels": facts.labels}}):
                found.append((record.obj, facts.ready))
        return found

    # ---- writing

    async def _rescale(self, resource: Resource, obj: Obj, current: int, wanted: int, why: str) -> None:
        assert resource.scale is not None
        path, name = JsonPath(resource.scale.spec), obj["metadata"]["name"]

        def change(held: Obj) -> Obj:
            if int(path.first(held) or 0) != current:
                raise errors.conflict(resource.plural, resource.group, name)
            path.put(held, wanted)
            return held

        await self.api.verbs.modify(resource, self.namespace, name, change, self.controller.options("scale"))
        remember(self.memory, self.hpa, wanted - current, self.elapsed_s)
        self.say(
            "AbleToScale",
            True,
            "SucceededRescale",
            f"the HPA controller was able to update the target scale to {wanted}",
        )
        self.status["lastScaleTime"] = timestamp(self.now)
        self.workloads.tell(
            self.hpa, "SuccessfulRescale", f"New size: {wanted}; reason: {why}", self.controller.account
        )
