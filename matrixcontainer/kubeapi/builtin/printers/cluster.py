"""Computed table cells of core objects, services and RBAC bindings."""

from typing import Any

from matrixcontainer.kubeapi.builtin.printers.cells import NONE, Obj, get_nested, labels
from matrixcontainer.kubeapi.registry.printer_columns import age_of

# ---- core


def node(obj: Obj, now: float) -> list[Any]:
    conditions = {c["type"]: c["status"] for c in get_nested(obj, "status", "conditions", default=[])}
    state = "Unknown"
    if "Ready" in conditions:
        state = "Ready" if conditions["Ready"] == "True" else "NotReady"
    if get_nested(obj, "spec", "unschedulable"):
        state += ",SchedulingDisabled"
    addresses: dict[str, str] = {}
    for one in get_nested(obj, "status", "addresses", default=[]):
        addresses.setdefault(one["type"], one["address"])
    roles = ",".join(_roles(obj["metadata"].get("labels") or {})) or NONE
    return [state, roles, addresses.get("InternalIP", NONE), addresses.get("ExternalIP", NONE)]


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
        f"{kind}/{about['name']}" if about.get("name") else kind,
        about.get("fieldPath", ""),
        f"{component}, {instance}" if instance else component,
        (obj.get("message") or obj.get("note") or "").strip(),
        first,
        count,
    ]


def config_map(obj: Obj, now: float) -> list[Any]:
    return [len(obj.get("data") or {}) + len(obj.get("binaryData") or {})]


# ---- services and networking


def service(obj: Obj, now: float) -> list[Any]:
    spec = obj.get("spec", {})
    ports = ",".join(
        f"{p.get('port')}" + (f":{p['nodePort']}" if p.get("nodePort") else "") + f"/{p.get('protocol', 'TCP')}"
        for p in spec.get("ports") or []
    )
    inner = (spec.get("clusterIPs") or [spec.get("clusterIP")])[0] or NONE
    return [inner, _external_addresses(obj), ports or NONE, labels(spec.get("selector"))]


def _external_addresses(obj: Obj) -> str:
    spec = obj.get("spec", {})
    kind, given = spec.get("type"), spec.get("externalIPs") or []
    if kind == "ExternalName":
        return str(spec.get("externalName", ""))
    if kind == "LoadBalancer":
        return ",".join([*filter(None, [_load_balancer_addresses(obj)]), *given]) or "<pending>"
    return ",".join(given) or NONE


def _load_balancer_addresses(obj: Obj) -> str:
    current = get_nested(obj, "status", "loadBalancer", "ingress", default=[])
    return ",".join(sorted({one.get("ip") or one.get("hostname") or "" for one in current} - {""}))


# ---- access


def role_binding(obj: Obj, now: float) -> list[Any]:
    reference = obj.get("roleRef", {})
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or []:
        reported = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            reported = f"{subject.get('namespace', '')}/{reported}"
        subjects.setdefault(subject.get("kind", ""), []).append(reported)
    listed = [", ".join(subjects[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [f"{reference.get('kind', '')}/{reference.get('name', '')}", *listed]
