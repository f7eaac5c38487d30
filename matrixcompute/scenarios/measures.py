"""MEASURES: the metrics that conditions may use, with what each counts and how it is read over REST."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from matrixcommon.model.resource_key import DEFAULT_PROJECT, resolve
from matrixcompute.model.composition import OWNER_LABEL
from matrixcompute.scenarios.world import Look

Reads = Callable[[Look, str | None], Awaitable[float]]


@dataclass(frozen=True)
class Measure:
    """A metric: what it counts, its reader, and whether it can be read for a single instance."""

    sentence: str
    read: Reads
    of_instance: bool = True


def _of_all(sentence: str, number: Callable[[Look], Awaitable[float]]) -> Measure:
    """A metric that is not counted per instance."""

    async def read(look: Look, of: str | None) -> float:
        return await number(look)

    return Measure(sentence, read, of_instance=False)


def means(view: Mapping[str, Any], field: str, of: str) -> bool:
    """Whether the name in a view's `field` refers to the instance that a scenario calls `of`. A name without a project
    is in the view's project in the first case, in the default project in the second."""
    if not (named := str(view.get(field) or "")):
        return False
    return resolve(named, view.get("project") or DEFAULT_PROJECT) == resolve(of, DEFAULT_PROJECT)


def _count(service: str, collection: str, holds: Callable[[dict[str, Any]], Any], instance: str) -> Reads:
    """A reader that counts the items of a collection for which `holds` is true. `instance`: the field in which an item
    names its instance."""

    async def read(look: Look, of: str | None) -> float:
        items = await look.all(service, collection)
        return sum(bool(holds(each)) for each in items if of is None or means(each, instance, of))

    return read


async def _orphans(look: Look, of: str | None) -> float:
    """Allocations and slices are read before instances, so that an instance created in between has no orphans."""
    owned = [*await look.all("resource", "allocations"), *await look.all("link", "slices")]
    there = {resolve(each["name"], each["project"]) for each in await look.all("compute", "instances", anew=True)}
    owners = [each["labels"][OWNER_LABEL] for each in owned if OWNER_LABEL in each.get("labels", {})]
    return sum(owner not in there for owner in owners if of is None or owner == resolve(of, DEFAULT_PROJECT))


async def _repairs(look: Look, of: str | None) -> float:
    items = await look.all("compute", "instances")
    return sum(each.get("repairs", 0) for each in items if of is None or means(each, "name", of))


async def _available(look: Look) -> float:
    return sum(each["state"] == "Available" for each in await look.all("resource", "nodes"))


async def _dark(look: Look) -> float:
    return sum(not each["powered"] for each in await look.all("agents", "nodes"))


async def _down(look: Look) -> float:
    return sum(each["linksDown"] for each in await look.all("link", "planes"))


async def _degraded(look: Look) -> float:
    return sum(each["linksDegraded"] for each in await look.all("link", "planes"))


def _ports(field: str, holds: Callable[[float], bool]) -> Callable[[Look], Awaitable[float]]:
    async def number(look: Look) -> float:
        return sum(holds(share) for node in await look.all("agents", "nodes") for share in node[field].values())

    return number


def _is(condition: str, view: dict[str, Any]) -> bool:
    return any(each["type"] == condition and each["status"] == "True" for each in view["conditions"])


MEASURES: dict[str, Measure] = {
    "orphans": Measure("allocations and slices whose instance is gone", _orphans),
    "stuck": Measure("instances past the deadline of a passing state", _count("compute", "stuck", bool, "name")),
    "repairs": Measure("replacements of members so far", _repairs),
    "instances.active": Measure(
        "instances that are Active", _count("compute", "instances", lambda each: each["state"] == "Active", "name")
    ),
    "instances.ready": Measure(
        "instances whose condition Ready is True",
        _count("compute", "instances", lambda each: _is("Ready", each), "name"),
    ),
    "instances.failed": Measure(
        "instances that are Failed", _count("compute", "instances", lambda each: each["state"] == "Failed", "name")
    ),
    "faults.active": Measure(
        "faults that the control plane has detected",
        _count("compute", "faults", lambda each: each["state"] == "Active", "instance"),
    ),
    "nodes.available": _of_all("nodes that nobody holds", _available),
    "nodes.lost": Measure(
        "nodes whose agents are Lost", _count("resource", "nodes", lambda each: each["agent"] == "Lost", "allocation")
    ),
    "nodes.silent": Measure(
        "nodes whose agents are Stale or Lost",
        _count("resource", "nodes", lambda each: each["agent"] in ("Stale", "Lost"), "allocation"),
    ),
    "nodes.unhealthy": Measure(
        "nodes that are Unhealthy",
        _count("resource", "nodes", lambda each: each["health"] == "Unhealthy", "allocation"),
    ),
    "links.down": _of_all("links that MatrixLink takes to be down", _down),
    "links.degraded": _of_all("links that MatrixLink takes to be below their rate", _degraded),
    "slices.below-floor": Measure(
        "slices with less bandwidth than was promised",
        _count("link", "slices", lambda each: each["floorKeptGbpsPerNpu"] < each["floorGbpsPerNpu"], "instance"),
    ),
    "hardware.nodes-dark": _of_all("nodes that really have no power", _dark),
    "hardware.ports-dark": _of_all(
        "ports that really have no light, and report it", _ports("ports", lambda share: share == 0)
    ),
    "hardware.ports-narrow": _of_all(
        "ports that really carry part of their rate, and report it", _ports("ports", lambda share: 0 < share < 1)
    ),
    "hardware.ports-lying": _of_all(
        "ports that carry less than they report", _ports("silent", lambda share: share < 1)
    ),
}
