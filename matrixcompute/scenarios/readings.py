"""read: the number that a condition bounds, as one look shows it, and whether the bounds allow it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matrixcommon.model.errors import MatrixError
from matrixcommon.model.hardware_names import NodeName
from matrixcompute.scenarios.measures import MEASURES, means
from matrixcompute.scenarios.schema import Condition, Scenario
from matrixcompute.scenarios.world import Look


@dataclass(frozen=True)
class Frame:
    """What a condition is read in: the resources of each target, and the events that were there before."""

    scenario: Scenario
    resources: Mapping[str, Sequence[str]]
    events_before: Collection[str] = field(default_factory=frozenset)

    def nodes(self, target: str, every: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The nodes of a target, of a cabinet all, as somebody shows them."""
        wanted = set(self.resources[target])
        if self.scenario.targets[target].type == "cabinet":
            return [each for each in every if str(NodeName(each["name"]).cabinet) in wanted]
        return [each for each in every if each["name"] in wanted]


@dataclass(frozen=True)
class Reading:
    """`holds` None: something that it depends on did not answer."""

    holds: bool | None
    number: float | None = None
    message: str = ""


async def read(condition: Condition, look: Look, frame: Frame) -> Reading:
    try:
        number, of_how_many = await _number(condition, look, frame)
    except MatrixError as refused:
        if not refused.retryable:
            raise
        return Reading(None, None, refused.message)
    return Reading(condition.holds(number, of_how_many), number)


async def _number(condition: Condition, look: Look, frame: Frame) -> tuple[float, int]:
    """What is counted, and of how many."""
    if condition.metric is not None:
        return await MEASURES[condition.metric].read(look, condition.of), 1
    if condition.event is not None:
        return await _events(condition, look, frame), 1
    if condition.fault is not None:
        return await _faults(condition, look, frame), 1
    if condition.instance is not None:
        return await _instance(condition, look), 1
    target = str(condition.target or condition.hardware)
    views = await _views(target, look, frame, hardware=condition.hardware is not None)
    return sum(matches(each, condition) for each in views), len(views)


async def _events(condition: Condition, look: Look, frame: Frame) -> float:
    items = [*await look.all("compute", "events"), *await look.all("link", "events")]
    of = condition.of
    return sum(
        each["reason"] == condition.event
        and each["name"] not in frame.events_before
        and (of is None or means(each, "instance", of) or means(each, "about", of))
        for each in items
    )


async def _faults(condition: Condition, look: Look, frame: Frame) -> float:
    items = await look.all("compute", "faults")
    if condition.of is not None:
        every = [{"name": each["node"]} for each in items]
        nodes = {each["name"] for each in frame.nodes(condition.of, every)}
        items = [each for each in items if each["node"] in nodes]
    return sum(condition.fault in ("*", each["code"]) and matches(each, condition) for each in items)


async def _instance(condition: Condition, look: Look) -> float:
    view = await look.world.find("compute", "instances", str(condition.instance))
    if view is None:
        return float(condition.state == "Gone")
    if condition.floor == "held":
        slices = view.get("slices", [])
        if not slices or not all(each["floorsKept"] and each["programmed"] for each in slices):
            return 0.0
    return float(matches(view, condition))


async def _views(target: str, look: Look, frame: Frame, *, hardware: bool) -> list[dict[str, Any]]:
    type = frame.scenario.targets[target].type
    if type == "service":
        found = []
        for service in frame.resources[target]:
            processes = look.world.processes
            truly = await processes.seen(service) if hardware and processes is not None else {}
            found.append({"name": service, "ready": await look.world.ready(service), **truly})
        return found
    if type == "switch":
        wanted = set(frame.resources[target])
        return [each for each in await look.all("link", "switches") if each["name"] in wanted]
    return frame.nodes(target, await look.all("agents" if hardware else "resource", "nodes"))


def matches(view: dict[str, Any], condition: Condition) -> bool:
    """Whether a view has the state and the fields."""
    if condition.state is not None and view.get("state") not in condition.state.split("|"):
        return False
    return all(text_at(view, path) in value.split("|") for path, value in condition.where.items())


def text_at(view: Any, path: str) -> str:
    """The value at a path, as text: `agent`, `faults.0.code`, `conditions.Ready.status`; empty where there is none."""
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
