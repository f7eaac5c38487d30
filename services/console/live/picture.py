"""The picture: one JSON document that is all the page shows live, drawn for one audience.

An audience is a project, or EVERY_PROJECT for those who see all. Physical things are in everybody's picture; who holds
them only in the holder's and in EVERY_PROJECT's, to others it is TAKEN. The document holds no null, so that a merge
patch can say what is gone.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import Any

from matrixcommon.api.authorization import EVERY_PROJECT, TAKEN
from services.console.live.collector import Collector, Event
from services.console.live.hardware import ALLOCATED, CHANGING, DEGRADED, FAULTY, FREE, OUT, SPARE, letters

EVENTS_SHOWN = 40
WORD = {FREE: "free", ALLOCATED: "held", SPARE: "spare", CHANGING: "changing", OUT: "out", DEGRADED: "degraded"}
WORD[FAULTY] = "faulty"


def picture(known: Collector, audience: str) -> dict[str, Any]:
    """What that audience may see of what is known."""
    holders = _holders(known, audience)
    supernodes = _supernodes(known, holders)
    return {
        "time": known.pace,
        "services": known.services,
        "capacity": _capacity(known),
        "counts": _counts(supernodes),
        "planes": {
            each["name"]: {"down": each["linksDown"], "degraded": each["linksDegraded"]} for each in known.planes
        },
        "supernodes": supernodes,
        "instances": {
            _key(project, name): {"project": project, "name": name, **asdict(state)}
            for (project, name), state in sorted(known.instances.items.items())
            if _sees(audience, project)
        },
        "alerts": _alerts(known, audience),
        "events": _events(known, audience),
    }


def _sees(audience: str, project: str) -> bool:
    return audience in (EVERY_PROJECT, project)


def _key(project: str, name: str) -> str:
    return f"{project}/{name}"


Holders = dict[str, list[tuple[str, tuple[int, ...] | None, bool]]]
"""By node: who holds it, which of its NPUs (None: all), and whether as a spare."""


def _holders(known: Collector, audience: str) -> Holders:
    found: Holders = defaultdict(list)
    for (project, name), allocation in known.allocations.items.items():
        shown = _key(project, name) if _sees(audience, project) else TAKEN
        for node, npus in allocation.nodes:
            found[node].append((shown, npus, node in allocation.spares))
    return found


def _supernodes(known: Collector, holders: Holders) -> dict[str, Any]:
    """By name: cabinets with their nodes, a letter for each NPU, and by node who holds it (one name, or one for
    each NPU where it is shared)."""
    found: dict[str, Any] = {}
    for (_, node), state in sorted(known.nodes.items.items()):
        shown = found.setdefault(state.supernode, {"cabinets": {}, "states": {}, "holders": {}})
        shown["cabinets"].setdefault(state.cabinet, []).append(node)
        parts = holders.get(node, ())
        each = list(letters(state, any(spare for _, _, spare in parts)))
        for _, npus, _ in parts:
            for number in npus or ():
                if number < state.npus and each[number] == FREE:
                    each[number] = ALLOCATED
        shown["states"][node] = "".join(each)
        if parts:
            shown["holders"][node] = _holder(parts, state.npus)
    return found


def _holder(parts: list[tuple[str, tuple[int, ...] | None, bool]], npus: int) -> str | list[str]:
    if any(part is None for _, part, _ in parts):
        return next(name for name, part, _ in parts if part is None)
    each = [""] * npus
    for name, part, _ in parts:
        for number in part or ():
            each[number] = name
    return each


def _counts(supernodes: dict[str, Any]) -> dict[str, int]:
    counts = dict.fromkeys(("npus", *WORD.values()), 0)
    for shown in supernodes.values():
        for each in shown["states"].values():
            counts["npus"] += len(each)
            for letter in set(each):
                counts[WORD[letter]] += each.count(letter)
    return counts


def _capacity(known: Collector) -> dict[str, Any]:
    """The largest block of free nodes in one cabinet, in one supernode and in all, and by supernode."""
    if not known.capacity:
        return {}
    return {
        "largestBlock": known.capacity["largestBlock"],
        "supernodes": {each["domain"]: each["largestBlock"] for each in known.capacity["supernodes"]},
        "closed": {
            each["domain"]: each["state"]
            for each in (*known.capacity["supernodes"], *known.capacity["cabinets"])
            if each["state"] != "Open"
        },
    }


def _alerts(known: Collector, audience: str) -> dict[str, Any]:
    """What somebody should look at, by what it is about."""
    found: dict[str, Any] = {}
    for service, answers in known.services.items():
        if not answers:
            found[f"service {service}"] = {"kind": "service", "name": service, "message": "it does not answer"}
    for (_, name), node in known.nodes.items.items():
        if node.alert:
            found[f"node {name}"] = {"kind": "node", "name": name, "message": node.alert, "since": node.since}
    for plane in known.planes:
        if plane["linksDown"] or plane["linksDegraded"]:
            message = f"{plane['linksDown']} links down, {plane['linksDegraded']} degraded"
            found[f"plane {plane['name']}"] = {"kind": "plane", "name": plane["name"], "message": message}
    for (project, name), instance in known.instances.items.items():
        if instance.trouble and _sees(audience, project):
            key = _key(project, name)
            alert = {"kind": "instance", "name": key, "message": instance.trouble, "since": instance.since}
            found[f"instance {key}"] = alert
    return found


def _events(known: Collector, audience: str) -> dict[str, Any]:
    """The newest, by a name of their own. Texts of physical events may name a holder: only who sees all has them."""
    seen: list[tuple[str, Event]] = [
        (f"{source}/{name}", event)
        for source, mirror in known.events.items()
        for (_, name), event in mirror.items.items()
        if _sees(audience, event.project)
    ]
    seen.sort(key=lambda each: (each[1].at, each[0]), reverse=True)
    return {name: asdict(event) for name, event in seen[:EVENTS_SHOWN]}
