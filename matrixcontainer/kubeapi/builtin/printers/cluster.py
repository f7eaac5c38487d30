"""Cells of everything that is not a workload: core objects, networking, storage, access, webhooks."""

from typing import Any

from matrixcontainer.kubeapi.builtin.printers.cells import (
    NONE,
    UNSET,
    Obj,
    age,
    created,
    dig,
    label_selector,
    labels,
    name,
    shortened,
    truth,
)
from matrixcontainer.kubeapi.registry.printer_columns import age_of

UNKNOWN = "<unknown>"
ADDRESSES_WIDTH = 16


def named(obj: Obj, now: float) -> list[Any]:
    """Kinds without columns of their own."""
    return [name(obj), created(obj)]


# ---- core


def node(obj: Obj, now: float) -> list[Any]:
    conditions = {c["type"]: c["status"] for c in dig(obj, "status", "conditions", default=[])}
    state = "Unknown"
    if "Ready" in conditions:
        state = "Ready" if conditions["Ready"] == "True" else "NotReady"
    if dig(obj, "spec", "unschedulable"):
        state += ",SchedulingDisabled"
    info = dig(obj, "status", "nodeInfo", default={})
    addresses: dict[str, str] = {}
    for one in dig(obj, "status", "addresses", default=[]):
        addresses.setdefault(one["type"], one["address"])
    return [
        name(obj),
        state,
        ",".join(_roles(obj["metadata"].get("labels") or {})) or NONE,
        age(obj, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", NONE),
        addresses.get("ExternalIP", NONE),
        *(info.get(key) or UNKNOWN for key in ("osImage", "kernelVersion", "containerRuntimeVersion")),
    ]


def _roles(current: dict[str, str]) -> list[str]:
    prefix = "node-role.kubernetes.io/"
    found = {key.removeprefix(prefix) for key in current if key.startswith(prefix)}
    return sorted(filter(None, found | {current.get("kubernetes.io/role", "")}))


def event(obj: Obj, now: float) -> list[Any]:
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    series = obj.get("series")
    began = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime")
    first = age_of(began, now)
    last = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp")
    seen = age_of(last, now) if last else first
    count = obj.get("count") or obj.get("deprecatedCount") or 1
    if series:
        seen, count = age_of(series.get("lastObservedTime"), now), series.get("count", 0)
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    component = source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    instance = source.get("host") or obj.get("reportingInstance") or ""
    kind = about.get("kind", "").lower()
    return [
        seen,
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{about['name']}" if about.get("name") else kind,
        about.get("fieldPath", ""),
        f"{component}, {instance}" if instance else component,
        (obj.get("message") or obj.get("note") or "").strip(),
        first,
        count,
        name(obj),
    ]


def namespace(obj: Obj, now: float) -> list[Any]:
    return [name(obj), dig(obj, "status", "phase", default=""), age(obj, now)]


def config_map(obj: Obj, now: float) -> list[Any]:
    return [name(obj), len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), age(obj, now)]


def secret(obj: Obj, now: float) -> list[Any]:
    return [name(obj), obj.get("type", ""), len(obj.get("data") or {}), age(obj, now)]


def service_account(obj: Obj, now: float) -> list[Any]:
    return [name(obj), len(obj.get("secrets") or []), age(obj, now)]


def lease(obj: Obj, now: float) -> list[Any]:
    return [name(obj), dig(obj, "spec", "holderIdentity", default=""), age(obj, now)]


def quota(obj: Obj, now: float) -> list[Any]:
    hard, used = dig(obj, "status", "hard", default={}), dig(obj, "status", "used", default={})
    reported = {key: f"{key}: {used.get(key, '0')}/{hard[key]}" for key in sorted(hard)}
    limits = [text for key, text in reported.items() if key.startswith("limits.")]
    others = [text for key, text in reported.items() if not key.startswith("limits.")]
    return [name(obj), ", ".join(others), ", ".join(limits), age(obj, now)]


def priority_class(obj: Obj, now: float) -> list[Any]:
    return [
        name(obj),
        obj.get("value", 0),
        truth(obj.get("globalDefault")),
        age(obj, now),
        obj.get("preemptionPolicy", ""),
    ]


def handled(obj: Obj, now: float) -> list[Any]:
    return [name(obj), obj.get("handler", ""), age(obj, now)]


# ---- services and networking


def service(obj: Obj, now: float) -> list[Any]:
    spec = obj.get("spec", {})
    ports = ",".join(
        f"{p.get('port')}" + (f":{p['nodePort']}" if p.get("nodePort") else "") + f"/{p.get('protocol', 'TCP')}"
        for p in spec.get("ports") or []
    )
    inner = (spec.get("clusterIPs") or [spec.get("clusterIP")])[0] or NONE
    return [
        name(obj),
        spec.get("type", ""),
        inner,
        _reachable_at(obj),
        ports or NONE,
        age(obj, now),
        labels(spec.get("selector")),
    ]


def _reachable_at(obj: Obj) -> str:
    spec = obj.get("spec", {})
    kind, given = spec.get("type"), spec.get("externalIPs") or []
    if kind == "ExternalName":
        return str(spec.get("externalName", ""))
    if kind == "LoadBalancer":
        return ",".join([*filter(None, [_balancers(obj)]), *given]) or "<pending>"
    return ",".join(given) or NONE


def _balancers(obj: Obj, width: int = 0) -> str:
    current = dig(obj, "status", "loadBalancer", "ingress", default=[])
    text = ",".join(sorted({one.get("ip") or one.get("hostname") or "" for one in current} - {""}))
    return text[: width - 3] + "..." if width and len(text) > width else text


def ingress(obj: Obj, now: float) -> list[Any]:
    spec = obj.get("spec") or {}
    rules = spec.get("rules") or []
    hosts = [rule["host"] for rule in rules if rule.get("host")]
    text = shortened(hosts, "*", len(rules)) if hosts else "*"
    ports = "80, 443" if spec.get("tls") else "80"
    return [name(obj), spec.get("ingressClassName") or NONE, text, _balancers(obj), ports, age(obj, now)]


def ingress_class(obj: Obj, now: float) -> list[Any]:
    spec = obj.get("spec") or {}
    current = spec.get("parameters")
    text = NONE
    if current:
        group = f".{current['apiGroup']}" if current.get("apiGroup") else ""
        text = f"{current.get('kind', '')}{group}/{current.get('name', '')}"
    return [name(obj), spec.get("controller", ""), text, age(obj, now)]


def network_policy(obj: Obj, now: float) -> list[Any]:
    return [name(obj), label_selector(dig(obj, "spec", "podSelector")), age(obj, now)]


def endpoints(obj: Obj, now: float) -> list[Any]:
    found = []
    for subset in obj.get("subsets") or []:
        ports = [f":{port.get('port')}" for port in subset.get("ports") or []] or [""]
        for port in ports:
            for one in subset.get("addresses") or []:
                address = f"[{one['ip']}]" if port and ":" in one["ip"] else one["ip"]
                found.append(f"{address}{port}")
    return [name(obj), shortened(found, NONE if not obj.get("subsets") else ""), age(obj, now)]


def endpoint_slice(obj: Obj, now: float) -> list[Any]:
    ports = [str(port.get("port", port.get("name", "*"))) for port in obj.get("ports") or []]
    addresses = [address for one in obj.get("endpoints") or [] for address in one.get("addresses") or []]
    return [
        name(obj),
        obj.get("addressType", ""),
        shortened(ports, UNSET),
        shortened(addresses, UNSET),
        age(obj, now),
    ]


# ---- storage

MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
DEFAULT_ANNOTATIONS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


def _modes(current: list[str] | None) -> str:
    return ",".join(short for mode, short in MODES.items() if mode in (current or []))


def _class(obj: Obj) -> str:
    marks = obj["metadata"].get("annotations") or {}
    return str(marks.get(CLASS_ANNOTATION) or dig(obj, "spec", "storageClassName", default=""))


def _phase(obj: Obj) -> str:
    return "Terminating" if "deletionTimestamp" in obj["metadata"] else dig(obj, "status", "phase", default="")


def claim(obj: Obj, now: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    bound = bool(spec.get("volumeName"))
    return [
        name(obj),
        _phase(obj),
        spec.get("volumeName", ""),
        dig(status, "capacity", "storage", default="0") if bound else "",
        _modes(status.get("accessModes")) if bound else "",
        _class(obj),
        spec.get("volumeAttributesClassName") or UNSET,
        age(obj, now),
        spec.get("volumeMode") or UNSET,
    ]


def volume(obj: Obj, now: float) -> list[Any]:
    spec = obj.get("spec") or {}
    current = spec.get("claimRef")
    return [
        name(obj),
        dig(spec, "capacity", "storage", default="0"),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(obj),
        f"{current.get('namespace', '')}/{current.get('name', '')}" if current else "",
        _class(obj),
        spec.get("volumeAttributesClassName") or UNSET,
        dig(obj, "status", "reason", default=""),
        age(obj, now),
        spec.get("volumeMode") or UNSET,
    ]


def storage_class(obj: Obj, now: float) -> list[Any]:
    marks = obj["metadata"].get("annotations") or {}
    default = any(marks.get(key) == "true" for key in DEFAULT_ANNOTATIONS)
    return [
        name(obj) + (" (default)" if default else ""),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        truth(obj.get("allowVolumeExpansion")),
        age(obj, now),
    ]


def volume_attachment(obj: Obj, now: float) -> list[Any]:
    spec = obj.get("spec") or {}
    current = dig(spec, "source", "persistentVolumeName", default="")
    attached = truth(dig(obj, "status", "attached"))
    return [name(obj), spec.get("attacher", ""), current, spec.get("nodeName", ""), attached, age(obj, now)]


def csi_node(obj: Obj, now: float) -> list[Any]:
    return [name(obj), len(dig(obj, "spec", "drivers", default=[])), age(obj, now)]


def csi_driver(obj: Obj, now: float) -> list[Any]:
    spec = obj.get("spec") or {}
    tokens = spec.get("tokenRequests")
    return [
        name(obj),
        truth(spec.get("attachRequired"), True),
        truth(spec.get("podInfoOnMount")),
        truth(spec.get("storageCapacity")),
        UNSET if tokens is None else ",".join(one.get("audience", "") for one in tokens),
        truth(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or []) or NONE,
        age(obj, now),
    ]


# ---- access and admission


def role_binding(obj: Obj, now: float) -> list[Any]:
    reference = obj.get("roleRef", {})
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or []:
        reported = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            reported = f"{subject.get('namespace', '')}/{reported}"
        subjects.setdefault(subject.get("kind", ""), []).append(reported)
    listed = [", ".join(subjects[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [name(obj), f"{reference.get('kind', '')}/{reference.get('name', '')}", age(obj, now), *listed]


def webhooks(obj: Obj, now: float) -> list[Any]:
    return [name(obj), len(obj.get("webhooks") or []), age(obj, now)]
