"""Lifecycle of a pod on an emulated node, as a pure function of the pod and the time.

`advance_pod` returns the status that the pod should have now, whether to remove it, and when the next change is due.
Everything is derived from the pod itself (when it was accepted, when each container started or ended), so a restarted
kubelet continues where it was. Stages and their delays are in pod_stages.yaml, the behaviour of containers in
container_script.py, their lifecycle in container_lifecycle.py.
"""

from dataclasses import dataclass
from typing import Any

from matrixcontainer.kubeapi.kubelet.container_lifecycle import Containers, earliest
from matrixcontainer.kubeapi.kubelet.container_script import parse_number, pod_annotation
from matrixcontainer.kubeapi.kubelet.pod_references import NOTHING_MISSING, MissingReferences
from matrixcontainer.kubeapi.kubelet.stage_delays import StageDelays
from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp, timestamp
from matrixcontainer.kubeapi.schema.structural import copy_json

Obj = dict[str, Any]


@dataclass
class PodTransition:
    """`status` if it should change, `remove` if the pod should be removed, `at` the time of the next stage."""

    status: Obj | None = None
    remove: bool = False
    at: float | None = None


def advance_pod(
    pod: Obj,
    now: float,
    delays: StageDelays,
    host_ip: str,
    pod_ip: str,
    missing: MissingReferences = NOTHING_MISSING,
) -> PodTransition:
    meta, current = pod["metadata"], pod.get("status") or {}
    if "deletionTimestamp" in meta:
        return _terminate(pod, now, delays)
    if current.get("phase") in ("Succeeded", "Failed"):
        return PodTransition()
    accepted_at = _scheduled_at(pod) + delays.delay("accept", meta["uid"])
    if "startTime" not in current:
        if now < accepted_at:
            return PodTransition(at=accepted_at)
        current = current | {"startTime": timestamp(now)}
    status = copy_json(current)
    status |= {"hostIP": host_ip, "hostIPs": [{"ip": host_ip}]}
    if not missing.volumes:
        status |= {"podIP": pod_ip, "podIPs": [{"ip": pod_ip}]}
    limit = pod["spec"].get("activeDeadlineSeconds")
    deadline = parse_timestamp(status["startTime"]) + limit if limit is not None else None
    if deadline is not None and now >= deadline:
        return PodTransition(status=_deadline_exceeded(pod, status, now))
    containers = Containers(pod, status, now, delays, missing)
    next_change = containers.advance()
    _set_phase(pod, status, containers, now)
    return PodTransition(status if status != pod.get("status") else None, at=earliest(next_change, deadline))


def _scheduled_at(pod: Obj) -> float:
    conditions = (pod.get("status") or {}).get("conditions") or []
    bound = next((c.get("lastTransitionTime") for c in conditions if c["type"] == "PodScheduled"), None)
    return parse_timestamp(bound or pod["metadata"].get("creationTimestamp", ""))


# ---- phase and conditions


def set_condition(status: Obj, kind: str, value: bool, now: float, reason: str = "", message: str = "") -> None:
    conditions = status.setdefault("conditions", [])
    current = next((c for c in conditions if c["type"] == kind), None)
    status_text = "True" if value else "False"
    since = current["lastTransitionTime"] if current and current["status"] == status_text else timestamp(now)
    condition = {"type": kind, "status": status_text, "lastProbeTime": None, "lastTransitionTime": since}
    condition |= {key: text for key, text in (("reason", reason), ("message", message)) if text}
    if current is None:
        conditions.append(condition)
    else:
        conditions[conditions.index(current)] = condition


def _set_phase(pod: Obj, status: Obj, containers: Containers, now: float) -> None:
    codes = containers.exit_codes()
    if containers.init_failed:
        status["phase"] = "Failed"
    elif codes is not None:
        status["phase"] = "Failed" if any(codes) else "Succeeded"
    else:
        status["phase"] = "Running" if containers.any_started() else "Pending"
    _set_conditions(pod, status, containers, now)


def _set_conditions(pod: Obj, status: Obj, containers: Containers, now: float) -> None:
    set_condition(status, "PodReadyToStartContainers", containers.any_started() or not containers.missing.volumes, now)
    waiting = containers.incomplete_init()
    text = f"containers with incomplete status: [{' '.join(waiting)}]" if waiting else ""
    set_condition(status, "Initialized", not waiting, now, "ContainersNotInitialized" if waiting else "", text)
    if status["phase"] == "Succeeded":
        for kind in ("Ready", "ContainersReady"):
            set_condition(status, kind, False, now, "PodCompleted")
        return
    unready = containers.unready()
    if status["phase"] == "Failed":
        for kind in ("Ready", "ContainersReady"):
            set_condition(status, kind, False, now, "PodFailed")
        return
    text = f"containers with unready status: [{' '.join(unready)}]" if unready else ""
    set_condition(status, "ContainersReady", not unready, now, "ContainersNotReady" if unready else "", text)
    passed = {c["type"] for c in status["conditions"] if c["status"] == "True"}
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or []]
    failing_gates = [gate for gate in gates if gate not in passed]
    if unready or not failing_gates:
        set_condition(status, "Ready", not unready, now, "ContainersNotReady" if unready else "", text)
    else:
        text = f'the status of pod readiness gate "{failing_gates[0]}" is not "True", but False'
        set_condition(status, "Ready", False, now, "ReadinessGatesNotReady", text)


def _deadline_exceeded(pod: Obj, status: Obj, now: float) -> Obj:
    containers = Containers(pod, status, now, StageDelays({}))
    containers.terminate_all(137, "Error")
    status |= {"phase": "Failed", "reason": "DeadlineExceeded"}
    status["message"] = "Pod was active on the node longer than the specified deadline"
    for kind in ("Ready", "ContainersReady"):
        set_condition(status, kind, False, now, "PodFailed")
    return status


# ---- termination


def _terminate(pod: Obj, now: float, delays: StageDelays) -> PodTransition:
    """Terminate the pod: containers stop within the grace period, then the pod is removed unless finalizers keep it."""
    meta, current = pod["metadata"], pod.get("status") or {}
    grace = meta.get("deletionGracePeriodSeconds") or 0
    started = parse_timestamp(meta["deletionTimestamp"]) - grace
    desired = parse_number(pod_annotation(pod, "stop-seconds"))
    stop_s = desired if desired is not None else delays.delay("stop", meta["uid"])
    for container in pod["spec"].get("containers") or []:
        hook = ((container.get("lifecycle") or {}).get("preStop") or {}).get("sleep") or {}
        stop_s = max(stop_s, float(hook.get("seconds") or 0))
    if "startTime" not in current or current.get("phase") in ("Succeeded", "Failed"):
        return PodTransition(remove=grace > 0 or not meta.get("finalizers"))
    if now < (stops_at := started + min(stop_s, grace)):
        return PodTransition(at=stops_at)
    status = copy_json(current)
    containers = Containers(pod, status, now, delays)
    code = 137 if stop_s > grace else 0 if pod["spec"].get("restartPolicy") == "Always" else 143
    containers.terminate_all(code, "Error" if code else "Completed")
    status["phase"] = "Failed" if any(containers.exit_codes() or ()) else "Succeeded"
    for kind in ("Ready", "ContainersReady"):
        set_condition(status, kind, False, now, "PodCompleted")
    return PodTransition(status, remove=grace > 0 or not meta.get("finalizers"))
