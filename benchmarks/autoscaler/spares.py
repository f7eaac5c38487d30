"""Spares beside the pools of a simulated policy: booted members, which can serve sooner than a free node."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Spares:
    """`count` spare members beside the pools. A spare that is taken serves after `join_s`, and another boots in its
    place; if none is ready, a new member serves after `start_s`. All spares are paid for all the time."""

    count: int
    start_s: float
    join_s: float
    ready: int = 0
    booting: list[float] = field(default_factory=list)
    """When each will be ready (s)."""
    taken: int = 0

    def __post_init__(self) -> None:
        self.ready = self.count

    def start(self, members: int, now: float) -> list[float]:
        """Take that many new members. Returns when each will serve."""
        promoted = min(members, self.ready)
        self.ready, self.taken = self.ready - promoted, self.taken + promoted
        self.booting += [now + max(0.0, self.start_s - self.join_s)] * promoted
        return [now + self.join_s] * promoted + [now + self.start_s] * (members - promoted)

    def advance(self, now: float) -> None:
        """Mark spares that have booted as ready."""
        waiting = [at for at in self.booting if at > now]
        self.ready, self.booting = self.ready + len(self.booting) - len(waiting), waiting
