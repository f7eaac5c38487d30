"""The picture: one JSON document with everything that the page shows live, built for one audience.

An audience is a project, or EVERY_PROJECT for those who may view all. Hardware is in every picture. A node's holder is
named only to the holder's project and to EVERY_PROJECT; others see TAKEN. The document contains no null, so that a
merge patch can express removals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from matrixcommon.model.quantities import counted
from services.console.live.collector import Collector, Event, InstanceState
from services.console.live.drawing import Drawing, sees

EVENTS_SHOWN = 40
FIELDS = {of: tuple(field.name for field in fields(of)) for of in (InstanceState, Event)}


class Picture:
    """The part of the collected state that one audience may see. Parts from unchanged sources are the same object in
    consecutive documents, so that computing the difference can skip them."""

    def __init__(self, known: Collector, audience: str) -> None:
        self._known, self._audience = known, audience
        self._drawing = Drawing(known, audience)
        self._kept: dict[str, tuple[Any, Any]] = {}

    def document(self) -> dict[str, Any]:
        """Return the current document."""
        known, drawing = self._known, self._drawing
        drawing.follow()
        services, asked, instances = known.services, known.asked_version, known.instances.version
        looked_at = (*services.values(), asked, known.nodes.version, instances)
        events = tuple(mirror.version for mirror in known.events.values())
        return {
            "time": known.pace,
            "services": services,
            "capacity": self._part("capacity", asked, _capacity),
            "counts": drawing.counts,
            "planes": self._part("planes", asked, _planes),
            "supernodes": drawing.supernodes,
            "instances": self._part("instances", instances, _instances),
            "alerts": self._part("alerts", looked_at, _alerts),
            "events": self._part("events", events, _events),
        }

    def _part(self, name: str, source: Any, make: Callable[[Collector, str], dict[str, Any]]) -> dict[str, Any]:
        """Return a part of the document, rebuilt only if its source has changed."""
        kept = self._kept.get(name)
        if kept is None or kept[0] != source:
            kept = self._kept[name] = source, make(self._known, self._audience)
        return kept[1]


def _as_document(record: InstanceState | Event) -> dict[str, Any]:
    """Return a record's fields without copying: all are plain values (`dataclasses.asdict` would copy each)."""
    return {name: getattr(record, name) for name in FIELDS[type(record)]}


def _key(project: str, name: str) -> str:
    return f"{project}/{name}"


def _planes(known: Collector, audience: str) -> dict[str, Any]:
    return {each["name"]: {"down": each["linksDown"], "degraded": each["linksDegraded"]} for each in known.planes}


def _instances(known: Collector, audience: str) -> dict[str, Any]:
    return {
        _key(project, name): {"project": project, "name": name, **_as_document(state)}
        for (project, name), state in sorted(known.instances.items.items())
        if sees(audience, project)
    }


def _capacity(known: Collector, audience: str) -> dict[str, Any]:
    """Return the largest block of free nodes in one cabinet, in one supernode, in all, and by supernode."""
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
    """Return what needs attention, by subject."""
    found: dict[str, Any] = {}
    for service, answers in known.services.items():
        if not answers:
            found[f"service {service}"] = {"kind": "service", "name": service, "message": "it does not answer"}
    for (_, name), node in known.nodes.items.items():
        if node.alert:
            found[f"node {name}"] = {"kind": "node", "name": name, "message": node.alert, "since": node.since}
    for plane in known.planes:
        if plane["linksDown"] or plane["linksDegraded"]:
            counts = {"down": plane["linksDown"], "degraded": plane["linksDegraded"]}
            message = ", ".join(f"{counted(count, 'link')} {state}" for state, count in counts.items() if count)
            found[f"plane {plane['name']}"] = {"kind": "plane", "name": plane["name"], "message": message}
    for (project, name), instance in known.instances.items.items():
        if instance.trouble and sees(audience, project):
            key = _key(project, name)
            alert = {"kind": "instance", "name": key, "message": instance.trouble, "since": instance.since}
            found[f"instance {key}"] = alert
    return found


def _events(known: Collector, audience: str) -> dict[str, Any]:
    """Return the newest events by a unique name. Texts of physical events may name a holder, so only EVERY_PROJECT gets
    them."""
    seen: list[tuple[str, Event]] = [
        (f"{source}/{name}", event)
        for source, mirror in known.events.items()
        for (_, name), event in mirror.items.items()
        if sees(audience, event.project)
    ]
    seen.sort(key=lambda each: (each[1].at, each[0]), reverse=True)
    return {name: _as_document(event) for name, event in seen[:EVENTS_SHOWN]}
