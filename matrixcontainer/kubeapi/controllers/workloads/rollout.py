"""Rollout decisions of Deployments, as pure functions.

`RolloutSets` has the ReplicaSet of the current template and the old ones. Sizes change one step at a time: the new set
grows within maxSurge, the old ones shrink while enough pods stay available. The caller applies a step and continues
once the pods have followed."""

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any

from matrixcontainer.kubeapi.builtin.pods import default_pod_spec
from matrixcontainer.kubeapi.meta.quantities import parse_int
from matrixcontainer.kubeapi.schema.structural import copy_json

Obj = dict[str, Any]

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"
NOT_COPIED = {
    "kubectl.kubernetes.io/last-applied-configuration",
    "deprecated.deployment.rollback.to",
    REVISION,
    REVISION_HISTORY,
    DESIRED,
    MAXIMUM,
}
SAFE_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


# ---- templates


def comparable_template(template: Obj) -> Obj:
    """The template without the hash label and with defaults, for comparison."""
    plain = copy_json(template)
    meta = plain.get("metadata") or {}
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if key != HASH_LABEL}
    plain["metadata"] = {k: v for k, v in meta.items() if k not in ("labels", "creationTimestamp") and v}
    plain["metadata"]["labels"] = labels
    default_pod_spec(plain.setdefault("spec", {}))
    return plain


def template_hash(template: Obj, collisions: int) -> str:
    """A short hash of the template; `collisions` varies it if the name is taken."""
    import orjson

    text = orjson.dumps(comparable_template(template), option=orjson.OPT_SORT_KEYS) + (
        b"#%d" % collisions if collisions else b""
    )
    number = int.from_bytes(hashlib.sha256(text).digest()[:4], "big")
    return "".join(SAFE_LETTERS[ord(digit) % len(SAFE_LETTERS)] for digit in str(number))


# ---- sizes


def desired_size(rs: Obj) -> int:
    return int(rs["spec"].get("replicas") or 0)


def available_size(rs: Obj) -> int:
    return int((rs.get("status") or {}).get("availableReplicas", 0))


def int_or_percent(value: Any, total: int, up: bool) -> int:
    """A number, or a percentage of the total, rounded up or down; other strings count as 0."""
    if isinstance(value, str) and not value.removesuffix("%").isdecimal():
        return 0
    if isinstance(value, str) and value.endswith("%"):
        exact = int(value[:-1]) * total / 100
        return math.ceil(exact) if up else math.floor(exact)
    return int(value or 0)


def surge_and_unavailable(deployment: Obj) -> tuple[int, int]:
    """(maxSurge, maxUnavailable) in pods; never both zero in a rolling update."""
    strategy = deployment["spec"].get("strategy") or {}
    wanted = desired_size(deployment)
    if strategy.get("type") != "RollingUpdate":
        return 0, 0
    rolling = strategy.get("rollingUpdate") or {}
    surge = int_or_percent(rolling.get("maxSurge"), wanted, up=True)
    unavailable = int_or_percent(rolling.get("maxUnavailable"), wanted, up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, wanted)


@dataclass
class RolloutSets:
    new: Obj | None
    old: list[Obj] = field(default_factory=list)

    @property
    def all(self) -> list[Obj]:
        return ([self.new] if self.new else []) + self.old

    @property
    def active(self) -> list[Obj]:
        return sorted((rs for rs in self.all if desired_size(rs) > 0), key=_by_age)


def _by_age(rs: Obj) -> tuple[str, str]:
    return rs["metadata"].get("creationTimestamp", ""), rs["metadata"]["name"]


def revision_of(obj: Obj) -> int:
    text = (obj["metadata"].get("annotations") or {}).get(REVISION, "0")
    return parse_int(text)


def split_by_template(deployment: Obj, replica_sets: list[Obj]) -> RolloutSets:
    """Split the sets: the oldest one with the current template is the new one."""
    wanted = comparable_template(deployment["spec"]["template"])
    ordered = sorted(replica_sets, key=_by_age)
    new = next((rs for rs in ordered if comparable_template(rs["spec"]["template"]) == wanted), None)
    return RolloutSets(new, [rs for rs in ordered if rs is not new])


def new_set_size(deployment: Obj, sets: RolloutSets) -> int:
    """The size that the new set may have now."""
    wanted = desired_size(deployment)
    current = desired_size(sets.new) if sets.new else 0
    if (deployment["spec"].get("strategy") or {}).get("type") == "Recreate":
        return wanted
    if current >= wanted:
        return wanted
    total = sum(map(desired_size, sets.all))
    room = wanted + surge_and_unavailable(deployment)[0] - total
    return current + max(min(room, wanted - current), 0)


def old_set_sizes(deployment: Obj, sets: RolloutSets) -> dict[str, int]:
    """New sizes of old sets, by name: remove unhealthy pods first, then healthy ones within maxUnavailable."""
    sizes = {rs["metadata"]["name"]: desired_size(rs) for rs in sets.old}
    if not any(sizes.values()):
        return {}
    min_available = desired_size(deployment) - surge_and_unavailable(deployment)[1]
    new_missing = desired_size(sets.new) - available_size(sets.new) if sets.new else 0
    removable = sum(map(desired_size, sets.all)) - min_available - new_missing
    if removable <= 0:
        return {}
    for rs in sets.old:
        unhealthy = min(max(desired_size(rs) - available_size(rs), 0), removable)
        sizes[rs["metadata"]["name"]] -= unhealthy
        removable -= unhealthy
    spare = sum(map(available_size, sets.all)) - min_available
    for rs in sets.old:
        removed = min(sizes[rs["metadata"]["name"]], max(spare, 0))
        sizes[rs["metadata"]["name"]] -= removed
        spare -= removed
    return {
        rs["metadata"]["name"]: sizes[rs["metadata"]["name"]]
        for rs in sets.old
        if sizes[rs["metadata"]["name"]] != desired_size(rs)
    }


def proportional_sizes(deployment: Obj, sets: RolloutSets) -> dict[str, int]:
    """New sizes after the desired number changed: a single active set takes all of it, several share in proportion."""
    wanted = desired_size(deployment)
    active = sets.active
    if len(active) <= 1:
        only = active[0] if active else sets.new or (sets.old[-1] if sets.old else None)
        return {only["metadata"]["name"]: wanted} if only is not None and desired_size(only) != wanted else {}
    if sets.new is not None and desired_size(sets.new) == wanted == available_size(sets.new):
        return {rs["metadata"]["name"]: 0 for rs in sets.old if desired_size(rs)}
    surge, _ = surge_and_unavailable(deployment)
    if (deployment["spec"].get("strategy") or {}).get("type") != "RollingUpdate":
        return {}
    to_add = (wanted + surge if wanted > 0 else 0) - sum(map(desired_size, active))
    ordered = sorted(active, key=lambda rs: (-desired_size(rs), _by_age(rs)))
    if to_add > 0:
        ordered = sorted(sorted(active, key=_by_age, reverse=True), key=lambda rs: -desired_size(rs))
    sizes, added = {}, 0
    for rs in ordered:
        part = _proportion(deployment, rs, to_add, added) if to_add else 0
        sizes[rs["metadata"]["name"]] = desired_size(rs) + part
        added += part
    first = ordered[0]["metadata"]["name"]
    sizes[first] = max(sizes[first] + to_add - added, 0)
    return {
        rs["metadata"]["name"]: sizes[rs["metadata"]["name"]]
        for rs in active
        if sizes[rs["metadata"]["name"]] != desired_size(rs)
    }


def _proportion(deployment: Obj, rs: Obj, to_add: int, added: int) -> int:
    wanted, current = desired_size(deployment), desired_size(rs)
    if current == 0 or to_add == added:
        return 0
    if wanted == 0:
        fraction = -current
    else:
        text = (rs["metadata"].get("annotations") or {}).get(MAXIMUM, "")
        before = parse_int(text) or (deployment.get("status") or {}).get("replicas") or wanted
        fraction = math.floor(current * (wanted + surge_and_unavailable(deployment)[0]) / before + 0.5) - current
    allowed = to_add - added
    return min(fraction, allowed) if to_add > 0 else max(fraction, allowed)


def spec_changed(deployment: Obj, sets: RolloutSets) -> bool:
    """Whether the active sets were last scaled for a different number of replicas."""
    wanted = str(desired_size(deployment))
    current = [(rs["metadata"].get("annotations") or {}).get(DESIRED) for rs in sets.active]
    return any(text is not None and text != wanted for text in current)


def sets_to_delete(deployment: Obj, sets: RolloutSets) -> list[Obj]:
    """Old empty sets beyond revisionHistoryLimit, oldest revision first."""
    limit = deployment["spec"].get("revisionHistoryLimit")
    if limit is None:
        return []
    old = sorted((rs for rs in sets.old if "deletionTimestamp" not in rs["metadata"]), key=revision_of)
    surplus = old[: max(len(old) - limit, 0)]
    return [rs for rs in surplus if _is_empty(rs)]


def _is_empty(rs: Obj) -> bool:
    status = rs.get("status") or {}
    observed = rs["metadata"].get("generation", 0) <= status.get("observedGeneration", 0)
    return desired_size(rs) == 0 and status.get("replicas", 0) == 0 and observed
