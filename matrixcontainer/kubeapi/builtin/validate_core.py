"""What may be wrong with quotas, limit ranges, volumes, claims, classes, slices and budgets; and what never changes."""

import re
from collections.abc import Iterator

from matrixcontainer.kubeapi.builtin.checks import (
    Obj,
    among,
    join,
    named,
    needed,
    rules,
)
from matrixcontainer.kubeapi.builtin.resource_names import (
    QUOTA,
    check_amount,
    check_container_name,
    check_list,
    check_name,
    check_quota_name,
    may_overcommit,
)
from matrixcontainer.kubeapi.builtin.validate_pods import EFFECTS, PREEMPTION
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.names import is_label, is_subdomain
from matrixcontainer.kubeapi.meta.qualified_names import qualified_mistake
from matrixcontainer.kubeapi.meta.quantities import amount

# ---- quotas and limits

QUOTA_SCOPES = (
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
)
CONFLICTS = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))


COMPUTE = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")


def quota_spec(spec: Obj, path: str) -> Iterator[Cause]:
    yield from check_list(spec.get("hard") or {}, f"{path}.hard", check_quota_name)
    scopes = spec.get("scopes") or []
    reported, where = scopes, "scopes"
    yield from (
        errors.invalid(f"{path}.{where}", reported, "unsupported scope") for one in scopes if one not in QUOTA_SCOPES
    )
    for scope in scopes:
        fitting = QUOTA if scope not in QUOTA_SCOPES else ("pods",) if scope == "BestEffort" else ("pods", *COMPUTE)
        for name in spec.get("hard") or {}:
            if name in QUOTA and name not in fitting:
                yield errors.invalid(f"{path}.{where}", reported, "unsupported scope applied to resource")
    for pair in CONFLICTS:
        if set(pair) <= set(scopes):
            yield errors.invalid(f"{path}.{where}", reported, "conflicting scopes")


LIMIT_PARTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")


def limit_types(spec: Obj, path: str) -> Iterator[Cause]:
    seen = set()
    for index, item in enumerate(spec.get("limits") or []):
        kind = item.get("type", "")
        if kind in seen:
            yield errors.duplicate(f"{path}.limits[{index}].type", kind)
        seen.add(kind)


def limit_item(item: Obj, path: str) -> Iterator[Cause]:
    kind = item.get("type", "")
    yield from (errors.invalid(f"{path}.type", kind, why) for why in [qualified_mistake(kind)] if why)
    check = check_container_name if kind in ("Container", "Pod") else check_name
    for part in LIMIT_PARTS:
        if kind == "Pod" and part.startswith("default"):
            if item.get(part):
                yield errors.forbidden_field(f"{path}.{part}", "may not be specified when `type` is 'Pod'")
            continue
        for name in item.get(part) or {}:
            yield from check(name, f"{path}.{part}[{name}]")
    if kind == "PersistentVolumeClaim" and not any("storage" in (item.get(part) or {}) for part in ("min", "max")):
        why = "either minimum or maximum storage value is required, but neither was provided"
        yield errors.required(f"{path}.limits", why)
    yield from limit_order(item, path)


ORDER = (  # (smaller part, greater part, part the mistake is reported for, its text, which value is shown)
    ("min", "max", "min", "min value {} is greater than max value {}", 0),
    ("min", "defaultRequest", "defaultRequest", "min value {} is greater than default request value {}", 1),
    ("defaultRequest", "max", "defaultRequest", "default request value {} is greater than max value {}", 0),
    (
        "defaultRequest",
        "default",
        "defaultRequest",
        "default request value {} is greater than default limit value {}",
        0,
    ),
    ("min", "default", "default", "min value {} is greater than default value {}", 0),
    ("default", "max", "default", "default value {} is greater than max value {}", 1),
)


def limit_order(item: Obj, path: str) -> Iterator[Cause]:
    """The parts of a limit stand in order."""
    for low, high, message, text, shown in ORDER:
        least, most = item.get(low) or {}, item.get(high) or {}
        for name in sorted(set(least) & set(most)):
            if amount(least[name]) > amount(most[name]):
                value = (least, most)[shown][name]
                yield errors.invalid(f"{path}.{message}[{name}]", value, text.format(least[name], most[name]))
    for name, ratio in (item.get("maxLimitRequestRatio") or {}).items():
        if amount(ratio) < 1:
            yield errors.invalid(f"{path}.maxLimitRequestRatio[{name}]", ratio, f"ratio {ratio} is less than 1")
    default, request = item.get("default") or {}, item.get("defaultRequest") or {}
    for name in sorted(set(default) & set(request)):
        if not may_overcommit(name) and amount(default[name]) != amount(request[name]):
            why = f"default value {default[name]} must equal to defaultRequest value {request[name]} in {name}"
            yield errors.invalid(f"{path}.defaultRequest[{name}]", request[name], why)


rules("core.v1.ResourceQuotaSpec", quota_spec)
rules("core.v1.LimitRangeSpec", limit_types)
rules("core.v1.LimitRangeItem", limit_item)

# ---- volumes, claims, classes

ACCESS_MODES = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]
VOLUME_MODES = ("Block", "Filesystem")
RECLAIM = ("Delete", "Recycle", "Retain")


def _modes(spec: Obj, path: str, missing: str) -> Iterator[Cause]:
    modes, where = spec.get("accessModes") or [], f"{path}.accessModes"
    if not modes:
        yield errors.required(where, missing)
    yield from (errors.not_supported(where, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES)
    known = set(modes) & set(ACCESS_MODES)
    if "ReadWriteOncePod" in known and len(known) > 1:
        yield errors.forbidden_field(where, "may not use ReadWriteOncePod with other access modes")


def claim_spec(spec: Obj, path: str) -> Iterator[Cause]:
    yield from _modes(spec, path, "at least 1 access mode is required")
    asked = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    where = f"{path}.resources[storage]"
    if asked is None:
        yield errors.required(where)
    elif amount(asked) <= 0:
        yield errors.invalid(where, asked, "must be greater than zero")


def volume_spec(spec: Obj, path: str) -> Iterator[Cause]:
    yield from _modes(spec, path, "")
    capacity = spec.get("capacity") or {}
    if not capacity:
        yield errors.required(f"{path}.capacity")
    elif set(capacity) != {"storage"}:
        yield errors.not_supported(f"{path}.capacity", errors.go_map(capacity), ["storage"])
    for name, text in capacity.items():
        yield from check_amount(name, text, f"{path}.capacity[{name}]")
        if not amount(text):
            yield errors.invalid(f"{path}.capacity[{name}]", text, "must be greater than zero")
    beside = ("capacity", "accessModes", "claimRef", "persistentVolumeReclaimPolicy", "storageClassName")
    further = ("mountOptions", "volumeMode", "nodeAffinity", "volumeAttributesClassName")
    if not any(spec[key] is not None for key in spec if key not in (*beside, *further)):
        yield errors.required(path, "must specify a volume type")


def provisioner(value: Obj, path: str) -> Iterator[Cause]:
    current = value.get("provisioner", "")
    if not current:
        yield errors.required("provisioner")
    elif why := qualified_mistake(current.lower()):
        yield errors.invalid("provisioner", current.lower(), why)


rules(
    "core.v1.PersistentVolumeClaimSpec",
    claim_spec,
    named("storageClassName", is_subdomain),
    among("volumeMode", *VOLUME_MODES),
)
rules(
    "core.v1.PersistentVolumeSpec",
    volume_spec,
    named("storageClassName", is_subdomain),
    among("volumeMode", *VOLUME_MODES),
    among("persistentVolumeReclaimPolicy", *RECLAIM),
)
rules(
    "storage.v1.StorageClass",
    provisioner,
    among("reclaimPolicy", "Delete", "Retain"),
    among("volumeBindingMode", "Immediate", "WaitForFirstConsumer", needed=True),
)
rules("node.v1.RuntimeClass", needed("handler"), named("handler", is_label))
rules("scheduling.v1.PriorityClass", among("preemptionPolicy", *PREEMPTION))

# ---- nodes

rules("core.v1.Taint", needed("key"), named("key", qualified_mistake), among("effect", *EFFECTS, needed=True))

# ---- budgets

PERCENT = re.compile(r"^[0-9]+%$")
PERCENT_TEXT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)
BOUNDS = ("minAvailable", "maxUnavailable")


def share(current: int | str | None, path: str) -> Iterator[Cause]:
    """A count, or a percentage of at most a hundred."""
    if isinstance(current, str):
        if not PERCENT.match(current):
            yield errors.invalid(path, current, PERCENT_TEXT)
        elif int(current[:-1]) > 100:
            yield errors.invalid(path, current, "must not be greater than 100%")
    elif current is not None and current < 0:
        yield errors.invalid(path, current, "must be greater than or equal to 0")


def budget_spec(spec: Obj, path: str) -> Iterator[Cause]:
    if all(spec.get(key) is not None for key in BOUNDS):
        yield errors.invalid(path, spec, "minAvailable and maxUnavailable cannot be both set")
    for key in BOUNDS:
        yield from share(spec.get(key), join(path, key))


rules(
    "policy.v1.PodDisruptionBudgetSpec",
    budget_spec,
    among("unhealthyPodEvictionPolicy", "AlwaysAllow", "IfHealthyBudget"),
)

# ---- what never changes

FIXED = "field is immutable"
IMMUTABLE: dict[str, dict[str, str]] = {  # type: {path: why}; a path that ends in ! is forbidden, not invalid
    "storage.v1.StorageClass": {
        "parameters!": "updates to parameters are forbidden.",
        "provisioner!": "updates to provisioner are forbidden.",
        "reclaimPolicy!": "updates to reclaimPolicy are forbidden.",
        "volumeBindingMode": FIXED,
    },
    "scheduling.v1.PriorityClass": {"value!": "may not be changed in an update.", "preemptionPolicy": FIXED},
    "node.v1.RuntimeClass": {"handler": FIXED},
    "discovery.v1.EndpointSlice": {"addressType": FIXED},
    "networking.v1.IngressClass": {"spec.controller": FIXED},
    "core.v1.ResourceQuota": {"spec.scopes": FIXED},
}


def changes(new: Obj, old: Obj, name: str) -> Iterator[Cause]:
    """What an update of a kind may not touch and does."""
    for word, why in IMMUTABLE.get(name, {}).items():
        path, before, after = word.rstrip("!"), old, new
        for key in path.split("."):
            before, after = (before or {}).get(key), (after or {}).get(key)  # type: ignore[assignment]
        if before != after:
            yield errors.forbidden_field(path, why) if word.endswith("!") else errors.invalid(path, after, why)
