"""Set the priority of new pods from their PriorityClass, as upstream's Priority admission plugin does."""

from typing import Any

from matrixcontainer.kubeapi.builtin.core import SYSTEM_PRIORITIES
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.registry.writer import AdmissionPlugin
from matrixcontainer.kubeapi.storage.store import Store

CLASSES = "priorityclasses.scheduling.k8s.io"


def set_priority(store: Store) -> AdmissionPlugin:
    """Admission plugin that sets a new pod's priorityClassName, priority and preemptionPolicy."""

    async def admit(
        resource: Resource, verb: str, new: dict[str, Any] | None, old: dict[str, Any] | None, options: Options
    ) -> None:
        if resource.storage != "pods" or verb != "CREATE" or new is None:
            return
        spec = new["spec"]
        name = spec.get("priorityClassName", "")
        found = _find(store, name)
        if found is None:
            pod = new["metadata"].get("name", "")
            raise errors.forbidden("pods", "", pod, f"no PriorityClass with name {name} was found")
        spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"] = found
        if not spec["priorityClassName"]:
            del spec["priorityClassName"]

    return admit


def _find(store: Store, name: str) -> tuple[str, int, str] | None:
    """(name, priority, preemptionPolicy) of the named class, or of the global default; None if the name is unknown."""
    if name in SYSTEM_PRIORITIES:
        return name, SYSTEM_PRIORITIES[name], "PreemptLowerPriority"
    for record in store.objects_of(CLASSES):
        current = record.obj
        if record.key[2] == name or (not name and current.get("globalDefault")):
            return record.key[2], current.get("value", 0), current.get("preemptionPolicy", "PreemptLowerPriority")
    return None if name else ("", 0, "PreemptLowerPriority")
