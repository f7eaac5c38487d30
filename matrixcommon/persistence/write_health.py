"""WriteHealth: whether a database takes writes, as far as its own process has experienced it.

A database that is full, read-only or a standby still answers reads, so only a write finds out. Every write of the
process says how it went. A refusal counts for a while, or until a write succeeds; where there was no write for long, a
probe is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable

REFUSAL_VALID_WALL_S = 5.0
"""How long a refused write counts, if none succeeds. A probe may be small enough to be accepted where a larger write
is not, so it does not outweigh a recent refusal."""
PROBE_PERIOD_WALL_S = 30.0
"""How old the last successful write may be before a probe is written."""


class WriteHealth:
    """The experience of one process with one database. `probe` commits a write that changes nothing, or raises."""

    def __init__(self, probe: Callable[[], object], wall: Callable[[], float] = time.monotonic) -> None:
        self._probe = probe
        self._wall = wall
        self._refusal: Exception | None = None
        self._since = wall()
        """When the last write was refused or accepted."""

    def accepted(self) -> None:
        """A write was committed."""
        self._refusal, self._since = None, self._wall()

    def refused(self, refusal: Exception) -> None:
        """The database has refused a write."""
        self._refusal, self._since = refusal, self._wall()

    def refusal(self) -> Exception | None:
        """Why the database takes no writes now; None if it does."""
        valid_s = PROBE_PERIOD_WALL_S if self._refusal is None else REFUSAL_VALID_WALL_S
        if self._wall() - self._since >= valid_s:
            try:
                self._probe()
            except Exception as refusal:
                self.refused(refusal)
            else:
                self.accepted()
        return self._refusal
