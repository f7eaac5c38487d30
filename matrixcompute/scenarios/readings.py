"""read: evaluate a condition at one look: its number, and whether that is within the bounds."""

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
    """The context in which conditions are read: the resources of each target, and the events from before."""

    scenario: Scenario
    resources: Mapping[str, Sequence[str]]
    events_before: Collection[str] = field(default_factory=frozenset)

    def nodes(self, target: str, every: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The views in `every` that are nodes of the target; of a target cabinet, all its nodes."""
        wanted = set(self.resources[target])
        if self.scenario.targets[target].type == "cabinet":
            return [each for each in every if str(NodeName(each["name"]).cabinet) in wanted]
        return [each for each in every if each["name"] in wanted]


@dataclass(frozen=True)
class Reading:
    """`holds`: None if a service that it depends on did not answer. `message`: what was observed. `gone`: the instance
    that the condition is about, if it does not exist."""

    holds: bool | None
    number: float | None = None
    message: str = ""
    gone: str = ""


async def read(condition: Condition, look: Look, frame: Frame) -> Reading:
    try:
        found = await _found(condition, look, frame)
    except MatrixError as refused:
        if not refused.retryable:
            raise
        return Reading(None, None, refused.message)
    holds = condition.holds(found.number, found.of_how_many)
    gone = found.gone or ("" if holds else await _gone(condition.of, look, frame))
    missing = f"there is no instance {gone}" if gone else ""
    if condition.instance is not None:
        return Reading(holds, found.number, missing or found.why or "it is", gone)
    counted = f"it was {found.number:g}" + (f" of {found.of_how_many}" if found.of_how_many > 1 else "")
    return Reading(holds, found.number, "; ".join(each for each in (counted, found.why, missing) if each), gone)


@dataclass(frozen=True)
class _Found:
    """The number, out of how many, and the first reason why it is not higher, if known."""

    number: float
    of_how_many: int = 1
    why: str = ""
    gone: str = ""


async def _found(condition: Condition, look: Look, frame: Frame) -> _Found:
    if condition.metric is not None:
        return _Found(await MEASURES[condition.metric].read(look, condition.of))
    if condition.event is not None:
        return _Found(await _events(condition, look, frame))
    if condition.fault is not None:
        return _Found(await _faults(condition, look, frame))
    if condition.instance is not None:
        return await _instance(condition, condition.instance, look)
    target = str(condition.target or condition.hardware)
    views = await _views(target, look, frame, hardware=condition.hardware is not None)
    wrong = {each["name"]: why for each in views if (why := mismatch(each, condition))}
    lacking = [name for name in frame.resources[target] if name not in {each["name"] for each in views}]
    if frame.scenario.targets[target].type == "cabinet":
        lacking = []  # the views are its nodes, not the cabinet
    wrong |= dict.fromkeys(lacking, "not found")
    first = "" if condition.bounded or not wrong else next(f"{name}: {why}" for name, why in wrong.items())
    return _Found(len(views) - len(wrong) + len(lacking), len(views) + len(lacking), first)


async def _gone(of: str | None, look: Look, frame: Frame) -> str:
    """The instance in `of`, if it does not exist; empty if it does, or if that cannot be told."""
    if of is None or of in frame.scenario.targets:
        return ""
    try:
        there = any(means(each, "name", of) for each in await look.all("compute", "instances"))
    except MatrixError:
        return ""
    return "" if there else of


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


async def _instance(condition: Condition, name: str, look: Look) -> _Found:
    view = await look.world.find("compute", "instances", name)
    if view is None:
        return _Found(float(condition.state == "Gone"), gone=name)
    if why := mismatch(view, condition) or (_below_floor(view) if condition.floor == "held" else ""):
        return _Found(0.0, why=f"{name}: {why}")
    return _Found(1.0)


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
