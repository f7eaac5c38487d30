"""RunContext: what the parts of one run share: the services, the clock, the journal, and whether to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from matrixcommon.model.clock import Clock, pause
from matrixcompute.scenarios.report import Entry, Verdict
from matrixcompute.scenarios.schema import Scenario
from matrixcompute.scenarios.service_clients import ServiceClients

POLL_S, POLL_S_MAX, POLL_FLOOR_WALL_S = 1.0, 10.0, 0.25
"""The interval between polls: emulated seconds, with a floor in wall time that leaves services time for their work."""
POLL_SHARE = 0.02
"""The interval as a share of the time since the last change: slow processes are read less often, at the same relative
precision."""
PAUSE_S_MIN = 0.05
LIMIT_FLOOR_WALL_S = 6.0
"""The shortest time limit of an expectation, in wall time. It covers agents' leases, which last at least 2 s of wall
time (two are missed before a node is lost), the checks for expired ones, and a busy host. At time scale 60 it is 6 min
of emulated time."""


class RunEnded(Exception):
    """The run has a verdict before its end."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict: Verdict = verdict
        self.reason = reason


@dataclass
class RunContext:
    """`fault_prefix`: the prefix of all the run's fault names. `on_entry` is called with each entry of the journal."""

    scenario: Scenario
    clients: ServiceClients
    clock: Clock
    fault_prefix: str
    on_entry: Callable[[Entry], object]
    entries: list[Entry] = field(default_factory=list)
    stop_reason: str = ""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.started_at = self.clock.now()
        self.changed_at = self.started_at
        """When a fault was last injected or cleared."""

    @property
    def poll_interval_s(self) -> float:
        """The interval between polls (emulated seconds, at the present speed)."""
        return self.clock.at_least_wall(POLL_S, POLL_FLOOR_WALL_S)

    @property
    def limit_s_min(self) -> float:
        """The shortest time limit (emulated seconds, at the present speed)."""
        return self.clock.at_least_wall(0.0, LIMIT_FLOOR_WALL_S)

    @property
    def seconds(self) -> float:
        """Emulated seconds since the start."""
        return round(self.clock.now() - self.started_at, 3)

    def record(self, what: str, about: str, message: str = "") -> None:
        entry = Entry.model_validate({"at_s": self.seconds, "what": what, "about": about, "message": message})
        self.entries.append(entry)
        self.on_entry(entry)

    def check_stopped(self) -> None:
        """Raises RunEnded if the run was stopped."""
        if self.stopping.is_set():
            self.record("stopped", self.stop_reason)
            raise RunEnded("STOPPED", self.stop_reason)

    async def pause(self, until: float) -> None:
        """Wait until the next poll is due, until `until`, or until the run is stopped, whichever comes first."""
        now = self.clock.now()
        poll_interval_s = max(self.poll_interval_s, min(POLL_S_MAX, POLL_SHARE * (now - self.changed_at)))
        seconds = max(PAUSE_S_MIN, min(poll_interval_s, until - now))
        await pause(self.clock, seconds, self.stopping)
