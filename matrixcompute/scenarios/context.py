"""RunContext: what the parts of one run share: the services, the clock, the journal, and whether to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from matrixcommon.model.clock import Clock, pause
from matrixcompute.scenarios.report import Entry, Verdict
from matrixcompute.scenarios.schema import Scenario
from matrixcompute.scenarios.world import World

LOOK_S, LOOK_S_MAX, LOOK_FLOOR_WALL_S = 1.0, 10.0, 0.25
"""The interval between looks: emulated seconds, with a floor in wall time that leaves services time for their work."""
LOOK_SHARE = 0.02
"""The interval as a share of the time since the last change: slow processes are read less often, at the same relative
precision."""
LEAST_PAUSE_S = 0.05
LIMIT_FLOOR_WALL_S = 6.0
"""The shortest time limit of an expectation, in wall time. It covers agents' leases, which last at least 2 s of wall
time (two are missed before a node is lost), the checks for expired ones, and a busy host. At time scale 60 it is 6 min
of emulated time."""


class Ended(Exception):
    """The run has a verdict before its end."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict: Verdict = verdict
        self.reason = reason


@dataclass
class RunContext:
    """`names`: the prefix of all the run's fault names. `tell` is called with each entry of the journal."""

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
        """When a fault was last injected or cleared."""

    @property
    def look_s(self) -> float:
        """The interval between looks (emulated seconds, at the present speed)."""
        return self.clock.at_least_wall(LOOK_S, LOOK_FLOOR_WALL_S)

    @property
    def least_s(self) -> float:
        """The shortest time limit (emulated seconds, at the present speed)."""
        return self.clock.at_least_wall(0.0, LIMIT_FLOOR_WALL_S)

    @property
    def seconds(self) -> float:
        """Emulated seconds since the start."""
        return round(self.clock.now() - self.started_at, 3)

    def note(self, what: str, about: str, message: str = "") -> None:
        entry = Entry.model_validate({"at_s": self.seconds, "what": what, "about": about, "message": message})
        self.entries.append(entry)
        self.tell(entry)

    def check_stopped(self) -> None:
        """Raises Ended if the run was stopped."""
        if self.stopping.is_set():
            self.note("stopped", self.stop_reason)
            raise Ended("STOPPED", self.stop_reason)

    async def pause(self, until: float) -> None:
        """Wait until the next look is due, until `until`, or until the run is stopped, whichever comes first."""
        now = self.clock.now()
        look_s = max(self.look_s, min(LOOK_S_MAX, LOOK_SHARE * (now - self.changed_at)))
        seconds = max(LEAST_PAUSE_S, min(look_s, until - now))
        await pause(self.clock, seconds, self.stopping)
