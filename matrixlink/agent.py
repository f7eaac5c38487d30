"""LinkAgent: MatrixLink's software on one node's Qingtian card.

It holds, slice by slice, the newest wish and what is in the switches, works the wishes off stage by stage, and says in
every report which generation of what is programmed and which ports are below their rate. A wish older than the one it
holds is refused. Cut off from the control plane it keeps forwarding on its last configuration. A card remembers its
wishes through loss of power; the switches' tables do not survive it and are written again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import yaml

from matrixlink.contract import DesiredProgram, LinkReport, ProgramView, ReportedPort, ReportedProgram
from matrixlink.ports import Hardware
from matrixresource.stages import Stages, read_stages
from matrixresource.vocabulary.clock import Clock
from matrixresource.vocabulary.errors import MatrixError, StaleGeneration

ROUTES = (
    "isolation_key", "qos_class", "weight", "floor_gbps", "ceiling_gbps", "peers", "stripes", "detours", "peerings",
    "security_rules",
)  # fmt: skip
"""What of a program is in the tables; the rest is bookkeeping."""


@dataclass
class Held:
    """One slice on one node: what is wished, and what generation of what is in the tables (None: nothing)."""

    generation: int
    action: str
    wish: dict[str, Any] | None
    tables: dict[str, Any] | None = None
    done_generation: int = 0

    @property
    def done(self) -> bool:
        return self.done_generation == self.generation and (self.tables is None) == (self.action == "clear")

    @property
    def status(self) -> str:
        if not self.done:
            return "Programming"
        return "Cleared" if self.action == "clear" else "Programmed"


class LinkAgent:
    """One node's agent. `hardware` is the node it sits on; `changed` is called whenever a report would say something
    new; `built_gbps` is every port's full rate."""

    def __init__(
        self,
        hardware: Hardware,
        built_gbps: dict[str, float],
        stages: Stages,
        clock: Clock,
        random: Random,
        changed: Callable[[], None] = lambda: None,
        lease_s: float = 30.0,
    ) -> None:
        self.hardware = hardware
        self.epoch = 1
        self.sequence = 0
        self.stage: str | None = None
        self.counters: Counter[str] = Counter()
        self._built_gbps = built_gbps
        self._stages = stages
        self._clock = clock
        self._random = random
        self._changed = changed
        self._lease_s = lease_s
        self._held: dict[str, Held] = {}
        self._wake = asyncio.Event()

    @property
    def node(self) -> str:
        return str(self.hardware.name)

    # -- orders --------------------------------------------------------------------------------------------------

    def ensure(self, program: ProgramView) -> None:
        """Take up a wish. Raises StaleGeneration for one older than what is held; the same one again is no news."""
        wish = program.model_dump(mode="json") if program.action == "program" else None
        self._order(program.slice, program.generation, program.action, wish)

    def take_answer(self, desired: list[DesiredProgram]) -> None:
        """Take up all that the answer to a report wishes of this node; forget what is cleared and not wished for."""
        for each in desired:
            try:
                if each.program is not None:
                    self.ensure(each.program)
                elif each.action == "clear":
                    self._order(each.slice, each.generation, "clear", None)
            except MatrixError:
                self.counters["refused"] += 1
        wished = {each.slice for each in desired}
        for slice in [s for s, held in self._held.items() if held.status == "Cleared" and s not in wished]:
            del self._held[slice]
            self._changed()

    def _order(self, slice: str, generation: int, action: str, wish: dict[str, Any] | None) -> None:
        held = self._held.get(slice)
        if held is not None and generation < held.generation:
            self.counters["stale"] += 1
            raise StaleGeneration(f"{self.node} holds generation {held.generation} of {slice}, not {generation}")
        if held is not None and (generation, action) == (held.generation, held.action):
            return
        if held is None:
            held = self._held[slice] = Held(generation, action, wish)
        held.generation, held.action, held.wish = generation, action, wish
        self._wake.set()
        self._changed()

    # -- work ----------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        """Work off wishes as they come, for ever. Ends only by being cancelled."""
        while True:
            self._wake.clear()
            await self.work_off()
            await self._wake.wait()

    async def work_off(self) -> None:
        """Until no wish is open, one slice at a time."""
        while (slice := next((slice for slice, held in self._held.items() if not held.done), None)) is not None:
            await self._work(slice, self._held[slice])

    async def _work(self, slice: str, held: Held) -> None:
        generation, action, wish = held.generation, held.action, held.wish
        work = "clear" if action == "clear" else _work_for(held.tables, wish)
        for stage in self._stages[work]:
            self.stage = f"{slice}: {stage.stage}"
            await self._clock.sleep(stage.takes_s(self._random))
            if (held.generation, held.action) != (generation, action):
                self.stage = None
                return  # overtaken by a newer wish; the tables stay as they were
        held.tables = None if action == "clear" else wish
        held.done_generation = generation
        self.stage = None
        self.counters["cleared" if action == "clear" else "programmed"] += 1
        self._changed()

    def power_lost(self) -> None:
        """The switches' tables are gone; the wishes on the card are not."""
        self.stage = None
        for held in self._held.values():
            held.tables, held.done_generation = None, 0
            if held.action == "clear":
                held.done_generation = held.generation

    # -- reports and memory --------------------------------------------------------------------------------------

    def report(self) -> LinkReport:
        """What this agent says of its node now; each call is the next in sequence."""
        self.sequence += 1
        programs = [
            ReportedProgram(slice=slice, generation=held.generation, status=held.status)
            for slice, held in sorted(self._held.items())
        ]
        ports = [
            ReportedPort(port=port, gbps=share * self._built_gbps[port])
            for port, share in sorted(self.hardware.ports.items())
            if share < 1 and port in self._built_gbps
        ]
        return LinkReport(
            node=self.hardware.name,
            epoch=self.epoch,
            sequence=self.sequence,
            lease_seconds=self._lease_s,
            programs=programs,
            ports=ports,
        )

    def tables(self, slice: str) -> dict[str, Any] | None:
        """What the node's switches forward a slice by now."""
        held = self._held.get(slice)
        return held.tables if held else None

    def memory(self) -> dict[str, Any]:
        """What the agent keeps on its card across its own restarts."""
        return {"epoch": self.epoch, "held": {slice: dict(vars(held)) for slice, held in self._held.items()}}

    def restore(self, memory: dict[str, Any]) -> None:
        """Begin the next life where the last one ended, one epoch on; what was half programmed is begun anew."""
        self._held = {slice: Held(**held) for slice, held in memory["held"].items()}
        self.epoch = memory["epoch"] + 1
        self.sequence = 0
        self.stage = None
        self._wake.set()


def _work_for(tables: dict[str, Any] | None, wish: dict[str, Any] | None) -> str:
    if tables is None or wish is None:
        return "program"
    return "renumber" if all(tables.get(key) == wish.get(key) for key in ROUTES) else "update"


@cache
def _default() -> Stages:
    text = files("matrixlink").joinpath("link_stages.yaml").read_text()
    return read_stages(yaml.safe_load(text), "link_stages.yaml")


def link_stages(path: Path | None = None) -> Stages:
    """The stages of emulated link agents: the built-in file, with the work that `path` gives replaced."""
    if path is None:
        return _default()
    return _default() | read_stages(yaml.safe_load(path.read_text()), str(path))
