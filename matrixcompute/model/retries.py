"""When what was refused is tried again, and whose turn it is among those that wait for room.

To try costs the services what it costs, however fast emulated time is and however many wait. So there is a floor in
time of the wall; of those that ask for the same one asks, since what it is refused the others would be too; and few ask
at a time. Kubernetes' scheduler backs off by each pod, Borg scores one task of an equivalence class.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from matrixcommon.model.clock import Clock

RETRY_S, RETRY_FLOOR_WALL_S = 30.0, 3.0
"""A refused spec is tried again this much later."""
SHAPE_WALL_S = 0.1
"""The more shapes wait, the longer each of them rests: as if one were tried after the other, for so long each."""
ASKING_MAX = 8
"""So many ask for room at a time, of those that were refused before."""


def due_at(retry_at: float, clock: Clock, floor_wall_s: float = RETRY_FLOOR_WALL_S) -> float:
    """When it is tried again (s, emulated), at the present speed; `retry_at` is RETRY_S after it was refused, or 0 for
    at once."""
    return retry_at - RETRY_S + clock.at_least_wall(RETRY_S, floor_wall_s) if retry_at else 0.0


class Refusals:
    """Who was refused lately, by name, and is not asked about again yet. Another life of the process asks at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._retry_at: dict[str, float] = {}

    def note(self, name: str) -> None:
        """It was refused now. Whose time has come is forgotten."""
        kept = {each: at for each, at in self._retry_at.items() if self.rests(each)}
        self._retry_at = kept | {name: self._clock.now() + RETRY_S}

    def rests(self, name: str) -> bool:
        return self._clock.now() < due_at(self._retry_at.get(name, 0.0), self._clock)

    def __len__(self) -> int:
        return len(self._retry_at)


@dataclass(frozen=True)
class Waiting:
    """An instance that was refused. `shape`: what it asks for, and whose it is, the same for all that are alike."""

    name: str
    shape: str
    priority: int
    retry_at: float


def whose_turn(waiting: Iterable[Waiting], asking: Collection[str], clock: Clock) -> set[str]:
    """Who asks for room now, by name: of each shape the one that was refused the longest ago, the highest priority
    first. `asking`: the shapes of those that ask already."""
    alike: dict[str, list[Waiting]] = {}
    for each in waiting:
        alike.setdefault(each.shape, []).append(each)
    floor_wall_s, now = max(RETRY_FLOOR_WALL_S, SHAPE_WALL_S * len(alike)), clock.now()
    next_ones = [
        min(those, key=lambda each: (each.retry_at, each.name))
        for shape, those in alike.items()
        if shape not in asking and max(due_at(each.retry_at, clock, floor_wall_s) for each in those) <= now
    ]
    next_ones.sort(key=lambda each: (-each.priority, each.retry_at, each.name))
    return {each.name for each in next_ones[: max(0, ASKING_MAX - len(asking))]}
