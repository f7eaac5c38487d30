"""ReportPace: how far apart a node's reports are, by what this process is able to send.

One process plays many nodes, and one machine may play more than it can keep up with. A lease that only a faster machine
could renew would have the service give up nodes whose agents live, so who is behind asks for longer ones, in proportion
to the pace at which reports really come: as long as its machine keeps up that is never more than a node's own. Who is
behind also rests between its rounds, so that what it reports to gets a word in edgeways.
"""

from __future__ import annotations

import logging
from collections import deque

from matrixcommon.model.clock import Clock, Seconds, seconds_now

log = logging.getLogger(__name__)

LEASE_PERIODS = 3.0
"""A lease outlives two reports that are lost: 30 s for a heartbeat every 10. Who begins to be behind is given up after
so many intervals of silence: as many as its own lease gives one that is about to be. Were it more, who is hardly behind
would be found dead twice as late as who hardly keeps up. Who is far behind asks for leases of so many intervals; in
between it goes by how far."""
BEHIND_PERIODS = 2.0
"""Reports that are further apart than this many periods are behind; up to there a node's own lease does."""
FAR_BEHIND_PERIODS = 4.0
ROUNDS_REMEMBERED = 8
"""A machine that stalled stalls again: the longest of so many rounds counts."""
REST = 0.5
"""Of the time that a round took, where it took longer than its period."""


class ReportPace:
    """Of one line. `begin` a round of so many calls, `sent` after each of them, `end` it; seconds are emulated.
    `lost_after`: the leases of silence after which its service gives an agent up."""

    def __init__(self, name: str, clock: Clock, period_s: Seconds, lost_after: float = 1.0) -> None:
        self._name = name
        self._clock = clock
        self._period = period_s
        self._lost_after = lost_after
        self._changes = clock.changes
        self._intervals: deque[float] = deque(maxlen=ROUNDS_REMEMBERED)
        self._began_at: float | None = None
        self._calls = self._done = 0
        self._logged = False

    @property
    def untried(self) -> bool:
        """Whether nothing is known yet of what a call costs."""
        return self._began_at is None

    @property
    def _period_s(self) -> float:
        return seconds_now(self._period)

    def begin(self, calls: int) -> None:
        now = self._clock.now()
        if self._changes != self._clock.changes:  # intervals of another speed say nothing of this one
            self._changes, self._began_at = self._clock.changes, None
            self._intervals.clear()
        if self._began_at is not None:
            self._intervals.append(now - self._began_at)
        self._began_at, self._calls, self._done = now, calls, 0

    def sent(self) -> None:
        self._done += 1

    def end(self) -> float:
        """When the next round is due."""
        assert self._began_at is not None
        now = self._clock.now()
        took_s = now - self._began_at
        if self.behind != self._logged:
            self._logged = self.behind
            facts = {"line": self._name, "round_s": round(took_s, 1), "interval_s": round(self.interval_s, 1)}
            log.warning("reports are behind" if self._logged else "reports keep up again", extra=facts)
        rest_s = REST * took_s if took_s > self._period_s else 0.0
        return max(self._began_at + self._period_s, now + rest_s)

    @property
    def interval_s(self) -> float:
        """How long it takes, at worst, until a node is reported again: by rounds that were, and what this one costs."""
        took_s = 0.0 if self._began_at is None else self._clock.now() - self._began_at
        by_cost = (1 + REST) * self._calls * took_s / self._done if self._done else 0.0
        return max(self._period_s, by_cost, took_s, *self._intervals)

    @property
    def behind(self) -> bool:
        return self.interval_s > BEHIND_PERIODS * self._period_s

    @property
    def lease_s(self) -> float:
        """The lease to ask for now, where a node's own would run out before it could be renewed; else 0."""
        if not self.behind:
            return 0.0
        periods = self.interval_s / self._period_s
        far = min(1.0, (periods - BEHIND_PERIODS) / (FAR_BEHIND_PERIODS - BEHIND_PERIODS))
        begins = LEASE_PERIODS / self._lost_after
        return (begins + far * (LEASE_PERIODS - begins)) * self.interval_s
