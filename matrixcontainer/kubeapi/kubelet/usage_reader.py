"""Current resource usage and metrics of pods, nodes and objects, by the rules in resource_usage.py."""

from matrixcontainer.kubeapi.kubelet.pod_info import PodIndex, controller_of
from matrixcontainer.kubeapi.kubelet.resource_usage import (
    CUSTOM,
    EXTERNAL,
    SYSTEM_USAGE,
    USAGE_ANNOTATION,
    Obj,
    Usage,
    container_usage,
    object_annotations,
    parse_usage,
)
from matrixcontainer.kubeapi.registry.core import Core


class UsageReader:
    """Values are in milli-units; None if nothing is declared."""

    def __init__(self, core: Core, pods: PodIndex) -> None:
        self._core, self._pods = core, pods

    def controller(self, pod: Obj) -> Obj | None:
        reference = controller_of(pod["metadata"])
        if reference is None:
            return None
        return self.object(reference, pod["metadata"]["namespace"])

    def object(self, reference: Obj, namespace: str) -> Obj | None:
        """The object that a reference (kind, apiVersion, name) points to."""
        resource = self._core.registry.by_kind(reference.get("apiVersion", ""), reference.get("kind", ""))
        if resource is None:
            return None
        where = namespace if resource.namespaced else ""
        record = self._core.store.get((resource.storage, where, reference.get("name", "")))
        return resource.served_object(record) if record is not None else None

    def of_pod(self, pod: Obj) -> dict[str, Usage]:
        controller = self.controller(pod)
        owner = controller["metadata"]["uid"] if controller else ""
        running = sum(1 for info in self._pods.owned_by(owner) if info.active and info.phase == "Running")
        return container_usage(pod, controller, running)

    def of_node(self, node: Obj) -> Usage:
        total = dict(SYSTEM_USAGE)
        for info in self._pods.on_node(node["metadata"]["name"]):
            record = self._core.store.get(("pods", *info.key)) if info.phase == "Running" else None
            if record is not None:
                for usage in self.of_pod(record.obj).values():
                    for resource, used in usage.items():
                        total[resource] = total.get(resource, 0) + used
        declared = {
            key[len(USAGE_ANNOTATION) :]: parse_usage(text)
            for key, text in object_annotations(node).items()
            if key.startswith(USAGE_ANNOTATION)
        }
        return total | {resource: used for resource, used in declared.items() if used is not None}

    def custom_of_pod(self, pod: Obj, metric: str) -> int | None:
        own = parse_usage(object_annotations(pod).get(CUSTOM + metric))
        return own if own is not None else parse_usage(object_annotations(self.controller(pod)).get(CUSTOM + metric))

    def custom_of(self, obj: Obj | None, metric: str) -> int | None:
        declared = parse_usage(object_annotations(obj).get(CUSTOM + metric))
        if declared is not None:
            return declared
        reported = ((obj or {}).get("status") or {}).get("metrics")
        return parse_usage(reported.get(metric)) if isinstance(reported, dict) else None

    def external(self, namespace: str, metric: str) -> int | None:
        record = self._core.store.get(("namespaces", "", namespace))
        return parse_usage(object_annotations(record.obj).get(EXTERNAL + metric)) if record is not None else None
