"""LimitRanges at admission: what containers get that say nothing, and what is too little or too much."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from matrixcontainer.kubeapi.admission.quota_evaluator import Amounts, amounts, pod_totals
from matrixcontainer.kubeapi.builtin.pods import qos_class
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.quantities import amount, spelled
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.registry.writing import AdmissionPlugin
from matrixcontainer.kubeapi.storage.store import Store

Obj = dict[str, Any]

LIMITS = "limitranges"
CLAIMS = "persistentvolumeclaims"
MARK = "kubernetes.io/limit-ranger"
GROUPS = (("containers", "container"), ("initContainers", "init container"))


def apply_limits(store: Store) -> AdmissionPlugin:
    """Fills in defaults of new pods."""

    async def admit(resource: Resource, verb: str, new: Obj | None, old: Obj | None, options: Options) -> None:
        if resource.storage != "pods" or verb != "CREATE" or new is None:
            return
        for record in store.objects_of(LIMITS, new["metadata"].get("namespace", "")):
            fill_in(new, (record.obj.get("spec") or {}).get("limits") or [])

    return admit


def validate_limits(store: Store) -> AdmissionPlugin:
    """Refuses pods and claims outside the bounds."""

    async def validate(resource: Resource, verb: str, new: Obj | None, old: Obj | None, options: Options) -> None:
        storage, sub = resource.storage, options.subresource
        pods = storage == "pods" and verb == "CREATE" and not sub
        if new is None or not (pods or (storage == CLAIMS and not sub)):
            return
        if old is not None and "deletionTimestamp" in old["metadata"]:
            return
        for record in store.objects_of(LIMITS, new["metadata"].get("namespace", "")):
            found = list(dict.fromkeys(mistakes(new, (record.obj.get("spec") or {}).get("limits") or [], pods)))
            if found:
                why = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
                raise errors.forbidden(resource.plural, resource.group, new["metadata"].get("name", ""), why)

    return validate


# ---- defaults


def fill_in(pod: Obj, limits: list[Obj]) -> None:
    """Requests and limits that containers do not state; an annotation says which."""
    request: Obj = {}
    limit: Obj = {}
    for item in limits:
        if item.get("type") == "Container":
            request |= item.get("defaultRequest") or {}
            limit |= item.get("default") or {}
    reported: list[str] = []
    for group, word in GROUPS:
        for container in pod["spec"].get(group) or []:
            resources = container.setdefault("resources", {})
            for side, defaults in (("requests", request), ("limits", limit)):
                missing = {name: text for name, text in defaults.items() if name not in (resources.get(side) or {})}
                if missing:
                    resources[side] = (resources.get(side) or {}) | missing
                    reported.append(f"{', '.join(sorted(missing))} {side[:-1]} for {word} {container['name']}")
    if reported:
        marks = pod["metadata"].setdefault("annotations", {})
        marks[MARK] = f"LimitRanger plugin set: {'; '.join(reported)}"
        pod["status"]["qosClass"] = qos_class(pod["spec"])


# ---- bounds


def mistakes(obj: Obj, limits: list[Obj], pods: bool) -> Iterator[str]:
    for item in limits:
        kind = item.get("type", "")
        if not pods:
            if kind == "PersistentVolumeClaim":
                yield from _claim(item, obj)
        elif kind == "Container":
            for group, _ in GROUPS:
                for container in obj["spec"].get(group) or []:
                    current = container.get("resources") or {}
                    yield from _outside(item, kind, amounts(current.get("requests")), amounts(current.get("limits")))
        elif kind == "Pod":
            spec = obj["spec"]
            yield from _outside(item, kind, pod_totals(spec, "requests"), pod_totals(spec, "limits"))


def _outside(item: Obj, kind: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    yield from _too_little(item, kind, requests, limits)
    for name, text in (item.get("max") or {}).items():
        most, head = amount(text), f"maximum {name} usage per {kind} is {text}"
        if name not in limits:
            yield f"{head}.  No limit is specified"
        elif limits[name][0] > most:
            yield f"{head}, but limit is {spelled(*limits[name])}"
        elif name in requests and requests[name][0] > most:
            yield f"{head}, but request is {spelled(*requests[name])}"
    for name, text in (item.get("maxLimitRequestRatio") or {}).items():
        yield from _ratio(name, text, kind, requests, limits)


def _too_little(item: Obj, kind: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, text in (item.get("min") or {}).items():
        least, head = amount(text), f"minimum {name} usage per {kind} is {text}"
        if name not in requests:
            yield f"{head}.  No request is specified"
        elif requests[name][0] < least:
            yield f"{head}, but request is {spelled(*requests[name])}"
        elif name in limits and limits[name][0] < least:
            yield f"{head}, but limit is {spelled(*limits[name])}"


def _ratio(name: str, text: str, kind: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    head = f"{name} max limit to request ratio per {kind} is {text}, but"
    asked, most = (side.get(name, (Fraction(0), ""))[0] for side in (requests, limits))
    if not asked:
        yield f"{head} no request is specified or request is 0"
    elif not most:
        yield f"{head} no limit is specified or limit is 0"
    elif most / asked > amount(text):
        yield f"{head} provided ratio is {float(most / asked):f}"


def _claim(item: Obj, obj: Obj) -> Iterator[str]:
    requests = amounts(((obj.get("spec") or {}).get("resources") or {}).get("requests"))
    kind = "PersistentVolumeClaim"
    yield from _too_little(item, kind, requests, {})
    for name, text in (item.get("max") or {}).items():
        head = f"maximum {name} usage per {kind} is {text}"
        if name not in requests:
            yield f"{head}.  No request is specified"
        elif requests[name][0] > amount(text):
            yield f"{head}, but request is {spelled(*requests[name])}"
