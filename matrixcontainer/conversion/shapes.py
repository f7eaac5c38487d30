"""Type checks of the fields that a conversion reads.

Manifests are user input: every field that is read is checked here first, and one of the wrong type is refused with its
path. Other fields are not checked. A null counts as an absent field.
"""

from __future__ import annotations

from typing import Any

from matrixcommon.model.errors import InvalidField

TEXT, INTEGER, TEXTS, OBJECT = "a string", "an integer", "an object of strings", "an object"

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
        "maxRetry": INTEGER,
        "ttlSecondsAfterFinished": INTEGER,
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
        "maxRetry": INTEGER,
        "ttlSecondsAfterFinished": INTEGER,
        "networkTopology": {"mode": TEXT},
    },
}


def check_types(value: Any, shape: Any, path: str = "") -> None:
    """Raise InvalidField for the first field of the wrong type. Removes nulls in place."""
    if isinstance(shape, dict):
        _require(isinstance(value, dict), OBJECT, path)
        for name in [name for name in shape if name in value]:
            if value[name] is None:
                del value[name]
            else:
                check_types(value[name], shape[name], f"{path}.{name}".lstrip("."))
    elif isinstance(shape, list):
        _require(isinstance(value, list), "a list", path)
        for index, each in enumerate(value):
            check_types(each, shape[0], f"{path}[{index}]")
    elif shape == TEXTS:
        _require(isinstance(value, dict), OBJECT, path)
        for name, each in value.items():
            _require(isinstance(each, str), "a string; put numbers in quotes", f"{path}[{name}]")
    elif shape == INTEGER:
        _require(isinstance(value, int) and not isinstance(value, bool), INTEGER, path)
    else:
        _require(isinstance(value, str if shape == TEXT else dict), shape, path)


def _require(satisfied: bool, expected: str, path: str) -> None:
    if not satisfied:
        raise InvalidField(f"must be {expected}", field=path)
