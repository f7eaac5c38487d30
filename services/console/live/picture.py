"""The picture: one JSON document with everything that the page shows live, built for one audience.

An audience is a project, or EVERY_PROJECT for those who may view all. Hardware is in every picture. A node's holder is
named only to the holder's project and to EVERY_PROJECT; others see TAKEN. The document contains no null, so that a
merge patch can express removals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from matrixcommon.model.quantities import pluralized
from services.console.live.collector import Collector, Event, InstanceState
from services.console.live.drawing import Drawing, may_see

EVENTS_SHOWN = 40
FIELDS = {of: tuple(field.name for field in fields(of)) for of in (InstanceState, Event)}


class Picture:
    """The part of the collected state that one audience may see. Parts from unchanged sources are the same object in
    consecutive documents, so that computing the difference can skip them."""

    def __init__(self, collector: Collector, audience: str) -> None:
        self._collector, self._audience = collector, audience
        self._drawing = Drawing(collector, audience)
        self._cached_parts: dict[str, tuple[Any, Any]] = {}

    def document(self) -> dict[str, Any]:
        """Return the current document."""
        collector, drawing = self._collector, self._drawing
        drawing.refresh()
        services, polled_version, instances = collector.services, collector.polled_version, collector.instances.version
        alert_sources = (*services.values(), polled_version, collector.nodes.version, instances)
        events = tuple(mirror.version for mirror in collector.events.values())
        return {
            "time": collector.clock_reading,
            "services": services,
            "capacity": self._part("capacity", polled_version, _capacity),
            "counts": drawing.counts,
            "planes": self._part("planes", polled_version, _planes),
            "supernodes": drawing.supernodes,
            "instances": self._part("instances", instances, _instances),
            "alerts": self._part("alerts", alert_sources, _alerts),
            "events": self._part("events", events, _events),
        }

    def _part(self, name: str, source: Any, make: Callable[[Collector, str], dict[str, Any]]) -> dict[str, Any]:
        """Return a part of the document, rebuilt only if its source has changed."""
        cached = self._cached_parts.get(name)
        if cached is None or cached[0] != source:
            cached = self._cached_parts[name] = source, make(self._collector, self._audience)
        return cached[1]


def _as_document(record: InstanceState | Event) -> dict[str, Any]:
    """Return a record's fields without copying: all are plain values (`dataclasses.asdict` would copy each)."""
    return {name: getattr(record, name) for name in FIELDS[type(record)]}


def _key(project: str, name: str) -> str:
    return f"{project}/{name}"


def _planes(collector: Collector, audience: str) -> dict[str, Any]:
    return {each["name"]: {"down": each["linksDown"], "degraded": each["linksDegraded"]} for each in collector.planes}


def _instances(collector: Collector, audience: str) -> dict[str, Any]:
    return {
        _key(project, name): {"project": project, "name": name, **_as_document(state)}
        for (project, name), state in sorted(collector.instances.items.items())
        if may_see(audience, project)
    }


def _capacity(collector: Collector, audience: str) -> dict[str, Any]:
    """Return the largest block of free nodes in one cabinet, in one supernode, in all, and by supernode."""
    if not collector.capacity:
        return {}
    return {
        "largestBlock": collector.capacity["largestBlock"],
        "supernodes": {each["domain"]: each["largestBlock"] for each in collector.capacity["supernodes"]},
        "closed": {
            each["domain"]: each["state"]
            for each in (*collector.capacity["supernodes"], *collector.capacity["cabinets"])
            if each["state"] != "Open"
        },
    }


def _alerts(collector: Collector, audience: str) -> dict[str, Any]:
    """Return what needs attention, by subject."""
    found: dict[str, Any] = {}
    for service, answers in collector.services.items():
        if not answers:
            found[f"service {service}"] = {"kind": "service", "name": service, "message": "it does not answer"}
    for (_, name), node in collector.nodes.items.items():
        if node.alert:
            found[f"node {name}"] = {"kind": "node", "name": name, "message": node.alert, "since": node.since}
    for plane in collector.planes:
        if plane["linksDown"] or plane["linksDegraded"]:
            counts = {"down": plane["linksDown"], "degraded": plane["linksDegraded"]}
            message = ", ".join(f"{pluralized(count, 'link')} {state}" for state, count in counts.items() if count)
            found[f"plane {plane['name']}"] = {"kind": "plane", "name": plane["name"], "message": message}
    for (project, name), instance in collector.instances.items.items():
        if instance.trouble and may_see(audience, project):
            key = _key(project, name)
            alert = {"kind": "instance", "name": key, "message": instance.trouble, "since": instance.since}
            found[f"instance {key}"] = alert
    return found


def _events(collector: Collector, audience: str) -> dict[str, Any]:
    """Return the newest events by a unique name. Texts of physical events may name a holder, so only EVERY_PROJECT gets
    them."""
    seen: list[tuple[str, Event]] = [
        (f"{source}/{name}", event)
        for source, mirror in collector.events.items()
        for (_, name), event in mirror.items.items()
        if may_see(audience, event.project)
    ]
    seen.sort(key=lambda each: (each[1].at, each[0]), reverse=True)
    return {name: _as_document(event) for name, event in seen[:EVENTS_SHOWN]}
