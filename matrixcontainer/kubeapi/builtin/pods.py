"""The strategy of pods: defaults, validation, immutable fields, binding and grace periods.

Kubelets, emulated or real, run pods and write their status. An unbound pod is removed immediately on deletion; a bound
one gets its grace period and is removed when its kubelet deletes it with grace period 0.
"""

from typing import Any

from matrixcontainer.kubeapi.builtin import conversion, validate_pods
from matrixcontainer.kubeapi.builtin.strategy import BuiltinStrategy
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.registry.strategy import ResourceInfo, restore_field

GRACE_S = 30


def default_pod_spec(spec: dict[str, Any]) -> None:
    """Set the defaults of a pod spec, also in a pod template."""
    conversion.apply_defaults(spec, "core.v1.PodSpec", root=False)


POD_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def _immutable_part(spec: dict[str, Any]) -> dict[str, Any]:
    """The immutable part of a pod spec."""
    immutable = {
        key: value
        for key, value in spec.items()
        if key not in ("activeDeadlineSeconds", "tolerations", "schedulingGates")
    }
    for group in ("containers", "initContainers"):
        immutable[group] = [{k: v for k, v in container.items() if k != "image"} for container in spec.get(group) or []]
    return immutable


DEFAULT_TOLERATION_S = 300


def _add_default_tolerations(spec: dict[str, Any]) -> None:
    """Add the default tolerations: five minutes on a node that is not ready or unreachable."""
    current = spec.get("tolerations") or []
    for reason in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{reason}"
        if not any(one.get("key", "") in ("", key) and one.get("effect", "") in ("", "NoExecute") for one in current):
            toleration = {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": DEFAULT_TOLERATION_S,
            }
            current = [*current, toleration]
    spec["tolerations"] = current


class PodStrategy(BuiltinStrategy):
    returns_deleted = True
    has_generation = True
    type_name = "core.v1.Pod"

    def prepare_create(self, obj: dict[str, Any], resource: ResourceInfo) -> None:
        """Set the initial status, and the fields that upstream's admission plugins default."""
        spec = obj.setdefault("spec", {})
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
        spec.setdefault("serviceAccountName", "default")
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        spec.setdefault("priority", 0)
        _add_default_tolerations(spec)

    def prepare_update(self, new: dict[str, Any], old: dict[str, Any], resource: ResourceInfo) -> None:
        restore_field(new, old, "status")
        spec = new.get("spec") or {}
        for key in ("priority", "preemptionPolicy"):
            if key in old["spec"]:
                spec.setdefault(key, old["spec"][key])
        _add_default_tolerations(spec)

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        if old is not None and old["spec"] == obj["spec"]:
            return []
        causes = super().validate(obj, old) + validate_pods.validate_mounts(obj["spec"], "spec")
        if old is None:
            return causes
        if _immutable_part(old["spec"]) != self.seen(_immutable_part(obj["spec"])):
            causes.append(errors.forbidden_field("spec", POD_IMMUTABLE))
        kept = obj["spec"].get("tolerations") or []
        if any(toleration not in kept for toleration in old["spec"].get("tolerations") or []):
            text = "existing toleration can not be modified except its tolerationSeconds"
            causes.append(errors.forbidden_field("spec.tolerations", text))
        return causes

    def seen(self, fixed: dict[str, Any]) -> dict[str, Any]:
        """The new immutable part, as compared with the old one."""
        return fixed

    def grace(self, obj: dict[str, Any], requested_s: int | None) -> int:
        """Grace period in seconds: 0 for an unbound or finished pod, otherwise the requested one or the pod's own."""
        spec, status = obj.get("spec", {}), obj.get("status", {})
        if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
            return 0
        if requested_s is not None:
            return max(requested_s, 0)
        return int(spec.get("terminationGracePeriodSeconds", GRACE_S))


class BindingStrategy(PodStrategy):
    """The strategy of bindings, the only writes that may set nodeName."""

    def seen(self, fixed: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in fixed.items() if key != "nodeName"}


BINDING = BindingStrategy()


def check_binding(target: dict[str, Any]) -> list[Cause]:
    """Errors in the target of a binding."""
    causes = []
    if target.get("kind") not in (None, "", "Node"):
        causes.append(errors.not_supported("target.kind", target["kind"], ["Node", "<empty>"]))
    if not target.get("name"):
        causes.append(errors.required("target.name"))
    return causes


def qos_class(spec: dict[str, Any]) -> str:
    containers = spec.get("containers") or []
    resources = [container.get("resources") or {} for container in containers]
    if not any(r.get("limits") or r.get("requests") for r in resources):
        return "BestEffort"
    exact = all(
        {"cpu", "memory"} <= set(r.get("limits") or {})
        and (r.get("requests") or r["limits"]).items()
        >= {key: value for key, value in r["limits"].items() if key in (r.get("requests") or {})}.items()
        for r in resources
    )
    return "Guaranteed" if exact else "Burstable"


def bind(pod: dict[str, Any], node: str, now: str) -> dict[str, Any]:
    """Set the pod's node and PodScheduled=True. The caller has checked that the pod is unbound."""
    pod["spec"]["nodeName"] = node
    status = pod.setdefault("status", {})
    conditions = [c for c in status.get("conditions") or [] if c["type"] != "PodScheduled"]
    conditions.append({"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now})
    status["conditions"] = conditions
    return pod
