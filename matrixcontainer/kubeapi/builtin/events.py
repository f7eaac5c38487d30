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

RENAMED = {  # core name: name in events.k8s.io
    "message": "note",
    "involvedObject": "regarding",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
LEFT_OUT = ("reportingController", "reportingInstance")  # if empty; core/v1 includes them
BACK = {new: old for old, new in RENAMED.items()}


def to_core(obj: dict[str, Any]) -> dict[str, Any]:
    """Convert an events.k8s.io event to its stored form."""
    found = {BACK.get(key, key): value for key, value in obj.items()}
    return found | {"apiVersion": "v1", "kind": "Event"}


def from_core(obj: dict[str, Any]) -> dict[str, Any]:
    found = {RENAMED.get(key, key): value for key, value in obj.items()}
    for key in LEFT_OUT:
        if not found.get(key):
            found.pop(key, None)
    return found | {"apiVersion": "events.k8s.io/v1", "kind": "Event"}


CONVERSIONS = {"events.v1.Event": (to_core, from_core)}


def _source(obj: dict[str, Any]) -> str:
    return (obj.get("source") or {}).get("component") or obj.get("reportingComponent") or ""


FIELD_READERS = {"source": _source}


REASON_LENGTH, NOTE_LENGTH = 128, 1024
LENGTHS = {"reportingInstance": 128, "action": 128, "reason": REASON_LENGTH, "message": NOTE_LENGTH}


def check_event(core: dict[str, Any], controller_field: str) -> list[Cause]:
    """Errors of an event of either group, in its core form."""
    about = (core.get("involvedObject") or {}).get("namespace", "")
    mine = core["metadata"].get("namespace", "")
    mismatch = [errors.invalid("involvedObject.namespace", about, "does not match event.namespace")]
    if not core.get("eventTime"):
        return mismatch if (about != mine if about else mine not in ("", "default")) else []
    found = mismatch if not about and mine not in ("default", "kube-system") else []
    controller = core.get("reportingComponent", "")
    if not controller:
        found.append(errors.required(controller_field))
    found += [errors.invalid(controller_field, controller, why) for why in qualified_name_errors(controller)]
    for key, most in LENGTHS.items():
        current = core.get(key) or ""
        if not current and key != "message":
            found.append(errors.required(key))
        if len(current) > most:
            found.append(errors.invalid(key, "", f"can have at most {most} characters"))
    return found


class EventStrategy(BuiltinStrategy):
    has_generation = False
    create_on_update = True
    error_group = ""

    def prepare_create(self, obj: dict[str, Any], resource: ResourceInfo) -> None:
        pass

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        return check_event(obj, "reportingComponent")


FIXED = ("eventTime", "involvedObject", "reason", "message", "type", "action", "related", "reportingComponent")


class NewEventStrategy(EventStrategy):
    """Stricter validation of events.k8s.io: eventTime and type are required, and only the series can be updated."""

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        core = to_core(obj)
        found = check_event(core, "reportingController")
        if old is not None:
            before = to_core(old)
            return found + [
                errors.invalid(RENAMED.get(key, key), core.get(key), "field is immutable")
                for key in FIXED
                if core.get(key) != before.get(key)
            ]
        if not core.get("eventTime"):
            found.append(errors.required("eventTime"))
        if core.get("type") not in ("Normal", "Warning"):
            found.append(errors.invalid("type", "", f"has invalid value: {core.get('type', '')}"))
        return found
