"""ReportPace: the interval of a node's reports, given what this process is able to send.

One process emulates many nodes, possibly more than its host can keep up with. With a lease that only a faster host
could renew, the service would count live agents as lost. So a process that is behind requests longer leases, in
proportion to its real pace; as long as the host keeps up, leases are never longer than configured. A process that is
behind also rests between rounds, so that the service has time for other work.
"""

from __future__ import annotations

import logging
from collections import deque

from matrixcommon.model.clock import Clock, Seconds, resolve_seconds

log = logging.getLogger(__name__)

LEASE_PERIODS = 3.0
"""A lease survives two lost reports: 30 s for a heartbeat every 10 s. An agent that is just behind is counted as lost
after this many intervals of silence, like one that just keeps up; with more, detection would suddenly take twice as
long. An agent that is far behind requests leases of this many intervals; in between, the lease grows linearly."""
BEHIND_PERIODS = 2.0
"""Reports are behind if they are further apart than this many periods; up to there the configured lease is enough."""
FAR_BEHIND_PERIODS = 4.0
ROUNDS_REMEMBERED = 8
"""The longest of this many rounds counts, as a host that stalled tends to stall again."""
REST_FRACTION = 0.5
"""The rest after a round that took longer than its period, as a fraction of its duration."""


class ReportPace:
    """The pace of one channel. Call `begin_round` for a round of so many calls, `record_call` after each of them, and
    `end_round`; seconds are emulated. `leases_until_lost`: the number of silent leases after which its service counts
    an agent as lost."""

    def __init__(self, name: str, clock: Clock, period_s: Seconds, leases_until_lost: float = 1.0) -> None:
        self._name = name
        self._clock = clock
        self._period = period_s
        self._leases_until_lost = leases_until_lost
        self._changes = clock.changes
        self._intervals: deque[float] = deque(maxlen=ROUNDS_REMEMBERED)
        self._began_at: float | None = None
        self._calls = self._calls_done = 0
        self._logged = False

    @property
    def unmeasured(self) -> bool:
        """Whether the cost of a call is not known yet."""
        return self._began_at is None

    @property
    def _period_s(self) -> float:
        return resolve_seconds(self._period)

    def begin_round(self, calls: int) -> None:
        now = self._clock.now()
        if self._changes != self._clock.changes:  # intervals at another clock speed do not count
            self._changes, self._began_at = self._clock.changes, None
            self._intervals.clear()
        if self._began_at is not None:
            self._intervals.append(now - self._began_at)
        self._began_at, self._calls, self._calls_done = now, calls, 0

    def record_call(self) -> None:
        self._calls_done += 1

    def end_round(self) -> float:
        """End the round. Return when the next one is due."""
        assert self._began_at is not None
        now = self._clock.now()
        took_s = now - self._began_at
        if self.behind != self._logged:
            self._logged = self.behind
            facts = {"line": self._name, "round_s": round(took_s, 1), "interval_s": round(self.interval_s, 1)}
            log.warning("reports are behind" if self._logged else "reports are on time again", extra=facts)
        rest_s = REST_FRACTION * took_s if took_s > self._period_s else 0.0
        return max(self._began_at + self._period_s, now + rest_s)

    @property
    def interval_s(self) -> float:
        """The longest interval between two reports of a node, from former rounds and the cost of the present one."""
        took_s = 0.0 if self._began_at is None else self._clock.now() - self._began_at
        by_cost = (1 + REST_FRACTION) * self._calls * took_s / self._calls_done if self._calls_done else 0.0
        return max(self._period_s, by_cost, took_s, *self._intervals)

    @property
    def behind(self) -> bool:
        return self.interval_s > BEHIND_PERIODS * self._period_s

    @property
    def lease_s(self) -> float:
        """The lease to request now, if the configured one would expire before it could be renewed; else 0."""
        if not self.behind:
            return 0.0
        periods = self.interval_s / self._period_s
        lag = min(1.0, (periods - BEHIND_PERIODS) / (FAR_BEHIND_PERIODS - BEHIND_PERIODS))
        periods_min = LEASE_PERIODS / self._leases_until_lost
        return (periods_min + lag * (LEASE_PERIODS - periods_min)) * self.interval_s
