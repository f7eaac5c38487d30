"""What pods and nodes use, as metrics.k8s.io tells it and autoscalers read it. Nothing is measured: it is said.

Annotations say it, on a pod, or on what controls it (a Deployment's annotations reach its ReplicaSets) for each of
its pods; values are Kubernetes quantities, as they would be measured:

    metrics.cloudmatrix.io/cpu: 250m             the pod's use, shared evenly by its containers
    metrics.cloudmatrix.io/cpu.worker: 200m      of one container
    metrics.cloudmatrix.io/memory: 512Mi         the same for memory, and for any other resource
    metrics.cloudmatrix.io/total-cpu: "3"        on what controls the pods: shared evenly by all that run
    custom.metrics.cloudmatrix.io/queue: "17"    a Pods or Object metric: on the pod, its controller or the object
    external.metrics.cloudmatrix.io/queue: "17"  an External metric: on the Namespace

An object may also say its own metrics in its status: `status.metrics.queue: "17"` is an Object metric.

Where nothing is said, a container uses a tenth of the CPU and half of the memory it requests, or 5m and 32Mi.
Nodes use what their pods use and a little of their own; annotations on a Node say otherwise.
"""

from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi.controllers.amounts import milli
from matrixcontainer.kubeapi.controllers.pod_facts import controller_of

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.controllers.workloads import Workloads

Obj = dict[str, Any]
Usage = dict[str, int]  # resource: thousandths

SAID = "metrics.cloudmatrix.io/"
CUSTOM = "custom.metrics.cloudmatrix.io/"
EXTERNAL = "external.metrics.cloudmatrix.io/"
DEFAULTS = {"cpu": (10, 5), "memory": (2, 32 * 2**20 * 1000)}  # a fraction of the request, or so much
NODE_OWN = {"cpu": 100, "memory": 512 * 2**20 * 1000}


def notes_of(obj: Obj | None) -> dict[str, str]:
    return ((obj or {}).get("metadata") or {}).get("annotations") or {}


def amount(text: str | None) -> int | None:
    try:
        return None if text is None else milli(text)
    except ValueError:
        return None


def container_usage(pod: Obj, controller: Obj | None, running: int) -> dict[str, Usage]:
    """By container. `running` is how many pods share what the controller says of them all."""
    containers = pod["spec"].get("containers") or []
    own, above = notes_of(pod), notes_of(controller)
    words = {*DEFAULTS}
    for notes in (own, above):
        words |= {key[len(SAID) :].removeprefix("total-").partition(".")[0] for key in notes if key.startswith(SAID)}
    found: dict[str, Usage] = {}
    for container in containers:
        name = container["name"]
        usage = found[name] = {}
        for word in sorted(words):
            said = _said(own, above, word, name, len(containers), running)
            usage[word] = said if said is not None else _presumed(container, word)
    return found


def _said(
    own: dict[str, str], above: dict[str, str], word: str, container: str, containers: int, running: int
) -> int | None:
    for notes in (own, above):
        if (one := amount(notes.get(f"{SAID}{word}.{container}"))) is not None:
            return one
        if (whole := amount(notes.get(SAID + word))) is not None:
            return whole // containers
    if (total := amount(above.get(f"{SAID}total-{word}"))) is not None:
        return total // max(running, 1) // containers
    return None


def _presumed(container: Obj, word: str) -> int:
    if word not in DEFAULTS:
        return 0
    part, otherwise = DEFAULTS[word]
    asked = amount(((container.get("resources") or {}).get("requests") or {}).get(word))
    return asked // part if asked else otherwise


class Usages:
    """The same, asked of the cluster."""

    def __init__(self, workloads: "Workloads") -> None:
        self.workloads = workloads
        self.api = workloads.api

    def controller(self, pod: Obj) -> Obj | None:
        reference = controller_of(pod["metadata"])
        if reference is None:
            return None
        return self.object(reference, pod["metadata"]["namespace"])

    def object(self, reference: Obj, namespace: str) -> Obj | None:
        """What a reference of kind, apiVersion and name points at."""
        resource = self.api.registry.by_kind(reference.get("apiVersion", ""), reference.get("kind", ""))
        if resource is None:
            return None
        where = namespace if resource.namespaced else ""
        record = self.api.store.get((resource.storage, where, reference.get("name", "")))
        return resource.show(record) if record is not None else None

    def of_pod(self, pod: Obj) -> dict[str, Usage]:
        controller = self.controller(pod)
        owner = controller["metadata"]["uid"] if controller else ""
        running = sum(1 for facts in self.workloads.pods.owned_by(owner) if facts.active and facts.phase == "Running")
        return container_usage(pod, controller, running)

    def of_node(self, node: Obj) -> Usage:
        total = dict(NODE_OWN)
        for facts in self.workloads.pods.on_node(node["metadata"]["name"]):
            record = self.api.store.get(("pods", *facts.key)) if facts.phase == "Running" else None
            if record is not None:
                for usage in self.of_pod(record.obj).values():
                    for word, used in usage.items():
                        total[word] = total.get(word, 0) + used
        said = {key[len(SAID) :]: amount(text) for key, text in notes_of(node).items() if key.startswith(SAID)}
        return total | {word: used for word, used in said.items() if used is not None}

    def custom_of_pod(self, pod: Obj, metric: str) -> int | None:
        own = amount(notes_of(pod).get(CUSTOM + metric))
        return own if own is not None else amount(notes_of(self.controller(pod)).get(CUSTOM + metric))

    def custom_of(self, obj: Obj | None, metric: str) -> int | None:
        noted = amount(notes_of(obj).get(CUSTOM + metric))
        if noted is not None:
            return noted
        told = ((obj or {}).get("status") or {}).get("metrics")
        return amount(told.get(metric)) if isinstance(told, dict) else None

    def external(self, namespace: str, metric: str) -> int | None:
        record = self.api.store.get(("namespaces", "", namespace))
        return amount(notes_of(record.obj).get(EXTERNAL + metric)) if record is not None else None
