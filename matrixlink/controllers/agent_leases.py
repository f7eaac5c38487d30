"""Which link agents are alive, by when they were last heard.

Leases are kept in memory only: they would be worthless after a restart. After the start of this process no agent is
considered silent for a while, and later none is for any time in which the process did not run. The newest epoch of each
agent is durable, so that a report from an earlier one is always refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from matrixcommon.model.clock import Clock, Seconds, resolve_seconds
from matrixcommon.model.process_pauses import ProcessPauses
from matrixcommon.persistence.transaction import restore_entry


@dataclass
class Lease:
    """When the agent was last heard, how long that is valid, and which report was the newest."""

    heard_at: float
    lease_s: float
    epoch: int
    sequence: int
    paused_s: float
    """The total of this process's pauses at that time."""


class Leases:
    """`grace_s`: emulated seconds after the start in which no agent is considered silent. `pauses`: those of this
    process, recorded elsewhere."""

    def __init__(self, clock: Clock, grace_s: Seconds, pauses: ProcessPauses | None = None) -> None:
        self._clock = clock
        self._grace_s = grace_s
        self._started_at = clock.now()
        self._pauses = pauses or ProcessPauses(clock)
        self._leases: dict[str, Lease] = {}

    def is_newer(self, node: str, epoch: int, sequence: int, epoch_before: int) -> bool:
        """Whether a report is newer than all accepted so far. `epoch_before` is the durable epoch."""
        current = self._leases.get(node)
        seen = (current.epoch, current.sequence) if current else (epoch_before, -1)
        return (epoch, sequence) > seen

    def renew(self, node: str, lease_s: float, epoch: int, sequence: int) -> Callable[[], None]:
        """Return a function that undoes the renewal, in case the report is not accepted after all."""
        undo = restore_entry(self._leases, node)
        self._leases[node] = Lease(self._clock.now(), lease_s, epoch, sequence, self._pauses.total_s)
        return undo

    def reachable(self, node: str) -> bool:
        current = self._leases.get(node)
        silent_s = self.silent_s(node)
        return silent_s < resolve_seconds(self._grace_s) if current is None else silent_s <= current.lease_s

    def forget_nodes(self, nodes: Collection[str]) -> None:
        for node in nodes:
            self._leases.pop(node, None)

    def silent_s(self, node: str) -> float:
        """How long the agent could have been heard and was not; since the start of this process if it never was."""
        current = self._leases.get(node)
        since, paused_s = (self._started_at, 0.0) if current is None else (current.heard_at, current.paused_s)
        return self._clock.now() - since - (self._pauses.total_s - paused_s)
