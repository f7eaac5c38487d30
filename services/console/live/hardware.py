"""The data of nodes and allocations that the page needs, with the state of each NPU as one letter.

Letters are sent instead of words: 384 of them are a supernode. The page's legend corresponds to `MEANINGS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from matrixresource.nodes.fault_levels import level_named

FREE, ALLOCATED, SPARE, CHANGING, OUT, DEGRADED, FAULTY = "f", "h", "s", "c", "o", "d", "x"
MEANINGS = {
    FREE: "free",
    ALLOCATED: "held",
    SPARE: "spare",
    CHANGING: "changing",
    OUT: "out of service",
    DEGRADED: "degraded",
    FAULTY: "faulty",
}

_NPU = re.compile(r"npu(\d+)")
_IN_USE = frozenset({"Active", "Deploying", "Reserved", "Draining"})
_OUT = frozenset({"Servicing", "Quarantined", "Retired", "Manageable"})


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as the page draws it. `faulty` are NPU numbers; texts that could name a holder are left out."""

    supernode: str
    cabinet: str
    npus: int
    letter: str
    faulty: frozenset[int]
    alert: str
    since: str


def node_state(view: dict[str, Any]) -> NodeState:
    faults = [
        each for each in view.get("faults", ()) if each.get("active") and not level_named(each["level"]).schedulable
    ]
    numbers = [_NPU.match(each["component"]) for each in faults]
    faulty = frozenset(int(found[1]) for found in numbers if found)
    return NodeState(
        supernode=view["supernode"],
        cabinet=view["cabinet"],
        npus=view["npus"],
        letter=_letter(view, only_npus=bool(faulty) and all(numbers)),
        faulty=faulty,
        alert=_alert(view, faults),
        since=view.get("stateSince") or view["updatedAt"],
    )


def _letter(view: dict[str, Any], only_npus: bool) -> str:
    """The letter of the node as a whole. `only_npus`: all of its faults are on known NPUs."""
    state = view["state"]
    if state in _OUT:
        return OUT
    lost = view["agent"] == "Lost" and state != "Enrolled"
    if lost or (view["health"] == "Unhealthy" and not only_npus):
        return FAULTY
    if view["health"] == "SubHealthy" or view["health"] == "Unhealthy" or view["agent"] == "Stale":
        return DEGRADED
    if view.get("cordonedBy"):
        return OUT
    if state == "Available":
        return FREE
    if state == "Spare":
        return SPARE
    return ALLOCATED if state == "Active" else CHANGING


def _alert(view: dict[str, Any], faults: list[dict[str, Any]]) -> str:
    """The alert about a node; empty if it needs no attention."""
    if view["state"] == "Enrolled":
        return ""
    if view["agent"] == "Lost":
        return "its agent is silent"
    if faults:
        worst = faults[0]
        return f"{worst['component']} raised {worst['code']} ({worst['level']})"
    if view["health"] in ("Unhealthy", "SubHealthy"):
        return f"it is {view['health']}"
    return "it is quarantined" if view["state"] == "Quarantined" else ""


@dataclass(frozen=True, slots=True)
class Holding:
    """What an allocation holds: for each node, None for all of it, else NPU numbers; `spares` are its spare nodes."""

    nodes: tuple[tuple[str, tuple[int, ...] | None], ...]
    spares: frozenset[str]


def holding(view: dict[str, Any]) -> Holding:
    nodes, spares = [], set()
    for member in view.get("members", ()):
        dies = member.get("dies")
        if member["role"] == "spare":
            spares.add(member["node"])
        if member["role"] == "pool":
            continue  # sockets and memory, without NPUs
        nodes.append((member["node"], tuple(sorted({die // 2 for die in dies})) if dies else None))
    return Holding(tuple(nodes), frozenset(spares))


def letters(node: NodeState, spare: bool) -> Iterator[str]:
    """The letter of each NPU of a node."""
    letter = SPARE if spare and node.letter == FREE else node.letter
    for number in range(node.npus):
        yield FAULTY if number in node.faulty else letter
