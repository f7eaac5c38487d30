"""What pods and nodes use, as metrics.k8s.io reports it and autoscalers read it. Nothing is measured: it is declared.

Annotations declare it, on a pod, or on what controls it (a Deployment's annotations reach its ReplicaSets) for each of
its pods; values are Kubernetes quantities, as they would be measured:

    metrics.cloudmatrix.io/cpu: 250m             the pod's use, shared evenly by its containers
    metrics.cloudmatrix.io/cpu.worker: 200m      of one container
    metrics.cloudmatrix.io/memory: 512Mi         the same for memory, and for any other resource
    metrics.cloudmatrix.io/total-cpu: "3"        on what controls the pods: shared evenly by all that run
    custom.metrics.cloudmatrix.io/queue: "17"    a Pods or Object metric: on the pod, its controller or the object
    external.metrics.cloudmatrix.io/queue: "17"  an External metric: on the Namespace

An object may also declare its own metrics in its status: `status.metrics.queue: "17"` is an Object metric.

Where nothing is declared, a container uses a tenth of the CPU and half of the memory it requests, or 5m and 32Mi.
Nodes use what their pods use and a little of their own; annotations on a Node override it.
"""

from typing import Any

from matrixcontainer.kubeapi.meta.quantities import milli

Obj = dict[str, Any]
Usage = dict[str, int]  # resource: thousandths

USAGE_ANNOTATION = "metrics.cloudmatrix.io/"
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
        words |= {
            key[len(USAGE_ANNOTATION) :].removeprefix("total-").partition(".")[0]
            for key in notes
            if key.startswith(USAGE_ANNOTATION)
        }
    found: dict[str, Usage] = {}
    for container in containers:
        name = container["name"]
        usage = found[name] = {}
        for word in sorted(words):
            reported = _annotated(own, above, word, name, len(containers), running)
            usage[word] = reported if reported is not None else _presumed(container, word)
    return found


def _annotated(
    own: dict[str, str], above: dict[str, str], word: str, container: str, containers: int, running: int
) -> int | None:
    for notes in (own, above):
        if (one := amount(notes.get(f"{USAGE_ANNOTATION}{word}.{container}"))) is not None:
            return one
        if (whole := amount(notes.get(USAGE_ANNOTATION + word))) is not None:
            return whole // containers
    if (total := amount(above.get(f"{USAGE_ANNOTATION}total-{word}"))) is not None:
        return total // max(running, 1) // containers
    return None


def _presumed(container: Obj, word: str) -> int:
    if word not in DEFAULTS:
        return 0
    part, otherwise = DEFAULTS[word]
    asked = amount(((container.get("resources") or {}).get("requests") or {}).get(word))
    return asked // part if asked else otherwise
