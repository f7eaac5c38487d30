"""The columns people expect of built-in kinds, and the cells in them."""

from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi.object_meta import parse_timestamp
from matrixcontainer.kubeapi.table import AGE, NAME, age_of, column, human_age

Obj = dict[str, Any]
NONE = "<none>"


def _name(obj: Obj) -> str:
    return str(obj["metadata"].get("name", ""))


def _age(obj: Obj, now: float) -> str:
    return age_of(obj["metadata"].get("creationTimestamp"), now)


def _dig(obj: Obj, *keys: str, default: Any = None) -> Any:
    value: Any = obj
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return default if value is None else value


def _labels(value: Obj | None) -> str:
    return ",".join(f"{k}={v}" for k, v in sorted((value or {}).items())) or NONE


def _selector(obj: Obj) -> str:
    return _labels(_dig(obj, "spec", "selector", "matchLabels"))


def _containers(obj: Obj) -> list[Any]:
    listed = _dig(obj, "spec", "template", "spec", "containers", default=[])
    return [",".join(c.get("name", "") for c in listed), ",".join(c.get("image", "") for c in listed)]


def pod(obj: Obj, now: float) -> list[Any]:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    states = status.get("containerStatuses") or []
    reason = status.get("reason") or status.get("phase", "Unknown")
    for state in states:
        waiting, ended = _dig(state, "state", "waiting", "reason"), _dig(state, "state", "terminated")
        if waiting:
            reason = waiting
        elif ended:
            reason = ended.get("reason") or f"ExitCode:{ended.get('exitCode', 0)}"
    if obj["metadata"].get("deletionTimestamp"):
        reason = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    gates = spec.get("readinessGates") or []
    passed = {c["type"] for c in status.get("conditions") or [] if c["status"] == "True"}
    ready = sum(bool(state.get("ready")) for state in states)
    return [
        _name(obj),
        f"{ready}/{len(spec.get('containers') or [])}",
        reason,
        str(sum(state.get("restartCount", 0) for state in states)),
        _age(obj, now),
        status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{sum(g['conditionType'] in passed for g in gates)}/{len(gates)}" if gates else NONE,
    ]


def node(obj: Obj, now: float) -> list[Any]:
    conditions = {c["type"]: c["status"] for c in _dig(obj, "status", "conditions", default=[])}
    state = {"True": "Ready", "False": "NotReady"}.get(conditions.get("Ready", ""), "Unknown")
    if _dig(obj, "spec", "unschedulable"):
        state += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key[len(prefix) :] for key in obj["metadata"].get("labels") or {} if key.startswith(prefix))
    info = _dig(obj, "status", "nodeInfo", default={})
    addresses = {a["type"]: a["address"] for a in _dig(obj, "status", "addresses", default=[])}
    return [
        _name(obj),
        state,
        ",".join(roles) or NONE,
        _age(obj, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", NONE),
        addresses.get("ExternalIP", NONE),
        info.get("osImage", "<unknown>"),
        info.get("kernelVersion", "<unknown>"),
        info.get("containerRuntimeVersion", "<unknown>"),
    ]


def event(obj: Obj, now: float) -> list[Any]:
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    series = obj.get("series") or {}
    first = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime")
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp") or first
    count = series.get("count") or obj.get("count") or obj.get("deprecatedCount") or 1
    seen = human_age(now - parse_timestamp(last)) if last else "<unknown>"
    if count > 1 and first:
        seen = f"{seen} (x{count} over {human_age(now - parse_timestamp(first))})"
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    name = f"{about.get('kind', '').lower()}/{about.get('name', '')}"
    return [
        seen,
        obj.get("type", ""),
        obj.get("reason", ""),
        name,
        about.get("fieldPath", ""),
        source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or "",
        (obj.get("message") or obj.get("note") or "").strip(),
        age_of(first, now),
        count,
        _name(obj),
    ]


def namespace(obj: Obj, now: float) -> list[Any]:
    return [_name(obj), _dig(obj, "status", "phase", default=""), _age(obj, now)]


def config_map(obj: Obj, now: float) -> list[Any]:
    return [_name(obj), len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), _age(obj, now)]


def secret(obj: Obj, now: float) -> list[Any]:
    return [_name(obj), obj.get("type", ""), len(obj.get("data") or {}), _age(obj, now)]


def service_account(obj: Obj, now: float) -> list[Any]:
    return [_name(obj), len(obj.get("secrets") or []), _age(obj, now)]


def lease(obj: Obj, now: float) -> list[Any]:
    return [_name(obj), _dig(obj, "spec", "holderIdentity", default=""), _age(obj, now)]


def service(obj: Obj, now: float) -> list[Any]:
    spec = obj.get("spec", {})
    ports = ",".join(
        f"{p.get('port')}" + (f":{p['nodePort']}" if p.get("nodePort") else "") + f"/{p.get('protocol', 'TCP')}"
        for p in spec.get("ports") or []
    )
    external = spec.get("externalName") or ",".join(spec.get("externalIPs") or [])
    if not external and spec.get("type") == "LoadBalancer":
        external = "<pending>"
    return [
        _name(obj),
        spec.get("type", ""),
        spec.get("clusterIP") or NONE,
        external or NONE,
        ports or NONE,
        _age(obj, now),
        _labels(spec.get("selector")),
    ]


def deployment(obj: Obj, now: float) -> list[Any]:
    status = obj.get("status", {})
    wanted = _dig(obj, "spec", "replicas", default=1)
    return [
        _name(obj),
        f"{status.get('readyReplicas', 0)}/{wanted}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        _age(obj, now),
        *_containers(obj),
        _selector(obj),
    ]


def replica_set(obj: Obj, now: float) -> list[Any]:
    status = obj.get("status", {})
    counts = [_dig(obj, "spec", "replicas", default=1), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [_name(obj), *counts, _age(obj, now), *_containers(obj), _selector(obj)]


def stateful_set(obj: Obj, now: float) -> list[Any]:
    ready = f"{_dig(obj, 'status', 'readyReplicas', default=0)}/{_dig(obj, 'spec', 'replicas', default=1)}"
    return [_name(obj), ready, _age(obj, now), *_containers(obj)]


def job(obj: Obj, now: float) -> list[Any]:
    status, spec = obj.get("status", {}), obj.get("spec", {})
    conditions = {c["type"] for c in status.get("conditions") or [] if c["status"] == "True"}
    state = next((word for word in ("Complete", "Failed", "Suspended") if word in conditions), "Running")
    wanted = spec.get("completions")
    done = f"{status.get('succeeded', 0)}/" + (
        str(wanted) if wanted is not None else f"1 of {spec.get('parallelism', 1)}"
    )
    started, ended = status.get("startTime"), status.get("completionTime")
    took = ""
    if started:
        took = human_age((parse_timestamp(ended) if ended else now) - parse_timestamp(started))
    return [_name(obj), state, done, took, _age(obj, now), *_containers(obj), _selector(obj)]


def autoscaler(obj: Obj, now: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    target = spec["scaleTargetRef"]
    return [
        _name(obj),
        f"{target['kind']}/{target['name']}",
        ", ".join(_goals(spec.get("metrics") or [], status.get("currentMetrics") or [])) or NONE,
        str(spec.get("minReplicas", "<unset>")),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        _age(obj, now),
    ]


def _goals(metrics: list[Obj], current: list[Obj]) -> list[str]:
    """`cpu: 40%/50%` for each metric; <unknown> until it has been read."""
    found = []
    for index, metric in enumerate(metrics):
        part = metric["type"][:1].lower() + metric["type"][1:]
        source = metric.get(part) or {}
        target = source.get("target") or {}
        held = _dig(current[index], part, "current", default={}) if index < len(current) else {}
        word = next((w for w in ("averageUtilization", "averageValue", "value") if target.get(w) is not None), "value")
        mark = "%" if word == "averageUtilization" else ""
        average = " (avg)" if word == "averageValue" and part in ("object", "external") else ""
        now = f"{held[word]}{mark}" if held.get(word) is not None else "<unknown>"
        goal = f"{now}/{target.get(word)}{mark}{average}"
        found.append(f"{source['name']}: {goal}" if "name" in source else goal)
    return found


def crd(obj: Obj, now: float) -> list[Any]:
    return [_name(obj), obj["metadata"].get("creationTimestamp", "")]


def role_binding(obj: Obj, now: float) -> list[Any]:
    reference = obj.get("roleRef", {})
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or []:
        name = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        subjects.setdefault(subject.get("kind", ""), []).append(name)
    listed = [", ".join(subjects[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [_name(obj), f"{reference.get('kind', '')}/{reference.get('name', '')}", _age(obj, now), *listed]


def role(obj: Obj, now: float) -> list[Any]:
    return [_name(obj), obj["metadata"].get("creationTimestamp", "")]


def priority_class(obj: Obj, now: float) -> list[Any]:
    return [
        _name(obj),
        obj.get("value", 0),
        str(bool(obj.get("globalDefault"))).lower(),
        _age(obj, now),
        obj.get("preemptionPolicy", ""),
    ]


def budget(obj: Obj, now: float) -> list[Any]:
    spec = obj.get("spec") or {}
    bounds = [str(spec.get(key, "N/A")) for key in ("minAvailable", "maxUnavailable")]
    return [_name(obj), *bounds, _dig(obj, "status", "disruptionsAllowed", default=0), _age(obj, now)]


def _columns(text: str) -> list[dict[str, Any]]:
    """`Name Ready Status ~IP +Data`: ~ marks wide-only columns, + integers, underscores are spaces."""
    found = []
    for word in text.split():
        label = word.lstrip("~+").replace("_", " ")
        if word == "Name":
            found.append(NAME)
        elif label == "Age":
            found.append(AGE)
        else:
            found.append(column(label, "integer" if "+" in word else "string", 1 if word.startswith("~") else 0))
    return found


_TABLE: dict[str, tuple[str, Callable[[Obj, float], list[Any]]]] = {
    "pods": ("Name Ready Status Restarts Age ~IP ~Node ~Nominated_Node ~Readiness_Gates", pod),
    "nodes": (
        "Name Status Roles Age Version ~Internal-IP ~External-IP ~OS-Image ~Kernel-Version ~Container-Runtime",
        node,
    ),
    "events": ("Last_Seen Type Reason Object ~Subobject ~Source Message ~First_Seen ~+Count ~Name", event),
    "namespaces": ("Name Status Age", namespace),
    "configmaps": ("Name +Data Age", config_map),
    "secrets": ("Name Type +Data Age", secret),
    "serviceaccounts": ("Name +Secrets Age", service_account),
    "leases.coordination.k8s.io": ("Name Holder Age", lease),
    "services": ("Name Type Cluster-IP External-IP Port(s) Age ~Selector", service),
    "deployments.apps": ("Name Ready +Up-to-date +Available Age ~Containers ~Images ~Selector", deployment),
    "replicasets.apps": ("Name +Desired +Current +Ready Age ~Containers ~Images ~Selector", replica_set),
    "statefulsets.apps": ("Name Ready Age ~Containers ~Images", stateful_set),
    "jobs.batch": ("Name Status Completions Duration Age ~Containers ~Images ~Selector", job),
    "horizontalpodautoscalers.autoscaling": (
        "Name Reference Targets MinPods +MaxPods +Replicas Age",
        autoscaler,
    ),
    "customresourcedefinitions.apiextensions.k8s.io": ("Name Created_At", crd),
    "roles.rbac.authorization.k8s.io": ("Name Created_At", role),
    "clusterroles.rbac.authorization.k8s.io": ("Name Created_At", role),
    "rolebindings.rbac.authorization.k8s.io": ("Name Role Age ~Users ~Groups ~ServiceAccounts", role_binding),
    "clusterrolebindings.rbac.authorization.k8s.io": ("Name Role Age ~Users ~Groups ~ServiceAccounts", role_binding),
    "poddisruptionbudgets.policy": ("Name Min_Available Max_Unavailable +Allowed_Disruptions Age", budget),
    "priorityclasses.scheduling.k8s.io": ("Name +Value Global-Default Age ~PreemptionPolicy", priority_class),
}

COLUMNS = {storage: _columns(text) for storage, (text, _) in _TABLE.items()}
CELLS = {storage: cells for storage, (_, cells) in _TABLE.items()}
