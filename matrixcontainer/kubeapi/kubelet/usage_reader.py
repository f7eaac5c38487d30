"""Current resource usage and metrics of pods, nodes and objects, by the rules in resource_usage.py."""

from matrixcontainer.kubeapi.kubelet.pod_info import PodIndex, controller_of
from matrixcontainer.kubeapi.kubelet.resource_usage import (
    CUSTOM,
    EXTERNAL,
    NODE_OWN,
    USAGE_ANNOTATION,
    Obj,
    Usage,
    amount,
    annotations_of,
    container_usage,
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
        return resource.show(record) if record is not None else None

    def of_pod(self, pod: Obj) -> dict[str, Usage]:
        controller = self.controller(pod)
        owner = controller["metadata"]["uid"] if controller else ""
        running = sum(1 for info in self._pods.owned_by(owner) if info.active and info.phase == "Running")
        return container_usage(pod, controller, running)

    def of_node(self, node: Obj) -> Usage:
        total = dict(NODE_OWN)
        for info in self._pods.on_node(node["metadata"]["name"]):
            record = self._core.store.get(("pods", *info.key)) if info.phase == "Running" else None
            if record is not None:
                for usage in self.of_pod(record.obj).values():
                    for word, used in usage.items():
                        total[word] = total.get(word, 0) + used
        reported = {
            key[len(USAGE_ANNOTATION) :]: amount(text)
            for key, text in annotations_of(node).items()
            if key.startswith(USAGE_ANNOTATION)
        }
        return total | {word: used for word, used in reported.items() if used is not None}

    def custom_of_pod(self, pod: Obj, metric: str) -> int | None:
        own = amount(annotations_of(pod).get(CUSTOM + metric))
        return own if own is not None else amount(annotations_of(self.controller(pod)).get(CUSTOM + metric))

    def custom_of(self, obj: Obj | None, metric: str) -> int | None:
        declared = amount(annotations_of(obj).get(CUSTOM + metric))
        if declared is not None:
            return declared
        reported = ((obj or {}).get("status") or {}).get("metrics")
        return amount(reported.get(metric)) if isinstance(reported, dict) else None

    def external(self, namespace: str, metric: str) -> int | None:
        record = self._core.store.get(("namespaces", "", namespace))
        return amount(annotations_of(record.obj).get(EXTERNAL + metric)) if record is not None else None
