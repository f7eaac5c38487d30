"""Kubernetes Events of the operator, the pod scheduler and the kubelets, and Kubernetes' time format."""

from __future__ import annotations

import contextlib
import hashlib
from datetime import UTC, datetime
from typing import Any

from matrixcommon.model.errors import Conflict, NotFound
from matrixcontainer.client.client import EVENT, Kind, KubeClient


def kube_time(at: float) -> str:
    """Format seconds since the epoch as Kubernetes does: RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def event_body(
    name: str, reference: dict[str, Any], *, type: str, reason: str, message: str, component: str, at: float
) -> dict[str, Any]:
    """An Event named `name` about the object that `about` refers to (apiVersion, kind, name, namespace, uid)."""
    timestamp = kube_time(at)
    return {
        "metadata": {"name": name, "namespace": reference["namespace"]},
        "involvedObject": reference,
        "type": type,
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": component,
        "firstTimestamp": timestamp,
        "lastTimestamp": timestamp,
        "count": 1,
    }


def event_for_object(
    kind: Kind, obj: dict[str, Any], type: str, reason: str, message: str, *, component: str, at: float, dedup_key: str
) -> dict[str, Any]:
    """An Event about `obj`. Its name is derived from `dedup_key`: the same key yields the same Event, recorded once."""
    metadata = obj["metadata"]
    reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": metadata["name"], "uid": metadata["uid"]}
    reference["namespace"] = metadata.get("namespace", "")
    digest = hashlib.sha256(f"{metadata['uid']} {dedup_key}".encode()).hexdigest()
    name = f"{metadata['name'][:200]}.{digest[:12]}"
    event = event_body(name, reference, type=type, reason=reason, message=message[:1000], component=component, at=at)
    event["metadata"]["namespace"] = reference["namespace"] or "default"
    return event


async def record_event(kube: KubeClient, event: dict[str, Any]) -> None:
    """Write an Event, unless it already exists or its namespace is terminating."""
    with contextlib.suppress(Conflict, NotFound):
        await kube.create(EVENT, event, event["metadata"]["namespace"])
