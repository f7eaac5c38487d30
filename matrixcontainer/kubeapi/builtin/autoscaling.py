"""Defaults and validation of HorizontalPodAutoscalers. Their controller is
controllers/workloads/horizontal_autoscaler.py.
"""

from collections.abc import Iterator
from typing import Any

from matrixcontainer.kubeapi.builtin.checks import Obj, enum, in_range, required, rules
from matrixcontainer.kubeapi.builtin.strategy import BuiltinStrategy
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.schema.structural import copy_json

PERCENT = {"type": "Percent", "value": 100, "periodSeconds": 15}
UP = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, PERCENT],
}
DOWN = {"stabilizationWindowSeconds": 300, "selectPolicy": "Max", "policies": [PERCENT]}
TARGETS = {  # target fields that each type of metric allows
    **dict.fromkeys(("Resource", "ContainerResource"), ("averageUtilization", "averageValue")),
    "Pods": ("averageValue",),
    **dict.fromkeys(("Object", "External"), ("value", "averageValue")),
}


class HorizontalPodAutoscalerStrategy(BuiltinStrategy):
    has_generation = False

    def default(self, obj: dict[str, Any]) -> None:
        super().default(obj)
        spec = obj["spec"]
        if not spec.get("metrics"):
            target = {"type": "Utilization", "averageUtilization": 80}
            spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
        if behaviour := spec.get("behavior"):
            for key, rules in (("scaleUp", UP), ("scaleDown", DOWN)):
                reported = behaviour.setdefault(key, {})
                for word, value in copy_json(rules).items():
                    if reported.get(word) is None:
                        reported[word] = value


def validate_bounds(spec: Obj, path: str) -> Iterator[Cause]:
    max_replicas, min_replicas = spec.get("maxReplicas") or 0, spec["minReplicas"]
    if max_replicas < 1:
        yield errors.invalid(f"{path}.maxReplicas", max_replicas, "must be greater than 0")
    if min_replicas < 1 and not any(metric.get("type") in ("Object", "External") for metric in spec["metrics"]):
        yield errors.invalid(f"{path}.minReplicas", min_replicas, "must be greater than or equal to 1")
    if max_replicas < min_replicas:
        yield errors.invalid(f"{path}.maxReplicas", max_replicas, "must be greater than or equal to `minReplicas`")


def validate_metric(value: Obj, path: str) -> Iterator[Cause]:
    kind = value.get("type", "")
    part = kind[:1].lower() + kind[1:]
    if kind not in TARGETS:
        yield errors.not_supported(f"{path}.type", kind, sorted(TARGETS))
    elif not value.get(part):
        yield errors.required(f"{path}.{part}", f"must populate information for the given metric source {kind!r}")
    else:
        target = value[part].get("target") or {}
        specified = [word for word in ("averageUtilization", "averageValue", "value") if target.get(word) is not None]
        if len(specified) != 1 or specified[0] not in TARGETS[kind]:
            yield errors.required(f"{path}.{part}.target", f"must set exactly one of {', '.join(TARGETS[kind])}")


rules("autoscaling.v2.HorizontalPodAutoscalerSpec", validate_bounds)
rules("autoscaling.v2.CrossVersionObjectReference", required("kind", "name"))
rules("autoscaling.v2.MetricSpec", validate_metric)
rules("autoscaling.v2.MetricIdentifier", required("name"))
rules("autoscaling.v2.ResourceMetricSource", required("name"))
rules("autoscaling.v2.ContainerResourceMetricSource", required("name", "container"))
rules(
    "autoscaling.v2.HPAScalingRules",
    enum("selectPolicy", "Disabled", "Max", "Min", required=True),
    in_range("stabilizationWindowSeconds", 0, 3600),
)
rules(
    "autoscaling.v2.HPAScalingPolicy",
    enum("type", "Pods", "Percent", required=True),
    in_range("value", 1, 2**31 - 1),
    in_range("periodSeconds", 1, 1800),
)
