"""When a refused request is retried, and which of the instances that wait for room ask next.

An attempt costs the services the same, however fast emulated time runs and however many instances wait. So the backoff
has a floor in wall time; of instances with equal specs only one asks, since the others would be refused too; and few
ask at a time. The Kubernetes scheduler backs off per pod; Borg scores one task per equivalence class.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from matrixcommon.model.clock import Clock

RETRY_S, RETRY_FLOOR_WALL_S = 30.0, 3.0
"""The delay before a refused spec is retried."""
PER_SHAPE_WALL_S = 0.1
"""Wall time per waiting shape: the more shapes wait, the longer each backs off, as if they were tried in turn."""
CONCURRENT_RETRIES_MAX = 8
"""How many previously refused instances may ask for room at a time."""


def due_at(retry_at: float, clock: Clock, floor_wall_s: float = RETRY_FLOOR_WALL_S) -> float:
    """When to retry (s, emulated), at the present speed. `retry_at`: RETRY_S after the refusal, or 0 for at once."""
    return retry_at - RETRY_S + clock.at_least_wall(RETRY_S, floor_wall_s) if retry_at else 0.0


class RefusalBackoff:
    """The names refused recently that are backing off. Not stored: after a restart they are retried at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._retry_at: dict[str, float] = {}

    def record(self, name: str) -> None:
        """Record a refusal now, and forget those whose retry is due."""
        kept = {each: at for each, at in self._retry_at.items() if self.backing_off(each)}
        self._retry_at = kept | {name: self._clock.now() + RETRY_S}

    def backing_off(self, name: str) -> bool:
        return self._clock.now() < due_at(self._retry_at.get(name, 0.0), self._clock)

    def __len__(self) -> int:
        return len(self._retry_at)


@dataclass(frozen=True)
class WaitingInstance:
    """An instance that was refused. `shape`: its project and spec as text, equal for instances that ask the same."""

    name: str
    shape: str
    priority: int
    retry_at: float


def select_retries(waiting: Iterable[WaitingInstance], requested: Collection[str], clock: Clock) -> set[str]:
    """The names of the instances that ask for room now: of each shape the one refused longest ago, by descending
    priority. `requested`: the shapes that are being asked for already."""
    by_shape: dict[str, list[WaitingInstance]] = {}
    for each in waiting:
        by_shape.setdefault(each.shape, []).append(each)
    floor_wall_s, now = max(RETRY_FLOOR_WALL_S, PER_SHAPE_WALL_S * len(by_shape)), clock.now()
    candidates = [
        min(group, key=lambda each: (each.retry_at, each.name))
        for shape, group in by_shape.items()
        if shape not in requested and max(due_at(each.retry_at, clock, floor_wall_s) for each in group) <= now
    ]
    candidates.sort(key=lambda each: (-each.priority, each.retry_at, each.name))
    return {each.name for each in candidates[: max(0, CONCURRENT_RETRIES_MAX - len(requested))]}
