"""The shapes of what is read of a manifest: which fields are objects, lists, texts or numbers.

A manifest is a file that somebody wrote: whatever is read of it has been looked at here first, and what is of another
type is refused with its path. Fields that nobody reads are not looked at. A null is a field that is not there.
"""

from __future__ import annotations

from typing import Any

from matrixcommon.model.errors import InvalidField

TEXT, WHOLE, TEXTS, OBJECT = "text", "a whole number", "an object of texts", "an object"

_METADATA: dict[str, Any] = {"labels": TEXTS, "annotations": TEXTS}
_CONTAINERS = [{"resources": {"requests": OBJECT, "limits": OBJECT}}]
POD: dict[str, Any] = {
    "metadata": _METADATA,
    "spec": {
        "nodeSelector": TEXTS,
        "schedulerName": TEXT,
        "restartPolicy": TEXT,
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
    },
}
VOLCANO: dict[str, Any] = {
    "metadata": _METADATA,
    "spec": {
        "tasks": [{"name": TEXT, "template": POD}],
        "schedulerName": TEXT,
        "priorityClassName": TEXT,
        "maxRetry": WHOLE,
        "ttlSecondsAfterFinished": WHOLE,
        "networkTopology": {"mode": TEXT},
    },
}
REPLICAS: dict[str, Any] = {"template": POD, "restartPolicy": TEXT}
ASCEND: dict[str, Any] = {
    "metadata": _METADATA,
    "spec": {
        "replicaSpecs": OBJECT,
        "runPolicy": {"schedulingPolicy": OBJECT},
        "schedulerName": TEXT,
        "priorityClassName": TEXT,
        "maxRetry": WHOLE,
        "ttlSecondsAfterFinished": WHOLE,
        "networkTopology": {"mode": TEXT},
    },
}


def check(value: Any, shape: Any, path: str = "") -> None:
    """Raises InvalidField for the first field that is of another type; takes nulls away."""
    if isinstance(shape, dict):
        _demand(isinstance(value, dict), OBJECT, path)
        for name in [name for name in shape if name in value]:
            if value[name] is None:
                del value[name]
            else:
                check(value[name], shape[name], f"{path}.{name}".lstrip("."))
    elif isinstance(shape, list):
        _demand(isinstance(value, list), "a list", path)
        for at, each in enumerate(value):
            check(each, shape[0], f"{path}[{at}]")
    elif shape == TEXTS:
        _demand(isinstance(value, dict), OBJECT, path)
        for name, each in value.items():
            _demand(isinstance(each, str), "text; write a number in quotes", f"{path}[{name}]")
    elif shape == WHOLE:
        _demand(isinstance(value, int) and not isinstance(value, bool), WHOLE, path)
    else:
        _demand(isinstance(value, str if shape == TEXT else dict), shape, path)


def _demand(satisfied: bool, wanted: str, path: str) -> None:
    if not satisfied:
        raise InvalidField(f"has to be {wanted}", field=path)
