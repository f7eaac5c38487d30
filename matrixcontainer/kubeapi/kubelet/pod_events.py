"""Events that a kubelet records when a pod's status changes: containers started, in back-off or killed, and what they
wait for."""

from dataclasses import dataclass
from typing import Any

from matrixcontainer.kubeapi.kubelet.pod_references import NOTHING_MISSING, MissingReferences


@dataclass(frozen=True)
class PodEvent:
    """One event on the pod."""

    reason: str
    message: str
    warning: bool = False


def pod_events(
    pod: dict[str, Any], status: dict[str, Any], missing: MissingReferences = NOTHING_MISSING
) -> list[PodEvent]:
    """The events for a change from the current status of `pod` to `status`."""
    before = {c["name"]: c for c in (pod.get("status") or {}).get("containerStatuses") or []}
    reported = []
    if missing.volumes and "startTime" not in (pod.get("status") or {}):
        reported.append(PodEvent("FailedMount", missing.volumes, warning=True))
    for state in status.get("containerStatuses") or []:
        name, now = state["name"], state["state"]
        then = (before.get(name) or {}).get("state") or {}
        waiting = now.get("waiting") or {}
        if "running" in now and "running" not in then:
            reported.append(PodEvent("Started", f"Started container {name}"))
        elif waiting.get("reason") not in (then.get("waiting", {}).get("reason"), None):
            if waiting["reason"] in ("CrashLoopBackOff", "ImagePullBackOff"):
                reported.append(PodEvent("BackOff", waiting.get("message", waiting["reason"]), warning=True))
            elif waiting["reason"] == "CreateContainerConfigError":
                reported.append(PodEvent("Failed", f"Error: {waiting['message']}", warning=True))
        elif "terminated" in now and "running" in then and "deletionTimestamp" in pod["metadata"]:
            reported.append(PodEvent("Killing", f"Stopping container {name}"))
    return reported
