"""Events of both API groups in one store: core/v1 is the stored form, events.k8s.io/v1 is converted from it.

The two name the same fields differently (message and note, involvedObject and regarding, count and series). Events are
deleted after one hour.
"""

from typing import Any

from matrixcontainer.kubeapi.builtin.strategy import BuiltinStrategy
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.qualified_names import qualified_name_errors
from matrixcontainer.kubeapi.registry.strategy import ResourceInfo

LIFETIME_S = 3600.0

RENAMED_TO_CORE = {  # core name: name in events.k8s.io
    "message": "note",
    "involvedObject": "regarding",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
DROPPED_FIELDS = ("reportingController", "reportingInstance")  # if empty; core/v1 includes them
RENAMED_FROM_CORE = {new: old for old, new in RENAMED_TO_CORE.items()}


def to_core(obj: dict[str, Any]) -> dict[str, Any]:
    """Convert an events.k8s.io event to its stored form."""
    causes = {RENAMED_FROM_CORE.get(key, key): value for key, value in obj.items()}
    return causes | {"apiVersion": "v1", "kind": "Event"}


def from_core(obj: dict[str, Any]) -> dict[str, Any]:
    causes = {RENAMED_TO_CORE.get(key, key): value for key, value in obj.items()}
    for key in DROPPED_FIELDS:
        if not causes.get(key):
            causes.pop(key, None)
    return causes | {"apiVersion": "events.k8s.io/v1", "kind": "Event"}


CONVERSIONS = {"events.v1.Event": (to_core, from_core)}


def _source(obj: dict[str, Any]) -> str:
    return (obj.get("source") or {}).get("component") or obj.get("reportingComponent") or ""


FIELD_READERS = {"source": _source}


REASON_LENGTH, NOTE_LENGTH = 128, 1024
LENGTH_LIMITS = {"reportingInstance": 128, "action": 128, "reason": REASON_LENGTH, "message": NOTE_LENGTH}


def check_event(core: dict[str, Any], controller_field: str) -> list[Cause]:
    """Errors of an event of either group, in its core form."""
    about = (core.get("involvedObject") or {}).get("namespace", "")
    own_namespace = core["metadata"].get("namespace", "")
    mismatch = [errors.invalid("involvedObject.namespace", about, "does not match event.namespace")]
    if not core.get("eventTime"):
        return mismatch if (about != own_namespace if about else own_namespace not in ("", "default")) else []
    causes = mismatch if not about and own_namespace not in ("default", "kube-system") else []
    controller = core.get("reportingComponent", "")
    if not controller:
        causes.append(errors.required(controller_field))
    causes += [errors.invalid(controller_field, controller, why) for why in qualified_name_errors(controller)]
    for key, length_max in LENGTH_LIMITS.items():
        current = core.get(key) or ""
        if not current and key != "message":
            causes.append(errors.required(key))
        if len(current) > length_max:
            causes.append(errors.invalid(key, "", f"can have at most {length_max} characters"))
    return causes


class EventStrategy(BuiltinStrategy):
    has_generation = False
    create_on_update = True
    error_group = ""

    def prepare_create(self, obj: dict[str, Any], resource: ResourceInfo) -> None:
        pass

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        return check_event(obj, "reportingComponent")


IMMUTABLE_FIELDS = (
    "eventTime",
    "involvedObject",
    "reason",
    "message",
    "type",
    "action",
    "related",
    "reportingComponent",
)


class NewEventStrategy(EventStrategy):
    """Stricter validation of events.k8s.io: eventTime and type are required, and only the series can be updated."""

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        core = to_core(obj)
        causes = check_event(core, "reportingController")
        if old is not None:
            before = to_core(old)
            return causes + [
                errors.invalid(RENAMED_TO_CORE.get(key, key), core.get(key), "field is immutable")
                for key in IMMUTABLE_FIELDS
                if core.get(key) != before.get(key)
            ]
        if not core.get("eventTime"):
            causes.append(errors.required("eventTime"))
        if core.get("type") not in ("Normal", "Warning"):
            causes.append(errors.invalid("type", "", f"has invalid value: {core.get('type', '')}"))
        return causes
