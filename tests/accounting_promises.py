"""What projects hold and are promised, as REST shows it: reserved once, and within quotas.

A part of the accountant (`tests/accounting.py`), which says when each has to hold.
"""

from __future__ import annotations

from collections.abc import Iterator

from matrixcommon.model.resource_key import project_of
from tests.rest_lists import Item, Lists

DIES = 16
NPUS = DIES // 2
SLACK = 1e-6
"""Rates and amounts are shown to so many places."""


def holds(lists: Lists) -> Iterator[tuple[str, Item, frozenset[int]]]:
    """(allocation, member, dies of its node) of every member."""
    for key, allocation in lists.keyed("allocations").items():
        for member in allocation["members"]:
            whole = member.get("npus") is None and member["role"] != "pool"
            yield key, member, frozenset(range(DIES) if whole else member.get("dies") or ())


def reserved_once(lists: Lists) -> Iterator[str]:
    """What is promised whole to one reservation is promised to no other at that time, nor allocated by who stays."""
    promises = {key: each for key, each in lists.keyed("reservations").items() if each["state"] == "Promised"}
    whole = {key: set(each["nodes"]) for key, each in promises.items() if _asks_whole(each["request"])}
    for key, nodes in whole.items():
        mine = promises[key]
        for other, theirs in promises.items():
            meet = theirs["startsAt"] < mine["endsAt"] and mine["startsAt"] < theirs["endsAt"]
            npus = _asks_npus_alone(theirs["request"])
            if other != key and npus and meet and (twice := nodes & set(theirs["nodes"])):
                yield f"{min(twice)} is promised to reservations {key} and {other} at one time"
        for name, allocation in lists.keyed("allocations").items():
            leaves = allocation.get("expiresAt") is not None and allocation["expiresAt"] <= mine["startsAt"]
            # Sockets and memory may be lent beside NPUs that are promised.
            on = nodes & {member["node"] for member in allocation["members"] if member["role"] != "pool"}
            if on and not leaves and allocation["state"] != "Releasing":
                yield f"{name} stays on {min(on)}, which reservation {key} is promised from {mine['startsAt']}"


def _asks_npus_alone(request: Item) -> bool:
    """Sockets and memory may be promised beside NPUs of others, and the list of nodes does not say where they lie."""
    pools = request.get("cpus") or request.get("memoryGib") or request.get("memoryGibByNode")
    return not pools and (request.get("nodes") is not None or request.get("npus") is not None)


def _asks_whole(request: Item) -> bool:
    return _asks_npus_alone(request) and request.get("nodes") is not None and request.get("npusPerNode") in (None, 8)


def within_quotas(lists: Lists, before: Lists | None) -> Iterator[str]:
    earlier = {} if before is None else {quota["name"]: quota for quota in before["quotas"]}
    for quota in lists["quotas"]:
        name = quota["name"]
        for counted, used in (("npus", "usedNpus"), ("cpus", "usedCpus"), ("memoryGib", "usedMemoryGib")):
            limit, was = quota.get(counted), earlier.get(name, quota)[used]
            if limit is not None and quota[used] > max(limit, was) + SLACK:
                yield f"project {name} holds {quota[used]} {counted} of {limit}"
        members = [
            len(dies) / 2
            for key, member, dies in holds(lists)
            if project_of(key) == name
            and member["role"] != "successor"
            and lists.keyed("allocations")[key]["state"] != "Releasing"
        ]
        has = sum(members) + sum(
            map(npus_promised, (each for each in lists["reservations"] if each["project"] == name))
        )
        if quota["usedNpus"] + SLACK < has:
            yield f"project {name} is counted {quota['usedNpus']} NPUs and holds {has}"


def npus_promised(reservation: Item) -> float:
    """What counts against its project's quota from the promise on, until it is held by an allocation of its name."""
    if reservation["state"] not in ("Promised", "Waiting"):
        return 0.0
    asked = reservation["request"]
    nodes, per = asked.get("nodes"), asked.get("npusPerNode") or NPUS
    members = nodes * per if nodes is not None else asked.get("npus") or 0
    return float(members + NPUS * (asked.get("spares") or 0))
