"""METRICS: the metrics that conditions may use, with what each counts and how it is read over REST."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from matrixcommon.model.resource_key import DEFAULT_PROJECT, resolve
from matrixcompute.model.composition import OWNER_LABEL
from matrixcompute.scenarios.service_clients import Snapshot

Reader = Callable[[Snapshot, str | None], Awaitable[float]]


@dataclass(frozen=True)
class ScenarioMetric:
    """A metric: what it counts, its reader, and whether it can be read for a single instance."""

    sentence: str
    read: Reader
    of_instance: bool = True


def _global_metric(sentence: str, read_number: Callable[[Snapshot], Awaitable[float]]) -> ScenarioMetric:
    """A metric that is not counted per instance."""

    async def read(snapshot: Snapshot, of: str | None) -> float:
        return await read_number(snapshot)

    return ScenarioMetric(sentence, read, of_instance=False)


def refers_to(view: Mapping[str, Any], field: str, of: str) -> bool:
    """Whether the name in a view's `field` refers to the instance that a scenario calls `of`. A name without a project
    is in the view's project in the first case, in the default project in the second."""
    if not (named := str(view.get(field) or "")):
        return False
    return resolve(named, view.get("project") or DEFAULT_PROJECT) == resolve(of, DEFAULT_PROJECT)


def _count(service: str, collection: str, holds: Callable[[dict[str, Any]], Any], instance: str) -> Reader:
    """A reader that counts the items of a collection for which `holds` is true. `instance`: the field in which an item
    names its instance."""

    async def read(snapshot: Snapshot, of: str | None) -> float:
        items = await snapshot.list_all(service, collection)
        return sum(bool(holds(each)) for each in items if of is None or refers_to(each, instance, of))

    return read


async def _orphans(snapshot: Snapshot, of: str | None) -> float:
    """Allocations and slices are read before instances, so that an instance created in between has no orphans."""
    owned = [*await snapshot.list_all("resource", "allocations"), *await snapshot.list_all("link", "slices")]
    existing = {
        resolve(each["name"], each["project"]) for each in await snapshot.list_all("compute", "instances", refresh=True)
    }
    owners = [each["labels"][OWNER_LABEL] for each in owned if OWNER_LABEL in each.get("labels", {})]
    return sum(owner not in existing for owner in owners if of is None or owner == resolve(of, DEFAULT_PROJECT))


async def _repairs(snapshot: Snapshot, of: str | None) -> float:
    items = await snapshot.list_all("compute", "instances")
    return sum(each.get("repairs", 0) for each in items if of is None or refers_to(each, "name", of))


async def _available_nodes(snapshot: Snapshot) -> float:
    return sum(each["state"] == "Available" for each in await snapshot.list_all("resource", "nodes"))


async def _unpowered_nodes(snapshot: Snapshot) -> float:
    return sum(not each["powered"] for each in await snapshot.list_all("agents", "nodes"))


async def _links_down(snapshot: Snapshot) -> float:
    return sum(each["linksDown"] for each in await snapshot.list_all("link", "planes"))


async def _links_degraded(snapshot: Snapshot) -> float:
    return sum(each["linksDegraded"] for each in await snapshot.list_all("link", "planes"))


def _ports(field: str, holds: Callable[[float], bool]) -> Callable[[Snapshot], Awaitable[float]]:
    async def read_number(snapshot: Snapshot) -> float:
        return sum(
            holds(share) for node in await snapshot.list_all("agents", "nodes") for share in node[field].values()
        )

    return read_number


def _has_condition(condition: str, view: dict[str, Any]) -> bool:
    return any(each["type"] == condition and each["status"] == "True" for each in view["conditions"])


METRICS: dict[str, ScenarioMetric] = {
    "orphans": ScenarioMetric("allocations and slices whose instance is gone", _orphans),
    "stuck": ScenarioMetric("instances past the deadline of a passing state", _count("compute", "stuck", bool, "name")),
    "repairs": ScenarioMetric("replacements of members so far", _repairs),
    "instances.active": ScenarioMetric(
        "instances that are Active", _count("compute", "instances", lambda each: each["state"] == "Active", "name")
    ),
    "instances.ready": ScenarioMetric(
        "instances whose condition Ready is True",
        _count("compute", "instances", lambda each: _has_condition("Ready", each), "name"),
    ),
    "instances.failed": ScenarioMetric(
        "instances that are Failed", _count("compute", "instances", lambda each: each["state"] == "Failed", "name")
    ),
    "faults.active": ScenarioMetric(
        "faults that the control plane has detected",
        _count("compute", "faults", lambda each: each["state"] == "Active", "instance"),
    ),
    "nodes.available": _global_metric("nodes that nobody holds", _available_nodes),
    "nodes.lost": ScenarioMetric(
        "nodes whose agents are Lost", _count("resource", "nodes", lambda each: each["agent"] == "Lost", "allocation")
    ),
    "nodes.silent": ScenarioMetric(
        "nodes whose agents are Stale or Lost",
        _count("resource", "nodes", lambda each: each["agent"] in ("Stale", "Lost"), "allocation"),
    ),
    "nodes.unhealthy": ScenarioMetric(
        "nodes that are Unhealthy",
        _count("resource", "nodes", lambda each: each["health"] == "Unhealthy", "allocation"),
    ),
    "links.down": _global_metric("links that MatrixLink takes to be down", _links_down),
    "links.degraded": _global_metric("links that MatrixLink takes to be below their rate", _links_degraded),
    "slices.below-floor": ScenarioMetric(
        "slices with less bandwidth than was promised",
        _count("link", "slices", lambda each: each["floorKeptGbpsPerNpu"] < each["floorGbpsPerNpu"], "instance"),
    ),
    "hardware.nodes-dark": _global_metric("nodes that really have no power", _unpowered_nodes),
    "hardware.ports-dark": _global_metric(
        "ports that really have no light, and report it", _ports("ports", lambda share: share == 0)
    ),
    "hardware.ports-narrow": _global_metric(
        "ports that really carry part of their rate, and report it", _ports("ports", lambda share: 0 < share < 1)
    ),
    "hardware.ports-lying": _global_metric(
        "ports that carry less than they report", _ports("silent", lambda share: share < 1)
    ),
}
