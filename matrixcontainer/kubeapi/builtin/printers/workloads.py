"""Computed table cells of pods and workloads."""

from typing import Any

from matrixcontainer.kubeapi.builtin.printers.cells import NONE, UNSET, Obj, get_nested, label_selector, labels
from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp
from matrixcontainer.kubeapi.registry.printer_columns import age_of, human_age

COMPLETED = {
    "Succeeded": {
        "type": "Completed",
        "status": "True",
        "reason": "Succeeded",
        "message": "The pod has completed successfully.",
    },
    "Failed": {"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."},
}


def pod_row_conditions(obj: Obj) -> list[Obj]:
    """The Completed condition for finished pods' rows, so that clients can hide them."""
    result = COMPLETED.get(get_nested(obj, "status", "phase", default=""))
    return [result] if result else []


def pod(obj: Obj, now: float) -> list[Any]:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    beside = {c["name"] for c in spec.get("initContainers") or [] if c.get("restartPolicy") == "Always"}
    ready, restarted, column = _init_state(obj, beside)
    reason = column or _reason(obj)
    if not column or _has_condition(obj, "Initialized"):
        started = status.get("containerStatuses") or []
        more, reason = _container_state(obj, started, reason)
        ready += more
        restarted = [state for state in restarted if state.get("name") in beside] + started
    if "deletionTimestamp" in obj["metadata"]:
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in COMPLETED:
            reason = "Terminating"
    gates = spec.get("readinessGates") or []
    passed = sum(_has_condition(obj, gate["conditionType"]) for gate in gates)
    return [
        f"{ready}/{len(spec.get('containers') or []) + len(beside)}",
        reason,
        _restarts(restarted, now),
        (status.get("podIPs") or [{"ip": status.get("podIP")}])[0].get("ip") or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    ]


def _has_condition(obj: Obj, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in get_nested(obj, "status", "conditions", default=[]))


def _reason(obj: Obj) -> str:
    """The reason or phase in the pod's own status."""
    status = obj.get("status", {})
    conditions = status.get("conditions") or []
    if any(c["type"] == "PodScheduled" and c.get("reason") == "SchedulingGated" for c in conditions):
        return "SchedulingGated"
    return str(status.get("reason") or status.get("phase", ""))


def _init_state(obj: Obj, beside: set[str]) -> tuple[int, list[Obj], str]:
    """(ready sidecars, inspected states, the reason while not initialised) of the init containers."""
    ready, seen = 0, []
    for index, state in enumerate(get_nested(obj, "status", "initContainerStatuses", default=[])):
        seen.append(state)
        ended, waiting = (
            get_nested(state, "state", "terminated"),
            get_nested(state, "state", "waiting", "reason", default=""),
        )
        if ended is not None and not ended.get("exitCode"):
            continue
        if state.get("name") in beside and state.get("started"):
            ready += bool(state.get("ready"))
            continue
        if ended is not None:
            return ready, seen, f"Init:{_termination_reason(ended)}"
        if waiting and waiting != "PodInitializing":
            return ready, seen, f"Init:{waiting}"
        return ready, seen, f"Init:{index}/{len(get_nested(obj, 'spec', 'initContainers', default=[]))}"
    return ready, seen, ""


def _termination_reason(ended: Obj) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def _container_state(obj: Obj, states: list[Obj], reason: str) -> tuple[int, str]:
    """(ready containers, the pod's reason); the first container takes precedence."""
    ready = 0
    for state in reversed(states):
        waiting, ended = get_nested(state, "state", "waiting", "reason"), get_nested(state, "state", "terminated")
        if waiting:
            reason = waiting
        elif ended is not None:
            reason = _termination_reason(ended)
        elif state.get("ready") and get_nested(state, "state", "running") is not None:
            ready += 1
    if reason == "Completed" and ready:
        reason = "Running" if _has_condition(obj, "Ready") else "NotReady"
    return ready, reason


def _restarts(states: list[Obj], now: float) -> str:
    count = sum(state.get("restartCount", 0) for state in states)
    ends = [get_nested(state, "lastState", "terminated", "finishedAt") for state in states]
    last = max(filter(None, ends), default="")
    return f"{count} ({age_of(last, now)} ago)" if count and last else str(count)


# ---- workloads


def ready_of_desired(obj: Obj, now: float) -> list[Any]:
    return [f"{get_nested(obj, 'status', 'readyReplicas', default=0)}/{get_nested(obj, 'spec', 'replicas', default=1)}"]


def deployment(obj: Obj, now: float) -> list[Any]:
    return [*ready_of_desired(obj, now), label_selector(get_nested(obj, "spec", "selector"), nothing="")]


def daemon_set(obj: Obj, now: float) -> list[Any]:
    return [labels(get_nested(obj, "spec", "template", "spec", "nodeSelector"))]


def job(obj: Obj, now: float) -> list[Any]:
    status, spec = obj.get("status", {}), obj.get("spec", {})
    if _has_condition(obj, "Complete") or _has_condition(obj, "Failed"):
        state = "Complete" if _has_condition(obj, "Complete") else "Failed"
    elif "deletionTimestamp" in obj["metadata"]:
        state = "Terminating"
    else:
        state = next((word for word in ("Suspended", "FailureTarget") if _has_condition(obj, word)), "Running")
    desired = spec.get("completions")
    several = f"1 of {spec['parallelism']}" if (spec.get("parallelism") or 0) > 1 else "1"
    done = f"{status.get('succeeded', 0)}/{several if desired is None else desired}"
    started, ended = status.get("startTime"), status.get("completionTime")
    took = human_age((parse_timestamp(ended) if ended else now) - parse_timestamp(started)) if started else ""
    return [state, done, took]


def budget(obj: Obj, now: float) -> list[Any]:
    spec = obj.get("spec") or {}
    return [str(spec.get(key, "N/A")) for key in ("minAvailable", "maxUnavailable")]


# ---- autoscalers

TARGETS_SHOWN = 2


def autoscaler(obj: Obj, now: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    target = spec["scaleTargetRef"]
    goals = _format_targets(spec.get("metrics") or [], status.get("currentMetrics") or [])
    more = f" + {len(goals) - TARGETS_SHOWN} more..." if len(goals) > TARGETS_SHOWN else ""
    listed = ", ".join(goals[:TARGETS_SHOWN]) + more or NONE
    return [f"{target['kind']}/{target['name']}", listed, str(spec.get("minReplicas", UNSET))]


def _format_targets(metrics: list[Obj], current: list[Obj]) -> list[str]:
    """Format each metric as `cpu: 40%/50%`, with <unknown> until it was read."""
    result = []
    for index, metric in enumerate(metrics):
        part = metric["type"][:1].lower() + metric["type"][1:]
        source = metric.get(part) or {}
        target = source.get("target") or {}
        allocated = get_nested(current[index], part, "current", default={}) if index < len(current) else {}
        word = next((w for w in ("averageValue", "averageUtilization", "value") if target.get(w) is not None), "value")
        mark = "%" if word == "averageUtilization" else ""
        average = " (avg)" if word == "averageValue" and part in ("object", "external") else ""
        now = f"{allocated[word]}{mark}" if allocated.get(word) is not None else "<unknown>"
        goal = f"{now}/{target.get(word)}{mark}{average}"
        result.append(f"{source['name']}: {goal}" if "name" in source else goal)
    return result
