"""HorizontalPodAutoscalers as the API sees them: defaults and checks. Who acts on them:
controllers/workloads/horizontal_autoscaler.py.
"""

from typing import Any

from matrixcontainer.kubeapi.builtin.strategy import BuiltinStrategy
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.schema.structural import copy_json

SOURCES = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
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

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        spec = obj["spec"]
        found = super().validate(obj, old)
        most, least = spec.get("maxReplicas") or 0, spec["minReplicas"]
        if most < 1:
            found.append(errors.invalid("spec.maxReplicas", most, "must be greater than 0"))
        if least < 1 and not any(m.get("type") in ("Object", "External") for m in spec["metrics"]):
            found.append(errors.invalid("spec.minReplicas", least, "must be greater than or equal to 1"))
        if most < least:
            text = "must be greater than or equal to `minReplicas`"
            found.append(errors.invalid("spec.maxReplicas", most, text))
        target = spec.get("scaleTargetRef") or {}
        found += [errors.required(f"spec.scaleTargetRef.{key}") for key in ("kind", "name") if not target.get(key)]
        for index, metric in enumerate(spec["metrics"]):
            found += _check_metric(metric, f"spec.metrics[{index}]")
        return found + _check_behaviour(spec.get("behavior") or {})


def _check_metric(metric: dict[str, Any], path: str) -> list[Cause]:
    kind = metric.get("type", "")
    if kind not in SOURCES:
        return [errors.not_supported(f"{path}.type", kind, sorted(SOURCES))]
    part = SOURCES[kind]
    source = metric.get(part)
    if not source:
        return [errors.required(f"{path}.{part}", f"must populate information for the given metric source {kind!r}")]
    found = []
    name = source.get("name") if kind.endswith("Resource") else (source.get("metric") or {}).get("name")
    if not name:
        found.append(errors.required(f"{path}.{part}.{'name' if kind.endswith('Resource') else 'metric.name'}"))
    if kind == "ContainerResource" and not source.get("container"):
        found.append(errors.required(f"{path}.{part}.container"))
    if kind == "Object" and not (
        (source.get("describedObject") or {}).get("kind") and source["describedObject"].get("name")
    ):
        found.append(errors.required(f"{path}.{part}.describedObject"))
    target = source.get("target") or {}
    allowed = {
        "Resource": ("averageUtilization", "averageValue"),
        "ContainerResource": ("averageUtilization", "averageValue"),
        "Pods": ("averageValue",),
    }.get(kind, ("value", "averageValue"))
    reported = [word for word in ("averageUtilization", "averageValue", "value") if target.get(word) is not None]
    if len(reported) != 1 or reported[0] not in allowed:
        text = f"must set exactly one of {', '.join(allowed)}"
        found.append(errors.required(f"{path}.{part}.target", text))
    return found


def _check_behaviour(behaviour: dict[str, Any]) -> list[Cause]:
    found = []
    for key, rules in behaviour.items():
        path = f"spec.behavior.{key}"
        if rules.get("selectPolicy") not in ("Max", "Min", "Disabled"):
            found.append(
                errors.not_supported(f"{path}.selectPolicy", rules.get("selectPolicy"), ["Disabled", "Max", "Min"])
            )
        if not 0 <= (rules.get("stabilizationWindowSeconds") or 0) <= 3600:
            text = "must be between 0 and 3600"
            found.append(
                errors.invalid(f"{path}.stabilizationWindowSeconds", rules["stabilizationWindowSeconds"], text)
            )
        for index, policy in enumerate(rules.get("policies") or []):
            where = f"{path}.policies[{index}]"
            if policy.get("type") not in ("Pods", "Percent"):
                found.append(errors.not_supported(f"{where}.type", policy.get("type"), ["Pods", "Percent"]))
            if (policy.get("value") or 0) < 1:
                found.append(errors.invalid(f"{where}.value", policy.get("value"), "must be greater than zero"))
            if not 1 <= (policy.get("periodSeconds") or 0) <= 1800:
                text = "must be greater than zero and at most 1800"
                found.append(errors.invalid(f"{where}.periodSeconds", policy.get("periodSeconds"), text))
    return found


UP = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}


DOWN = {
    "stabilizationWindowSeconds": 300,
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}
