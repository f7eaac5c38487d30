"""The status of a Deployment, with the conditions that kubectl, Helm and users wait for.

`Available` says whether enough pods are available. `Progressing` tracks the rollout: a set was created or found, pods
are following, all have followed (NewReplicaSetAvailable), or there was no progress within the deadline
(ProgressDeadlineExceeded).
"""

from typing import Any

from matrixcontainer.kubeapi.controllers.workloads.rollout import Obj, RolloutSets, desired_size, surge_and_unavailable
from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp, timestamp

NO_DEADLINE = 2**31 - 1
DONE, EXCEEDED, PAUSED = "NewReplicaSetAvailable", "ProgressDeadlineExceeded", "DeploymentPaused"


def status_counts(deployment: Obj, sets: RolloutSets) -> Obj:
    def total(name: str) -> int:
        return sum((rs.get("status") or {}).get(name, 0) for rs in sets.all)

    available = total("availableReplicas")
    counts = {
        "replicas": total("replicas"),
        "updatedReplicas": ((sets.new or {}).get("status") or {}).get("replicas", 0),
        "readyReplicas": total("readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(sum(map(desired_size, sets.all)) - available, 0),
    }
    return {name: count for name, count in counts.items() if count}


def is_complete(deployment: Obj, status: Obj) -> bool:
    wanted = desired_size(deployment)
    counts = (status.get(name, 0) for name in ("updatedReplicas", "replicas", "availableReplicas"))
    return all(count == wanted for count in counts) and status.get("observedGeneration", 0) >= deployment[
        "metadata"
    ].get("generation", 0)


def has_progressed(before: Obj, after: Obj) -> bool:
    def old_pods(status: Obj) -> int:
        return int(status.get("replicas", 0) - status.get("updatedReplicas", 0))

    grew = any(
        after.get(name, 0) > before.get(name, 0) for name in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )
    return grew or old_pods(after) < old_pods(before)


def find_condition(status: Obj, kind: str) -> Obj | None:
    return next((c for c in status.get("conditions") or [] if c["type"] == kind), None)


def set_condition(
    status: Obj, kind: str, value: str, reason: str, message: str, now: float, refresh: bool = False
) -> None:
    """Set a condition, as upstream: unless `refresh`, not if status and reason are unchanged. lastTransitionTime
    changes only with the status."""
    current = find_condition(status, kind)
    if current and current["status"] == value and current.get("reason") == reason and not refresh:
        return
    at = timestamp(now)
    since = current["lastTransitionTime"] if current and current["status"] == value else at
    condition = {
        "type": kind,
        "status": value,
        "lastUpdateTime": at,
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    }
    status["conditions"] = [c for c in status.get("conditions") or [] if c["type"] != kind] + [condition]


def seconds_left(deployment: Obj, status: Obj, now: float) -> float | None:
    """Seconds until the progress deadline; None if none is running."""
    deadline = deployment["spec"].get("progressDeadlineSeconds")
    current = find_condition(status, "Progressing")
    if deadline is None or deadline >= NO_DEADLINE or current is None:
        return None
    if current.get("reason") in (DONE, EXCEEDED, PAUSED):
        return None
    return parse_timestamp(current["lastUpdateTime"]) + deadline - now


def deployment_status(deployment: Obj, sets: RolloutSets, now: float, event: tuple[str, str] | None = None) -> Obj:
    """The current status. `event` is (reason, message) for what was just done to the new set, if anything."""
    before = deployment.get("status") or {}
    status = status_counts(deployment, sets)
    status["observedGeneration"] = deployment["metadata"].get("generation", 0)
    if before.get("collisionCount"):
        status["collisionCount"] = before["collisionCount"]
    status["conditions"] = [dict(c) for c in before.get("conditions") or []]
    _set_available(deployment, status, now)
    deadline = deployment["spec"].get("progressDeadlineSeconds")
    if deadline is None or deadline >= NO_DEADLINE:
        status["conditions"] = [c for c in status["conditions"] if c["type"] != "Progressing"]
    else:
        _set_progressing(deployment, before, status, sets, now, event)
    _set_replica_failure(status, sets, now)
    return status


def _set_available(deployment: Obj, status: Obj, now: float) -> None:
    if status.get("availableReplicas", 0) >= desired_size(deployment) - surge_and_unavailable(deployment)[1]:
        text = "Deployment has minimum availability."
        set_condition(status, "Available", "True", "MinimumReplicasAvailable", text, now)
    else:
        text = "Deployment does not have minimum availability."
        set_condition(status, "Available", "False", "MinimumReplicasUnavailable", text, now)


def _set_progressing(
    deployment: Obj, before: Obj, status: Obj, sets: RolloutSets, now: float, event: tuple[str, str] | None
) -> None:
    current = find_condition(status, "Progressing")
    if deployment["spec"].get("paused"):
        if not (current and current.get("reason") == EXCEEDED):
            set_condition(status, "Progressing", "Unknown", PAUSED, "Deployment is paused", now)
        return
    if current and current.get("reason") == PAUSED:
        set_condition(status, "Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed", now)
    if event is not None:
        set_condition(status, "Progressing", "True", *event, now)
        current = find_condition(status, "Progressing")
    is_done = (
        status.get("replicas", 0) == status.get("updatedReplicas", 0) and current and current.get("reason") == DONE
    )
    if is_done and event is None:
        return
    name = (
        f'ReplicaSet "{sets.new["metadata"]["name"]}"' if sets.new else f'Deployment "{deployment["metadata"]["name"]}"'
    )
    if is_complete(deployment, status):
        set_condition(status, "Progressing", "True", DONE, f"{name} has successfully progressed.", now)
    elif has_progressed(before, status):
        text = f"{name} is progressing."
        set_condition(status, "Progressing", "True", "ReplicaSetUpdated", text, now, refresh=True)
    elif (left := seconds_left(deployment, status, now)) is not None and left <= 0:
        set_condition(status, "Progressing", "False", EXCEEDED, f"{name} has timed out progressing.", now)


def _set_replica_failure(status: Obj, sets: RolloutSets, now: float) -> None:
    failures = [find_condition(rs.get("status") or {}, "ReplicaFailure") for rs in sets.all]
    failure: dict[str, Any] | None = next((c for c in failures if c and c["status"] == "True"), None)
    if failure is None:
        status["conditions"] = [c for c in status["conditions"] if c["type"] != "ReplicaFailure"]
    else:
        set_condition(status, "ReplicaFailure", "True", failure["reason"], failure.get("message", ""), now)
