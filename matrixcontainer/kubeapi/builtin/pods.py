"""Pods as the API sees them: defaults, checks, what may change, binding, and how long a deleted one stays.

Who runs a pod is not decided here: kubelets, emulated or real, write its status. A pod that no node has taken goes at
once when deleted; a bound one gets its grace period and goes when its kubelet deletes it with grace 0.
"""

from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi import errors
from matrixcontainer.kubeapi.errors import Cause
from matrixcontainer.kubeapi.strategy import Strategy, is_label, keep_part

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.resources import Resource

GRACE_S = 30


def default_pod_spec(spec: dict[str, Any]) -> None:
    """What the API fills in for a pod, or the pod template of a workload."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", GRACE_S)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for group in ("initContainers", "containers"):
        for container in spec.get(group) or []:
            _default_container(container)
    for volume in spec.get("volumes") or []:
        _default_volume(volume)


def _default_container(container: dict[str, Any]) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = container.get("image", "")
    tag = image.rpartition("/")[2].partition(":")[2]
    container.setdefault(
        "imagePullPolicy", "Always" if (not tag and "@" not in image) or tag == "latest" else "IfNotPresent"
    )
    container.setdefault("resources", {})
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
    limits, requests = container["resources"].get("limits"), container["resources"].get("requests") or {}
    if limits:
        container["resources"]["requests"] = {**limits, **requests}
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe := container.get(name):
            for key, value in (
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ):
                probe.setdefault(key, value)
            if "httpGet" in probe:
                probe["httpGet"].setdefault("scheme", "HTTP")
                probe["httpGet"].setdefault("path", "/")
    for variable in container.get("env") or []:
        if field := (variable.get("valueFrom") or {}).get("fieldRef"):
            field.setdefault("apiVersion", "v1")


def _default_volume(volume: dict[str, Any]) -> None:
    for kind in ("configMap", "secret", "projected", "downwardAPI"):
        if kind in volume:
            volume[kind].setdefault("defaultMode", 420)
    if set(volume) == {"name"}:
        volume["emptyDir"] = {}


def check_pod_spec(spec: dict[str, Any], path: str, beside: frozenset[str] = frozenset()) -> list[Cause]:
    """What is wrong with it. `beside` are volumes it does not list and may mount."""
    found: list[Cause] = []
    containers = spec.get("containers") or []
    if not containers:
        found.append(errors.required(f"{path}.containers"))
    volumes = {volume.get("name") for volume in spec.get("volumes") or []} | beside
    seen: set[str] = set()
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or []):
            where = f"{path}.{group}[{index}]"
            name = container.get("name", "")
            if not name:
                found.append(errors.required(f"{where}.name"))
            elif why := is_label(name):
                found.append(errors.invalid(f"{where}.name", name, why))
            if name in seen:
                found.append(errors.duplicate(f"{where}.name", name))
            seen.add(name)
            if not container.get("image"):
                found.append(errors.required(f"{where}.image"))
            for place, mount in enumerate(container.get("volumeMounts") or []):
                if mount.get("name") not in volumes:
                    text = f"{where}.volumeMounts[{place}].name"
                    found.append(Cause("FieldValueNotFound", f"Not found: {errors.shown(mount.get('name', ''))}", text))
    for key, allowed in (
        ("restartPolicy", ["Always", "OnFailure", "Never"]),
        ("dnsPolicy", ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]),
    ):
        if spec.get(key) not in allowed:
            found.append(errors.not_supported(f"{path}.{key}", spec.get(key), allowed))
    return found


POD_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def _fixed_part(spec: dict[str, Any]) -> dict[str, Any]:
    """The pod spec without what an update may change."""
    fixed = {
        key: value
        for key, value in spec.items()
        if key not in ("activeDeadlineSeconds", "tolerations", "schedulingGates")
    }
    for group in ("containers", "initContainers"):
        fixed[group] = [{k: v for k, v in container.items() if k != "image"} for container in spec.get(group) or []]
    return fixed


class PodStrategy(Strategy):
    returns_deleted = True
    has_generation = True

    def prepare_create(self, obj: dict[str, Any], resource: "Resource") -> None:
        """The status, and what admission settles for a pod that does not say it."""
        spec = obj.setdefault("spec", {})
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
        spec.setdefault("serviceAccountName", "default")
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        spec.setdefault("priority", 0)
        if "tolerations" not in spec:
            spec["tolerations"] = [
                {
                    "key": f"node.kubernetes.io/{why}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for why in ("not-ready", "unreachable")
            ]

    def default(self, obj: dict[str, Any]) -> None:
        spec = obj.setdefault("spec", {})
        default_pod_spec(spec)
        spec.setdefault("enableServiceLinks", True)

    def prepare_update(self, new: dict[str, Any], old: dict[str, Any], resource: "Resource") -> None:
        keep_part(new, old, "status")

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        if old is None:
            return check_pod_spec(obj["spec"], "spec")
        if old["spec"] == obj["spec"]:
            return []
        found = []
        if _fixed_part(old["spec"]) != _fixed_part(obj["spec"]) and not self._only_binds(old["spec"], obj["spec"]):
            found.append(errors.forbidden_field("spec", POD_IMMUTABLE))
        kept = obj["spec"].get("tolerations") or []
        if any(toleration not in kept for toleration in old["spec"].get("tolerations") or []):
            text = "existing toleration can not be modified except its tolerationSeconds"
            found.append(errors.forbidden_field("spec.tolerations", text))
        return found

    def _only_binds(self, old: dict[str, Any], new: dict[str, Any]) -> bool:
        return not old.get("nodeName") and _fixed_part(new | {"nodeName": ""}) == _fixed_part(old | {"nodeName": ""})

    def grace(self, obj: dict[str, Any], wanted: int | None) -> int:
        """Seconds a deleted pod stays: 0 when no node has it or it has ended, else what was asked or its own."""
        spec, status = obj.get("spec", {}), obj.get("status", {})
        if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
            return 0
        if wanted is not None:
            return max(wanted, 0)
        return int(spec.get("terminationGracePeriodSeconds", GRACE_S))


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
    """The pod on its node, with PodScheduled=True; the caller has made sure that it was free."""
    pod["spec"]["nodeName"] = node
    status = pod.setdefault("status", {})
    conditions = [c for c in status.get("conditions") or [] if c["type"] != "PodScheduled"]
    conditions.append({"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now})
    status["conditions"] = conditions
    return pod
