"""Names and amounts of resources in requests, limits and quotas: which there are and what they may be."""

from collections.abc import Callable, Iterator

from matrixcontainer.kubeapi.builtin.checks import NOT_NEGATIVE, Obj
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.qualified_names import qualified_mistakes
from matrixcontainer.kubeapi.meta.quantities import amount

CONTAINER = ("cpu", "memory", "ephemeral-storage")
COUNTED = (
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
)
QUOTA = (
    *CONTAINER,
    *(f"{side}.{name}" for side in ("requests", "limits") for name in CONTAINER),
    "requests.storage",
    *COUNTED,
)
STANDARD = (*QUOTA, "storage")
HUGE_PAGES = "hugepages-"
WHOLE = "must be an integer"


def is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    return not is_native(name) and not name.startswith("requests.") and not qualified_mistakes(f"requests.{name}")


def may_overcommit(name: str) -> bool:
    return is_native(name) and not name.startswith(HUGE_PAGES)


def check_name(name: str, path: str) -> list[Cause]:
    found = [errors.invalid(path, errors.Spelled(name), why) for why in qualified_mistakes(name)]
    if not found and "/" not in name and name not in STANDARD and not name.startswith(HUGE_PAGES):
        found.append(errors.invalid(path, errors.Spelled(name), "must be a standard resource type or fully qualified"))
    return found


def check_container_name(name: str, path: str) -> list[Cause]:
    found = check_name(name, path)
    if "/" not in name:
        if name not in CONTAINER and not name.startswith(HUGE_PAGES):
            found.append(errors.invalid(path, errors.Spelled(name), "must be a standard resource for containers"))
    elif not is_native(name) and not is_extended(name):
        found.append(errors.invalid(path, errors.Spelled(name), "doesn't follow extended resource name standard"))
    return found


def check_quota_name(name: str, path: str) -> list[Cause]:
    found = check_name(name, path)
    known = name in QUOTA or name.startswith((HUGE_PAGES, f"requests.{HUGE_PAGES}"))
    if "/" not in name and not known:
        found.append(errors.invalid(path, errors.Spelled(name), "must be a standard resource for quota"))
    return found


def check_amount(name: str, text: str, path: str) -> Iterator[Cause]:
    number = amount(text)
    if number < 0:
        yield errors.invalid(path, text, NOT_NEGATIVE)
    if (name in COUNTED or is_extended(name)) and number.denominator != 1:
        yield errors.invalid(path, text, WHOLE)


def check_list(current: Obj, path: str, check: Callable[[str, str], list[Cause]]) -> Iterator[Cause]:
    for name, text in current.items():
        where = f"{path}[{name}]"
        yield from check(name, where)
        yield from check_amount(name, text, where)


def requirements(value: Obj, path: str) -> Iterator[Cause]:
    """Requests and limits of a container; what cannot be shared must be asked for exactly."""
    limits, requests = value.get("limits") or {}, value.get("requests") or {}
    yield from check_list(limits, f"{path}.limits", check_container_name)
    yield from check_list(requests, f"{path}.requests", check_container_name)
    for name, text in requests.items():
        where = f"{path}.requests"
        if name not in limits:
            if not may_overcommit(name):
                yield errors.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif amount(text) != amount(limits[name]) and not may_overcommit(name):
            yield errors.invalid(where, text, f"must be equal to {name} limit of {limits[name]}")
        elif amount(text) > amount(limits[name]):
            yield errors.invalid(where, text, f"must be less than or equal to {name} limit of {limits[name]}")
