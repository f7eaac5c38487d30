"""A Kubernetes Event, and a moment as Kubernetes writes it: what the operator and the pod scheduler both tell with."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def kube_time(at: float) -> str:
    """Seconds since the epoch as Kubernetes writes them: RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def event_body(
    name: str, about: dict[str, Any], *, type: str, reason: str, message: str, component: str, at: float
) -> dict[str, Any]:
    """An Event of that name on the object `about` refers to (apiVersion, kind, name, namespace, uid)."""
    moment = kube_time(at)
    return {
        "metadata": {"name": name, "namespace": about["namespace"]},
        "involvedObject": about,
        "type": type,
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": component,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
