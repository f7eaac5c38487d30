"""evaluate: evaluate a condition on one snapshot: its number, and whether that is within the bounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matrixcommon.model.errors import MatrixError
from matrixcommon.model.hardware_names import NodeName
from matrixcompute.scenarios.metrics import METRICS, refers_to
from matrixcompute.scenarios.schema import Condition, Scenario
from matrixcompute.scenarios.service_clients import Snapshot


@dataclass(frozen=True)
class ReadContext:
    """The context in which conditions are read: the resources of each target, and the events from before."""

    scenario: Scenario
    resources: Mapping[str, Sequence[str]]
    events_before: Collection[str] = field(default_factory=frozenset)

    def nodes(self, target: str, views: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The views in `views` that are nodes of the target; of a target cabinet, all its nodes."""
        names = set(self.resources[target])
        if self.scenario.targets[target].type == "cabinet":
            return [each for each in views if str(NodeName(each["name"]).cabinet) in names]
        return [each for each in views if each["name"] in names]


@dataclass(frozen=True)
class Reading:
    """`holds`: None if a service that it depends on did not answer. `message`: what was observed.
    `missing_instance`: the instance that the condition is about, if it does not exist."""

    holds: bool | None
    number: float | None = None
    message: str = ""
    missing_instance: str = ""


async def evaluate(condition: Condition, snapshot: Snapshot, context: ReadContext) -> Reading:
    try:
        result = await _count_matching(condition, snapshot, context)
    except MatrixError as refused:
        if not refused.retryable:
            raise
        return Reading(None, None, refused.message)
    holds = condition.holds(result.number, result.total)
    missing_instance = result.missing_instance or (
        "" if holds else await _missing_instance(condition.of, snapshot, context)
    )
    missing = f"there is no instance {missing_instance}" if missing_instance else ""
    if condition.instance is not None:
        return Reading(holds, result.number, missing or result.why or "it is", missing_instance)
    counted = f"it was {result.number:g}" + (f" of {result.total}" if result.total > 1 else "")
    return Reading(
        holds, result.number, "; ".join(each for each in (counted, result.why, missing) if each), missing_instance
    )


@dataclass(frozen=True)
class _Count:
    """The number, out of how many, and the first reason why it is not higher, if known."""

    number: float
    total: int = 1
    why: str = ""
    missing_instance: str = ""


async def _count_matching(condition: Condition, snapshot: Snapshot, context: ReadContext) -> _Count:
    if condition.metric is not None:
        return _Count(await METRICS[condition.metric].read(snapshot, condition.of))
    if condition.event is not None:
        return _Count(await _events(condition, snapshot, context))
    if condition.fault is not None:
        return _Count(await _faults(condition, snapshot, context))
    if condition.instance is not None:
        return await _instance(condition, condition.instance, snapshot)
    target = str(condition.target or condition.hardware)
    views = await _views(target, snapshot, context, hardware=condition.hardware is not None)
    errors = {each["name"]: why for each in views if (why := mismatch(each, condition))}
    absent = [name for name in context.resources[target] if name not in {each["name"] for each in views}]
    if context.scenario.targets[target].type == "cabinet":
        absent = []  # the views are its nodes, not the cabinet
    errors |= dict.fromkeys(absent, "not found")
    first = "" if condition.bounded or not errors else next(f"{name}: {why}" for name, why in errors.items())
    return _Count(len(views) - len(errors) + len(absent), len(views) + len(absent), first)


async def _missing_instance(of: str | None, snapshot: Snapshot, context: ReadContext) -> str:
    """The instance in `of`, if it does not exist; empty if it does, or if that cannot be told."""
    if of is None or of in context.scenario.targets:
        return ""
    try:
        exists = any(refers_to(each, "name", of) for each in await snapshot.list_all("compute", "instances"))
    except MatrixError:
        return ""
    return "" if exists else of


async def _events(condition: Condition, snapshot: Snapshot, context: ReadContext) -> float:
    items = [*await snapshot.list_all("compute", "events"), *await snapshot.list_all("link", "events")]
    of = condition.of
    return sum(
        each["reason"] == condition.event
        and each["name"] not in context.events_before
        and (of is None or refers_to(each, "about", of))
        for each in items
    )


async def _faults(condition: Condition, snapshot: Snapshot, context: ReadContext) -> float:
    items = await snapshot.list_all("compute", "faults")
    if condition.of is not None:
        views = [{"name": each["node"]} for each in items]
        nodes = {each["name"] for each in context.nodes(condition.of, views)}
        items = [each for each in items if each["node"] in nodes]
    return sum(condition.fault in ("*", each["code"]) and matches(each, condition) for each in items)


async def _instance(condition: Condition, name: str, snapshot: Snapshot) -> _Count:
    view = await snapshot.clients.find("compute", "instances", name)
    if view is None:
        return _Count(float(condition.state == "Gone"), missing_instance=name)
    if why := mismatch(view, condition) or (_below_floor(view) if condition.floor == "held" else ""):
        return _Count(0.0, why=f"{name}: {why}")
    return _Count(1.0)


def _below_floor(instance: dict[str, Any]) -> str:
    """The first slice of an instance that lacks what it was promised, in words; empty if none does."""
    if not (slices := instance.get("slices", [])):
        return "it has no slices"
    for each in slices:
        if not each["programmed"]:
            return f"routes of {each['name']} are not programmed on every node"
        if not each["floorsKept"]:
            return f"{each['name']} has less than its floor"
    return ""


async def _views(target: str, snapshot: Snapshot, context: ReadContext, *, hardware: bool) -> list[dict[str, Any]]:
    type = context.scenario.targets[target].type
    if type == "service":
        found = []
        for service in context.resources[target]:
            processes = snapshot.clients.processes
            status = await processes.observe(service) if hardware and processes is not None else {}
            found.append({"name": service, "ready": await snapshot.clients.ready(service), **status})
        return found
    if type == "switch":
        names = set(context.resources[target])
        return [each for each in await snapshot.list_all("link", "switches") if each["name"] in names]
    return context.nodes(target, await snapshot.list_all("agents" if hardware else "resource", "nodes"))


def matches(view: dict[str, Any], condition: Condition) -> bool:
    """Whether a view has the condition's state and fields."""
    return not mismatch(view, condition)


def mismatch(view: dict[str, Any], condition: Condition) -> str:
    """The first field of a view that does not match the condition, with its value; empty if all match."""
    fields = {**({"state": condition.state} if condition.state is not None else {}), **condition.where}
    for path, value in fields.items():
        if (text := text_at(view, path)) not in value.split("|"):
            return f"{path} is {text or 'missing'}"
    return ""


def text_at(view: Any, path: str) -> str:
    """The value at a path, as text: `agent`, `faults.0.code`, `conditions.Ready.status`; empty if there is none."""
    for step in path.split("."):
        if isinstance(view, list):
            typed = [each for each in view if isinstance(each, dict) and each.get("type") == step]
            numbered = view[int(step)] if step.isdigit() and int(step) < len(view) else None
            view = typed[0] if typed else numbered
        else:
            view = view.get(step) if isinstance(view, dict) else None
    if view is None:
        return ""
    if isinstance(view, bool):
        return str(view).lower()
    if isinstance(view, dict | list):
        return str(len(view))
    return f"{view:g}" if isinstance(view, float) else str(view)
