"""PassedOver: the instances that nobody could make sense of, and when each is tried again.

To try one costs all instances a second look, and the log a traceback. So one that fails again rests longer each time,
up to a bound, as an item of a workqueue does. One of which anything is new is tried at once: that may be what it
lacked.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from matrixcommon.model.clock import Clock
from matrixcompute.reconcilers.findings import Surroundings

BACKOFF_S, BACKOFF_WALL_S = 5.0, 0.5
"""How long one rests after its first failure; twice as long after each further one."""
DOUBLINGS_MAX = 6
"""Then it is no longer than 320 s, or 32 s of the wall."""


@dataclass(frozen=True)
class _Failure:
    """What was seen of an instance when looking at it failed, why, how often in a row by then, and when."""

    seen: tuple[object, ...]
    cause: Exception
    times: int
    at: float


class PassedOver:
    """Of one process: another life tries all of them at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[str, _Failure] = {}

    def resting(self, around: Surroundings) -> dict[str, Exception]:
        """Who is not tried now, each with its cause."""
        return {
            name: each.cause
            for name, each in self._failures.items()
            if each.seen == _seen(name, around) and self._clock.now() < each.at + self._backoff_s(each.times)
        }

    def note(self, name: str, cause: Exception, around: Surroundings) -> None:
        """Looking at it has failed now."""
        before = self._failures.get(name)
        times = 1 + (before.times if before is not None else 0)
        self._failures[name] = _Failure(_seen(name, around), cause, times, self._clock.now())

    def keep(self, names: Collection[str]) -> None:
        """All others were looked at, or are gone."""
        self._failures = {name: each for name, each in self._failures.items() if name in names}

    def _backoff_s(self, times: int) -> float:
        factor = 2.0 ** min(times - 1, DOUBLINGS_MAX)
        return self._clock.at_least_wall(BACKOFF_S * factor, BACKOFF_WALL_S * factor)


def _seen(name: str, around: Surroundings) -> tuple[object, ...]:
    return around.versions.get(name), around.allocations.get(name), tuple(around.slices.get(name, ()))
