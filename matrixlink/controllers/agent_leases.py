"""Which link agents are alive, by when they were last heard.

Leases are kept in memory: one that outlived us is worth nothing. After our own start every agent is forgiven its
silence for a while, and ever after for as long as we did not run and could not hear it. The newest life of each agent
is durable, so that a report of an older one is refused for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from matrixcommon.model.clock import Clock, Seconds, seconds_now
from matrixcommon.model.process_pauses import ProcessPauses
from matrixcommon.persistence.transaction import restore_entry


@dataclass
class Lease:
    """When the agent was last heard, for how long that holds, and how far its reports have come."""

    heard_at: float
    lease_s: float
    epoch: int
    sequence: int
    paused_s: float
    """All pauses of this process by then."""


class Leases:
    """`grace_s`: emulated seconds after our start in which silence is not held against anybody. `pauses`: those of this
    process, which somebody beats."""

    def __init__(self, clock: Clock, grace_s: Seconds, pauses: ProcessPauses | None = None) -> None:
        self._clock = clock
        self._grace_s = grace_s
        self._started_at = clock.now()
        self._pauses = pauses or ProcessPauses(clock)
        self._leases: dict[str, Lease] = {}

    def newer(self, node: str, epoch: int, sequence: int, epoch_before: int) -> bool:
        """Whether a report comes after all that were taken. `epoch_before` is the durable one."""
        current = self._leases.get(node)
        seen = (current.epoch, current.sequence) if current else (epoch_before, -1)
        return (epoch, sequence) > seen

    def renew(self, node: str, lease_s: float, epoch: int, sequence: int) -> Callable[[], None]:
        """Returns how to undo it, should the report that renews it not be taken after all."""
        undo = restore_entry(self._leases, node)
        self._leases[node] = Lease(self._clock.now(), lease_s, epoch, sequence, self._pauses.total_s)
        return undo

    def reachable(self, node: str) -> bool:
        current = self._leases.get(node)
        silent_s = self.silent_s(node)
        return silent_s < seconds_now(self._grace_s) if current is None else silent_s <= current.lease_s

    def forget_nodes(self, nodes: Collection[str]) -> None:
        for node in nodes:
            self._leases.pop(node, None)

    def silent_s(self, node: str) -> float:
        """For how long the agent could have been heard and was not; since our own start, where it never was."""
        current = self._leases.get(node)
        since, paused_s = (self._started_at, 0.0) if current is None else (current.heard_at, current.paused_s)
        return self._clock.now() - since - (self._pauses.total_s - paused_s)
