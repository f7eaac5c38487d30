"""Events in both groups over one store: core/v1 is the stored form, events.k8s.io/v1 is a view of it.

The two spell the same facts differently (message and note, involvedObject and regarding, count and series). An event
lives for one hour, then it is forgotten.
"""

from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi import errors
from matrixcontainer.kubeapi.errors import Cause
from matrixcontainer.kubeapi.strategy import Strategy

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.resources import Resource

LIFETIME_S = 3600.0

RENAMED = {  # core name: name in events.k8s.io
    "message": "note",
    "involvedObject": "regarding",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
BACK = {new: old for old, new in RENAMED.items()}


def to_core(obj: dict[str, Any]) -> dict[str, Any]:
    """An events.k8s.io event as stored."""
    found = {BACK.get(key, key): value for key, value in obj.items()}
    return found | {"apiVersion": "v1", "kind": "Event"}


def from_core(obj: dict[str, Any]) -> dict[str, Any]:
    found = {RENAMED.get(key, key): value for key, value in obj.items()}
    return found | {"apiVersion": "events.k8s.io/v1", "kind": "Event"}


CONVERSIONS = {"events.v1.Event": (to_core, from_core)}


def _source(obj: dict[str, Any]) -> str:
    return (obj.get("source") or {}).get("component") or obj.get("reportingComponent") or ""


FIELD_READERS = {"source": _source}


class EventStrategy(Strategy):
    has_generation = False
    create_on_update = True

    def prepare_create(self, obj: dict[str, Any], resource: "Resource") -> None:
        pass

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        about = obj.get("involvedObject") or obj.get("regarding") or {}
        namespace = about.get("namespace", "")
        meta = obj["metadata"]
        if (namespace and namespace != meta.get("namespace")) or (not namespace and meta.get("namespace") != "default"):
            field = "involvedObject.namespace"
            return [errors.invalid(field, namespace, "does not match event.namespace")]
        return []


class NewEventStrategy(EventStrategy):
    """The stricter rules of events.k8s.io for new events."""

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        found = super().validate(obj, old)
        if old is None:
            found += [
                errors.required(key)
                for key in ("eventTime", "reportingController", "reportingInstance", "action", "reason")
                if not obj.get(key)
            ]
            if obj.get("type") not in ("Normal", "Warning"):
                found.append(errors.invalid("type", obj.get("type", ""), "has invalid value"))
        return found
