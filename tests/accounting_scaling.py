"""What must hold of scaling policies, wherever they are listed."""

from __future__ import annotations

from collections.abc import Iterator

from matrixcommon.model.resource_key import resolve
from tests.rest_lists import Item, Lists


def scale_owners(lists: Lists) -> Iterator[str]:
    """An instance has at most one policy, and each of the two names the other."""
    if "scaling-policies" not in lists.of:
        return
    owners: dict[str, str] = {}
    for key, policy in lists.keyed("scaling-policies").items():
        other = owners.setdefault(_target(policy), key)
        if other != key:
            yield f"scaling policies {other} and {key} both own the scale of {_target(policy)}"
    for key, instance in lists.keyed("instances").items():
        named = instance.get("scalingPolicy")
        shown = None if named is None else resolve(named, instance["project"])
        if shown != owners.get(key):
            yield f"instance {key} says it is scaled by {shown}, policies say by {owners.get(key)}"


def within_bounds(lists: Lists) -> Iterator[str]:
    """Once nothing is under way, what is scaled has a size that its policy allows, unless that cannot decide."""
    instances = lists.keyed("instances")
    for key, policy in lists.keyed("scaling-policies").items():
        target = instances.get(_target(policy))
        if target is None or target["state"] != "Active" or not _decides(policy):
            continue
        if not policy["minReplicas"] <= target["nodes"] <= policy["maxReplicas"]:
            bounds = f"{policy['minReplicas']} to {policy['maxReplicas']}"
            yield f"{_target(policy)} has {target['nodes']} nodes, and {key} allows {bounds}: {policy['message']}"


def _target(policy: Item) -> str:
    return resolve(policy["scaleTargetRef"]["name"], policy["project"])


def _decides(policy: Item) -> bool:
    """Whether it has looked, and had what it needs to decide. What it decided may not fit: then it is asked for."""
    return any(each["type"] == "ScalingActive" and each["status"] == "True" for each in policy["conditions"])
