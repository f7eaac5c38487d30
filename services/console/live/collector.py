"""Collector: the state of the machine as the console's own token sees it, from mirrored lists and periodic requests.

The token reads all projects, so nothing from here may be shown before `picture` has selected what the reader may see.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx

from matrixcommon.api.client import call
from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import MatrixError
from services.console.live.hardware import Holding, NodeState, holding, node_state
from services.console.live.mirror import Mirror

EVENTS_KEPT = 60
"""Events kept per project and service; the page shows the newest of all."""
CAPACITY_REST_WALL_S = 1.0
"""The shortest interval between requests of the capacity, whatever changes."""
PLANES_PERIOD_WALL_S = 5.0
PROBE_PERIOD_WALL_S = 2.0


@dataclass(frozen=True, slots=True)
class InstanceState:
    """An instance in one line. `trouble`: the reason and message of an abnormal condition, Degraded first."""

    state: str
    nodes: int
    ready: int
    npus: int
    spares: int
    operation: str
    trouble: str
    since: str


@dataclass(frozen=True, slots=True)
class Event:
    """An event. `project` is empty for events of no project."""

    at: str
    source: str
    about: str
    kind: str
    reason: str
    message: str
    project: str


class Collector:
    """The state known to the console. `changed` is called whenever any of it changes."""

    def __init__(self, http: dict[str, httpx.AsyncClient], clock: Clock) -> None:
        self._http = http
        self.clock = clock
        self.changed: Callable[[], None] = lambda: None
        self.nodes: Mirror[NodeState] = Mirror(http["resource"], "nodes", node_state, self._hardware_changed)
        self.allocations: Mirror[Holding] = Mirror(http["resource"], "allocations", holding, self._hardware_changed)
        self.instances: Mirror[InstanceState] = Mirror(http["compute"], "instances", instance_state, self._changed)
        self.events = {
            name: Mirror(http[name], "events", _event_reader(name), self._changed, EVENTS_KEPT)
            for name in ("compute", "resource", "link")
        }
        self.capacity: dict[str, Any] = {}
        self.planes: list[dict[str, Any]] = []
        self.clock_reading = _clock_reading(clock)
        self._answering: dict[str, bool] = {}
        self._capacity_due = asyncio.Event()
        self.polled_version = 0
        """Grows with every change of `capacity` and `planes`."""

    def _changed(self) -> None:
        self.changed()

    def update(self, *, capacity: dict[str, Any] | None = None, planes: list[dict[str, Any]] | None = None) -> None:
        """Replace what was known by a new answer."""
        self.capacity = self.capacity if capacity is None else capacity
        self.planes = self.planes if planes is None else planes
        self.polled_version += 1
        self.changed()

    def _hardware_changed(self) -> None:
        self._capacity_due.set()
        self.changed()

    @property
    def services(self) -> dict[str, bool]:
        """Whether each service answers. Watches alone do not show it, as those of a hanging service stay open for a
        minute."""
        return {
            "resource": self.nodes.reachable and self._answering.get("resource", True),
            "link": self._answering.get("link", False),
            "compute": self.instances.reachable and self._answering.get("compute", True),
            "infer": self._answering.get("infer", False),
            "agents": self._answering.get("agents", False),
        }

    def tasks(self) -> list[Callable[[], Awaitable[None]]]:
        """The tasks that run as long as the process."""
        mirrors: list[Mirror[Any]] = [self.nodes, self.allocations, self.instances, *self.events.values()]
        return [
            *(mirror.run for mirror in mirrors),
            self._follow_clock,
            self._follow_capacity,
            self._follow_planes,
            self._probe,
        ]

    async def _follow_capacity(self) -> None:
        while True:
            await self._capacity_due.wait()
            self._capacity_due.clear()
            found = await self._fetch("resource", "/v1/capacity")
            if found is None:
                self._capacity_due.set()  # retry, as no other change may come for long
            elif found != self.capacity:
                self.update(capacity=found)
            await asyncio.sleep(CAPACITY_REST_WALL_S)

    async def _follow_planes(self) -> None:
        while True:
            found = await self._fetch("link", "/v1/planes")
            if found is not None and found["items"] != self.planes:
                self.update(planes=found["items"])
            await asyncio.sleep(PLANES_PERIOD_WALL_S)

    async def _probe(self) -> None:
        while True:
            for name in self._http:
                answers = await self._is_answering(name)
                if answers != self._answering.get(name):
                    self._answering[name] = answers
                    self.changed()
            await asyncio.sleep(PROBE_PERIOD_WALL_S)

    async def _is_answering(self, service: str) -> bool:
        try:
            return (await self._http[service].get("/healthz", timeout=2.0)).is_success
        except httpx.HTTPError:
            return False

    async def _fetch(self, service: str, path: str) -> dict[str, Any] | None:
        """The service's answer; None if it does not answer."""
        try:
            return await call(self._http[service], "GET", path)
        except MatrixError:
            return None

    async def _follow_clock(self) -> None:
        while True:
            self.clock_reading = _clock_reading(self.clock)
            self.changed()
            await self.clock.changed()


def _clock_reading(clock: Clock) -> dict[str, float]:
    """The relation of emulated to wall time, for the page to continue by itself: both clocks at one moment, and the
    scale."""
    return {"scale": clock.scale, "wall": time.time(), "emulated": clock.now()}


WITHOUT_NODES = ("Suspending", "Suspended", "Deleting")
"""States in which an instance is to have no nodes, so that lacking them is nothing to attend to."""


def instance_state(view: dict[str, Any]) -> InstanceState:
    conditions = {each["type"]: each for each in view.get("conditions", ())}
    return InstanceState(
        state=view["state"],
        nodes=view["nodes"],
        ready=view.get("readyNodes", 0),
        npus=view["npus"],
        spares=view.get("spares", 0),
        operation=view.get("operation") or "",
        trouble="" if view["state"] in WITHOUT_NODES else _trouble(conditions),
        since=max((each["lastTransitionTime"] for each in conditions.values()), default=view["updatedAt"]),
    )


def _trouble(conditions: dict[str, dict[str, Any]]) -> str:
    degraded = conditions.get("Degraded")
    if degraded is not None and degraded["status"] == "True":
        return f"{degraded['reason']}: {degraded['message']}"
    for kind in ("Scheduled", "QosSatisfied", "SparesAvailable"):
        condition = conditions.get(kind)
        if condition is not None and condition["status"] == "False":
            return f"{condition['reason']}: {condition['message']}"
    return ""


def _event_reader(source: str) -> Callable[[dict[str, Any]], Event]:
    def event(view: dict[str, Any]) -> Event:
        project = view.get("project") or ""
        return Event(view["at"], source, view["about"], view["type"], view["reason"], view["message"], project)

    return event
