"""The parts of one node that several allocations share, as the node's agent handles them.

A part is some dies, sockets and memory for one allocation. Each part is prepared and released independently of the
others and of what the node does as a whole. What a part has to do follows from what is requested of it and what it
holds, so a part that was interrupted anywhere (by loss of power, or a restart of the agent) resumes from there.

A die never belongs to two parts: a part gives up dies by wiping them, without waiting for anyone, and takes a die only
when no other part holds it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from matrixcommon.emulation.stages import Stages
from matrixcommon.model.clock import Clock
from matrixresource.contract.agents import DesiredPartition, PartReport


@dataclass
class Part:
    """What one allocation has of a node. Without a spec it is to be wiped and forgotten."""

    desired: DesiredPartition | None
    assigned_dies: frozenset[int] = frozenset()
    """Dies that were taken and not wiped since."""
    prepared: DesiredPartition | None = None
    """The spec that was last fully prepared, unless power was lost since."""

    @property
    def desired_dies(self) -> frozenset[int]:
        return frozenset(self.desired.dies) if self.desired is not None else frozenset()

    @property
    def status(self) -> str:
        """What it is, or is about to become: pending work counts as begun."""
        if self.desired is None or self.assigned_dies - self.desired_dies:
            return "Releasing"
        return "Active" if self.prepared is not None and _satisfies(self.prepared, self.desired) else "Preparing"


def _satisfies(prepared: DesiredPartition, spec: DesiredPartition) -> bool:
    """Whether what was prepared satisfies the spec. A change of rank needs no work."""
    return prepared.model_copy(update={"rank": spec.rank}) == spec


class Partitions:
    """The parts of one node. `enrolled` says whether the node may be worked on yet; `changed` is called on every
    change."""

    def __init__(
        self,
        stages: Stages,
        clock: Clock,
        random: Random,
        changed: Callable[[], None],
        enrolled: Callable[[], bool],
        present: Callable[[], frozenset[int]],
    ) -> None:
        """`present`: the dies that the node has."""
        self._stages = stages
        self._clock = clock
        self._random = random
        self._changed = changed
        self._enrolled = enrolled
        self._present = present
        self._parts: dict[str, Part] = {}
        self._wakeup = asyncio.Event()

    def ensure(self, requests: Iterable[DesiredPartition]) -> None:
        """Set the requested parts; all others are to be wiped."""
        desired = {spec.allocation: spec for spec in requests}
        for allocation in self._parts.keys() - desired.keys():
            self._parts[allocation].desired = None
        for allocation, spec in desired.items():
            self._parts.setdefault(allocation, Part(spec)).desired = spec
        self.wake()

    def wake(self) -> None:
        """Check again what is due."""
        self._wakeup.set()

    def reports(self) -> list[PartReport]:
        return [
            PartReport(allocation=allocation, status="Failed" if why else part.status, message=why)
            for allocation, part in sorted(self._parts.items())
            for why in [self._blocking_reason(allocation, part)]
        ]

    def _blocking_reason(self, allocation: str, part: Part) -> str:
        """Why the spec cannot be fulfilled; empty if it can."""
        if part.desired is None or part.assigned_dies - part.desired_dies:
            return ""
        missing = part.desired_dies - self._present()
        if missing:
            return f"the node has no die {', '.join(map(str, sorted(missing)))}"
        for other, other_part in self._parts.items():
            shared = part.desired_dies & other_part.desired_dies
            if other != allocation and shared:
                return f"die {', '.join(map(str, sorted(shared)))} is also requested for {other}"
        return ""

    # -- work ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work on every part that has work pending, each concurrently, forever. Ends only by cancellation."""
        busy: set[str] = set()  # per run: work of a run that is ending must not block the next run
        async with asyncio.TaskGroup() as group:
            while True:
                self._wakeup.clear()
                for allocation, part in self._parts.items() if self._enrolled() else ():
                    if allocation not in busy and self._can_begin(allocation, part):
                        busy.add(allocation)
                        group.create_task(self._work(self._begin(allocation, part), allocation, busy))
                await self._wakeup.wait()

    def _can_begin(self, allocation: str, part: Part) -> bool:
        if part.status == "Releasing":
            return True
        if part.status == "Active" or self._blocking_reason(allocation, part):
            return False
        return not any(
            other_part.assigned_dies & part.desired_dies
            for other, other_part in self._parts.items()
            if other != allocation
        )

    def _begin(self, allocation: str, part: Part) -> Callable[[], Awaitable[None]]:
        """The work that is due. Takes its dies at once, so that no other part can start on them."""
        if part.status == "Releasing" or part.desired is None:
            return partial(self._release, allocation, part)
        part.assigned_dies |= part.desired_dies
        return partial(self._prepare, part, part.desired)

    async def _work(self, work: Callable[[], Awaitable[None]], allocation: str, busy: set[str]) -> None:
        self._changed()
        await work()
        busy.discard(allocation)
        self._changed()
        self.wake()

    async def _prepare(self, part: Part, spec: DesiredPartition) -> None:
        for stage in self._stages["prepare-part"]:
            await self._clock.sleep(stage.takes_s(self._random))
            if part.desired is None or not _satisfies(spec, part.desired):
                break
        else:
            part.prepared = spec

    async def _release(self, allocation: str, part: Part) -> None:
        is_whole, surplus = part.desired is None, part.assigned_dies - part.desired_dies
        part.prepared = None
        for stage in self._stages["release-part"]:
            await self._clock.sleep(stage.takes_s(self._random))
        part.assigned_dies -= surplus
        if is_whole and part.desired is None and self._parts.get(allocation) is part:
            del self._parts[allocation]

    def power_lost(self) -> None:
        """Lose what was running on the parts; what is on them still has to be wiped."""
        for part in self._parts.values():
            part.prepared = None

    # -- memory --------------------------------------------------------------------------------------------------

    def memory(self) -> dict[str, Any]:
        """What the card keeps, by allocation."""
        return {
            allocation: {
                "desired": part.desired.wire() if part.desired is not None else None,
                "assigned_dies": sorted(part.assigned_dies),
                "prepared": part.prepared.wire() if part.prepared is not None else None,
            }
            for allocation, part in self._parts.items()
        }

    def restore(self, memory: dict[str, Any]) -> None:
        """Start again with these parts; interrupted work restarts."""
        self._parts = {
            allocation: Part(
                _parse_partition(stored["desired"]),
                frozenset(stored["assigned_dies"]),
                _parse_partition(stored["prepared"]),
            )
            for allocation, stored in memory.items()
        }


def _parse_partition(desired: dict[str, Any] | None) -> DesiredPartition | None:
    return DesiredPartition.from_stored(desired) if desired is not None else None
