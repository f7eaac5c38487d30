"""FailureBackoff: the instances whose reconciliation failed, and when each is retried.

A failed attempt costs a second pass over all instances, and a traceback in the log. So the backoff doubles with each
failure, up to a limit, as in a workqueue. An instance that has changed is retried at once, since the change may be the
cure.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from matrixcommon.model.clock import Clock
from matrixcompute.reconcilers.findings import ClusterSnapshot

BACKOFF_S, BACKOFF_WALL_S = 5.0, 0.5
"""The backoff after the first failure, in emulated and at least in wall seconds; it doubles with each further one."""
DOUBLINGS_MAX = 6
"""Limits the backoff to 320 s, or 32 s of wall time."""


@dataclass(frozen=True)
class _Failure:
    """What was seen of an instance when its reconciliation failed, the cause, the failures in a row, and the time."""

    observed: tuple[object, ...]
    cause: Exception
    count: int
    at: float


class FailureBackoff:
    """Kept in memory: after a restart all instances are tried at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[str, _Failure] = {}

    def backing_off(self, snapshot: ClusterSnapshot) -> dict[str, Exception]:
        """The instances that are backing off now, each with the cause of its failure."""
        return {
            name: each.cause
            for name, each in self._failures.items()
            if each.observed == _observed(name, snapshot) and self._clock.now() < each.at + self._backoff_s(each.count)
        }

    def record(self, name: str, cause: Exception, snapshot: ClusterSnapshot) -> None:
        """Record a failure now."""
        before = self._failures.get(name)
        count = 1 + (before.count if before is not None else 0)
        self._failures[name] = _Failure(_observed(name, snapshot), cause, count, self._clock.now())

    def retain(self, names: Collection[str]) -> None:
        """Forget all others: they were reconciled, or are gone."""
        self._failures = {name: each for name, each in self._failures.items() if name in names}

    def _backoff_s(self, count: int) -> float:
        factor = 2.0 ** min(count - 1, DOUBLINGS_MAX)
        return self._clock.at_least_wall(BACKOFF_S * factor, BACKOFF_WALL_S * factor)


def _observed(name: str, snapshot: ClusterSnapshot) -> tuple[object, ...]:
    return snapshot.versions.get(name), snapshot.allocations.get(name), tuple(snapshot.slices.get(name, ()))
