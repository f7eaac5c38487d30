"""Resource usage of pods and nodes, for metrics.k8s.io and autoscalers. It is declared, not measured.

Annotations declare it, on a pod or, for each of its pods, on the pod's controller (a Deployment's annotations are
copied to its ReplicaSets). Values are Kubernetes quantities:

    metrics.cloudmatrix.io/cpu: 250m             usage of the pod, split evenly among its containers
    metrics.cloudmatrix.io/cpu.worker: 200m      usage of one container
    metrics.cloudmatrix.io/memory: 512Mi         likewise for memory, and for any other resource
    metrics.cloudmatrix.io/total-cpu: "3"        on the controller: split evenly among all running pods
    custom.metrics.cloudmatrix.io/queue: "17"    a Pods or Object metric: on the pod, its controller or the object
    external.metrics.cloudmatrix.io/queue: "17"  an External metric: on the Namespace

An object may also declare its own metrics in its status: `status.metrics.queue: "17"` is an Object metric.

By default a container uses a tenth of the CPU and half of the memory that it requests, or 5m and 32Mi. A node uses what
its pods use plus a little of its own; annotations on the Node override it.
"""

from typing import Any

from matrixcontainer.kubeapi.meta.quantities import milli

Obj = dict[str, Any]
Usage = dict[str, int]  # resource: milli-units

USAGE_ANNOTATION = "metrics.cloudmatrix.io/"
CUSTOM = "custom.metrics.cloudmatrix.io/"
EXTERNAL = "external.metrics.cloudmatrix.io/"
DEFAULTS = {"cpu": (10, 5), "memory": (2, 32 * 2**20 * 1000)}  # divisor of the request; usage without a request
SYSTEM_USAGE = {"cpu": 100, "memory": 512 * 2**20 * 1000}


def object_annotations(obj: Obj | None) -> dict[str, str]:
    return ((obj or {}).get("metadata") or {}).get("annotations") or {}


def parse_usage(text: str | None) -> int | None:
    try:
        return None if text is None else milli(text)
    except ValueError:
        return None


def container_usage(pod: Obj, controller: Obj | None, running: int) -> dict[str, Usage]:
    """Usage by container. `running` is the number of pods that share the controller's totals."""
    containers = pod["spec"].get("containers") or []
    own, inherited = object_annotations(pod), object_annotations(controller)
    resources = {*DEFAULTS}
    for annotations in (own, inherited):
        resources |= {
            key[len(USAGE_ANNOTATION) :].removeprefix("total-").partition(".")[0]
            for key in annotations
            if key.startswith(USAGE_ANNOTATION)
        }
    usage_by_container: dict[str, Usage] = {}
    for container in containers:
        name = container["name"]
        usage = usage_by_container[name] = {}
        for resource in sorted(resources):
            declared = _declared_usage(own, inherited, resource, name, len(containers), running)
            usage[resource] = declared if declared is not None else _default_usage(container, resource)
    return usage_by_container


def _declared_usage(
    own: dict[str, str], inherited: dict[str, str], resource: str, container: str, containers: int, running: int
) -> int | None:
    for annotations in (own, inherited):
        if (exact := parse_usage(annotations.get(f"{USAGE_ANNOTATION}{resource}.{container}"))) is not None:
            return exact
        if (whole := parse_usage(annotations.get(USAGE_ANNOTATION + resource))) is not None:
            return whole // containers
    if (total := parse_usage(inherited.get(f"{USAGE_ANNOTATION}total-{resource}"))) is not None:
        return total // max(running, 1) // containers
    return None


def _default_usage(container: Obj, resource: str) -> int:
    if resource not in DEFAULTS:
        return 0
    part, otherwise = DEFAULTS[resource]
    asked = parse_usage(((container.get("resources") or {}).get("requests") or {}).get(resource))
    return asked // part if asked else otherwise
