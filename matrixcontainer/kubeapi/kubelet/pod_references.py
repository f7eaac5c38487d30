"""ConfigMaps and Secrets that a pod needs before its containers start, and which of them are missing.

Messages are worded as by the kubelet. A reference marked `optional` is never missing. Of a volume that is missing, all
containers wait; of an environment variable, its own container.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Obj = dict[str, Any]
Find = Callable[[str, str], Obj | None]
"""The ConfigMap or Secret of the pod's namespace, by resource (`configmaps`, `secrets`) and name."""

KINDS = {"configmaps": "ConfigMap", "secrets": "Secret"}
VARIABLES = {"configMapKeyRef": "configmaps", "secretKeyRef": "secrets"}
ENVIRONMENTS = {"configMapRef": "configmaps", "secretRef": "secrets"}
SOURCES = {"configMap": "configmaps", "secret": "secrets"}


@dataclass(frozen=True)
class MissingReferences:
    """What is missing for volumes, "" if nothing is, and for the environment of each container."""

    volumes: str = ""
    by_container: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.volumes or self.by_container)


NOTHING_MISSING = MissingReferences()


def missing_references(pod: Obj, find: Find) -> MissingReferences:
    """What is missing for containers of the pod that have never started."""
    spec, status, namespace = pod["spec"], pod.get("status") or {}, pod["metadata"].get("namespace", "")
    states = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    started = {each["name"] for each in states if "waiting" not in each["state"] or each.get("lastState")}
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    volumes = "" if started else next(_volume_errors(spec, namespace, find), "")
    waiting = (each for each in containers if each["name"] not in started)
    found = {each["name"]: next(_environment_errors(each, namespace, find), "") for each in waiting}
    return MissingReferences(volumes, {name: text for name, text in found.items() if text})


def _environment_errors(container: Obj, namespace: str, find: Find) -> Iterator[str]:
    for source in container.get("envFrom") or []:
        for kind, storage in ENVIRONMENTS.items():
            if reference := source.get(kind):
                yield from _errors(storage, reference, [], namespace, find)
    for variable in container.get("env") or []:
        for kind, storage in VARIABLES.items():
            if reference := (variable.get("valueFrom") or {}).get(kind):
                yield from _errors(storage, reference, [reference.get("key", "")], namespace, find)


def _volume_errors(spec: Obj, namespace: str, find: Find) -> Iterator[str]:
    for volume in spec.get("volumes") or []:
        for source in [volume, *((volume.get("projected") or {}).get("sources") or [])]:
            for kind, storage in SOURCES.items():
                if not (reference := source.get(kind)):
                    continue
                named = {"name": reference.get("secretName"), **reference}
                keys = [item.get("key", "") for item in reference.get("items") or []]
                for error in _errors(storage, named, keys, namespace, find):
                    yield f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}'


def _errors(storage: str, reference: Obj, keys: list[str], namespace: str, find: Find) -> Iterator[str]:
    if reference.get("optional"):
        return
    name = reference.get("name") or ""
    found = find(storage, name)
    if found is None:
        yield f'{KINDS[storage].lower()} "{name}" not found'
        return
    for key in keys:
        if key not in (found.get("data") or {}) and key not in (found.get("binaryData") or {}):
            yield f"couldn't find key {key} in {KINDS[storage]} {namespace}/{name}"
