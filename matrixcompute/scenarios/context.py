"""RunContext: what the parts of one run share: the world, the time, the journal, and whether to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from matrixcommon.model.clock import Clock, pause
from matrixcompute.scenarios.report import Entry, Verdict
from matrixcompute.scenarios.schema import Scenario
from matrixcompute.scenarios.world import World

LOOK_S, LOOK_S_MAX, LOOK_FLOOR_WALL_S = 1.0, 10.0, 0.25
"""How often the services are looked at: emulated, and by the wall so that they have time for their work."""
LOOK_SHARE = 0.02
"""Of the time that a fault has lasted: what takes long is looked at less often, to the same relative precision."""
LEAST_PAUSE_S = 0.05
LIMIT_FLOOR_WALL_S = 6.0
"""What is expected is given as long on the wall: agents' leases, which last 2 s of the wall at least (two are missed
before a node is lost), the looks for those that ran out, and a busy host. In emulated time, 6 min at time scale 60."""


class Ended(Exception):
    """The run has its verdict before its time."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict: Verdict = verdict
        self.reason = reason


@dataclass
class RunContext:
    """`names` begins the names of all faults of the run; `tell` is called with every entry of the journal."""

    scenario: Scenario
    world: World
    clock: Clock
    names: str
    tell: Callable[[Entry], object]
    entries: list[Entry] = field(default_factory=list)
    stop_reason: str = ""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.started_at = self.clock.now()
        self.changed_at = self.started_at
        """When something was last done to the world."""

    @property
    def look_s(self) -> float:
        """How often the world is looked at (emulated seconds, at the present speed)."""
        return self.clock.at_least_wall(LOOK_S, LOOK_FLOOR_WALL_S)

    @property
    def least_s(self) -> float:
        """How long something is waited for at least (emulated seconds, at the present speed)."""
        return self.clock.at_least_wall(0.0, LIMIT_FLOOR_WALL_S)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return round(self.clock.now() - self.started_at, 3)

    def note(self, what: str, about: str, message: str = "") -> None:
        entry = Entry.model_validate({"at_s": self.seconds, "what": what, "about": about, "message": message})
        self.entries.append(entry)
        self.tell(entry)

    def check_stopped(self) -> None:
        """Raises Ended where somebody has stopped the run."""
        if self.stopping.is_set():
            self.note("stopped", self.stop_reason)
            raise Ended("STOPPED", self.stop_reason)

    async def pause(self, until: float) -> None:
        """Until the next look, or that time where it is nearer, or somebody stops the run."""
        now = self.clock.now()
        look_s = max(self.look_s, min(LOOK_S_MAX, LOOK_SHARE * (now - self.changed_at)))
        seconds = max(LEAST_PAUSE_S, min(look_s, until - now))
        await pause(self.clock, seconds, self.stopping)
