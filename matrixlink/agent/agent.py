"""LinkAgent: MatrixLink's software on one node's Qingtian card.

It holds the newest spec of each slice, works stage by stage to write it into the switches' tables, and reports which
generation of each is programmed, what it read back, which ports are below their rate, and which probes failed. It
refuses a spec older than the one it holds. Cut off from the control plane, it keeps forwarding on its last
configuration. The card keeps specs across a loss of power; the switches' tables do not survive it and are written
again, as they are whenever they are found to differ from what the agent wrote.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from matrixcommon.emulation.stages import Stages, load_stages
from matrixcommon.model.clock import Clock, Seconds, resolve_seconds
from matrixcommon.model.errors import MatrixError, StaleGeneration
from matrixlink.agent.counters import reported_counters
from matrixlink.agent.probing import AgentProbing
from matrixlink.agent.tables import Readback, digest
from matrixlink.contract.link_reports import LinkReport, ReportedPort, ReportedProgram
from matrixlink.contract.programs import DesiredProgram, ProgramView
from matrixlink.model.program_digest import DIGEST_FIELDS
from matrixlink.ports import Hardware, PortCounters


@dataclass
class HeldProgram:
    """One slice on one node: what is requested, which generation of it was completed, and the digest of what was then
    written (None: nothing should be in the tables)."""

    generation: int
    action: str
    desired: dict[str, Any] | None
    written: str | None = None
    done_generation: int = 0
    drifts: int = 0
    """How often the agent's own reading found its table different from what was written."""

    @property
    def done(self) -> bool:
        return self.done_generation == self.generation and (self.written is None) == (self.action == "clear")

    @property
    def status(self) -> str:
        if not self.done:
            return "Programming"
        return "Cleared" if self.action == "clear" else "Programmed"


class LinkAgent:
    """One node's agent. `hardware` is the node it runs on; `changed` is called whenever a report would have something
    new; `built_gbps` is every port's full rate; without `probing` it sends no probes, without `meters` it reports no
    counters."""

    def __init__(
        self,
        hardware: Hardware,
        built_gbps: dict[str, float],
        stages: Stages,
        clock: Clock,
        random: Random,
        changed: Callable[[], None] = lambda: None,
        lease_s: Seconds = 30.0,
        probing: AgentProbing | None = None,
        meters: PortCounters | None = None,
    ) -> None:
        self.hardware = hardware
        self.probing = probing
        self.meters = meters
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
        self._programs: dict[str, HeldProgram] = {}
        self._readback = Readback(hardware)
        self._wake = asyncio.Event()

    @property
    def node(self) -> str:
        return str(self.hardware.name)

    # -- orders --------------------------------------------------------------------------------------------------

    def ensure(self, program: ProgramView) -> None:
        """Accept a spec. Raises StaleGeneration if it is older than the present one; the same one again changes
        nothing."""
        desired = program.model_dump(mode="json") if program.action == "program" else None
        self._order(program.slice, program.generation, program.action, desired)

    def apply_answer(self, desired: list[DesiredProgram]) -> None:
        """Apply everything that the answer to a report requests; forget what is cleared and no longer requested."""
        for each in desired:
            try:
                if each.program is not None:
                    if each.again:
                        self._rewrite(each.slice, each.generation)
                    self.ensure(each.program)
                elif each.action == "clear":
                    self._order(each.slice, each.generation, "clear", None)
            except MatrixError:
                self.counters["refused"] += 1
        spec = {each.slice for each in desired}
        for slice in [s for s, program in self._programs.items() if program.status == "Cleared" and s not in spec]:
            del self._programs[slice]
            self._changed()

    def _order(self, slice: str, generation: int, action: str, desired: dict[str, Any] | None) -> None:
        program = self._programs.get(slice)
        if program is not None and generation < program.generation:
            self.counters["stale"] += 1
            raise StaleGeneration(f"{self.node} holds generation {program.generation} of {slice}, not {generation}")
        if program is not None and (generation, action) == (program.generation, program.action):
            return
        if program is None:
            program = self._programs[slice] = HeldProgram(generation, action, desired)
        program.generation, program.action, program.desired = generation, action, desired
        self._wake.set()
        self._changed()

    # -- work ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work on specs as they come, forever. Ends only by cancellation."""
        while True:
            self._wake.clear()
            await self.drain_queue()
            await self._wake.wait()

    async def drain_queue(self) -> None:
        """Work until every spec is fulfilled, one slice at a time."""
        while (
            slice := next((slice for slice, program in self._programs.items() if not program.done), None)
        ) is not None:
            await self._work(slice, self._programs[slice])

    async def _work(self, slice: str, program: HeldProgram) -> None:
        generation, action, desired = program.generation, program.action, program.desired
        work = "clear" if action == "clear" else _work_kind(self.tables(slice), desired)
        for stage in self._stages[work]:
            self.stage = f"{slice}: {stage.stage}"
            await self._clock.sleep(stage.takes_s(self._random))
            if (program.generation, program.action) != (generation, action):
                self.stage = None
                return  # superseded by a newer spec; the tables stay as they were
        if desired is None:
            self.hardware.tables.pop(slice, None)
        else:
            self.hardware.tables[slice] = desired
        program.written = None if desired is None else digest(desired)
        program.done_generation = generation
        self.stage = None
        self.counters["cleared" if action == "clear" else "programmed"] += 1
        self._changed()

    def power_lost(self) -> None:
        """Lose the switches' tables, but not the specs on the card."""
        self.stage = None
        self.hardware.tables.clear()
        for program in self._programs.values():
            program.written, program.done_generation = None, 0
            if program.action == "clear":
                program.done_generation = program.generation

    # -- drift -------------------------------------------------------------------------------------------------------

    def audit(self) -> list[str]:
        """Read every table back. Tables that differ from what was written are scheduled to be written again; tables
        that nobody wrote are removed. Return the slices concerned."""
        drifted = []
        for slice, program in self._programs.items():
            if program.done and self._readback.digest(slice) != program.written:
                program.done_generation, program.drifts = 0, program.drifts + 1
                drifted.append(slice)
        for slice in [each for each in self.hardware.tables if each not in self._programs]:
            del self.hardware.tables[slice]
            drifted.append(slice)
        if drifted:
            self.counters["drifted"] += len(drifted)
            self._wake.set()
        return drifted

    def _rewrite(self, slice: str, generation: int) -> None:
        """Handle MatrixLink's finding that a table's digest differs from the request although the generation matches:
        forget what is held of it, so that the whole spec is applied again."""
        program = self._programs.get(slice)
        if program is not None and program.generation == generation and program.done:
            program.generation = program.done_generation = -1
            self.counters["drifted"] += 1

    # -- reports and memory --------------------------------------------------------------------------------------

    def report(self) -> LinkReport:
        """The agent's report on its node now, with tables read back and probes sent; each call is the next in
        sequence."""
        self.audit()
        self.sequence += 1
        programs = [
            ReportedProgram(
                slice=slice, generation=program.generation, status=program.status, drifts=program.drifts,
                digest=self._readback.digest(slice) if program.status == "Programmed" else None,
            )
            for slice, program in sorted(self._programs.items())
        ]  # fmt: skip
        ports = [
            ReportedPort(port=port, gbps=share * self._built_gbps[port])
            for port, share in sorted(self.hardware.ports.items())
            if share < 1 and port in self._built_gbps
        ]
        return LinkReport(
            node=self.hardware.name,
            epoch=self.epoch,
            sequence=self.sequence,
            lease_seconds=resolve_seconds(self._lease_s),
            programs=programs,
            ports=ports,
            probes=self.probing.report(self._clock.now(), self.hardware.ports) if self.probing else None,
            counters=reported_counters(self.meters.read(self.node)) if self.meters else None,
        )

    def tables(self, slice: str) -> dict[str, Any] | None:
        """The node's current forwarding state for a slice."""
        return self.hardware.tables.get(slice)

    def memory(self) -> dict[str, Any]:
        """What outlives the agent: the card's memory, and the switches' tables, which are not on the card and persist
        without it."""
        program = {slice: dict(vars(program)) for slice, program in self._programs.items()}
        return {"epoch": self.epoch, "programs": program, "tables": dict(self.hardware.tables)}

    def restore(self, memory: dict[str, Any]) -> None:
        """Start again where the last run ended, with the next epoch; half-finished work restarts."""
        self._programs = {slice: HeldProgram(**current) for slice, current in memory["programs"].items()}
        tables = dict(memory["tables"])
        self.hardware.tables.clear()
        self.hardware.tables.update(tables)
        self.epoch = memory["epoch"] + 1
        self.sequence = 0
        self.stage = None
        self._wake.set()


def _work_kind(tables: dict[str, Any] | None, desired: dict[str, Any] | None) -> str:
    if tables is None or desired is None:
        return "program"
    return "renumber" if all(tables.get(key) == desired.get(key) for key in DIGEST_FIELDS) else "update"


def link_stages(path: Path | None = None) -> Stages:
    """How long a link agent's work takes: the built-in file, with the entries of `path` replacing it."""
    return load_stages("matrixlink.agent", "link_stages.yaml", path)
