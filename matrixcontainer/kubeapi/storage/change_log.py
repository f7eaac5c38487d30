"""The changes of the last minutes, per resource and overall, and the watchers that wait for more.

Watches and paged lists can go back this far. `compacted_revision` is the revision up to which changes have been
discarded.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from matrixcontainer.kubeapi.storage.objects import Change

HISTORY_S_MIN = 300.0  # younger changes are kept, unless there are too many
HISTORY_S_MAX = 900.0
HISTORY_CHANGES_MAX = 40_000
HISTORY_BYTES_MAX = 48 * 2**20


@dataclass
class ResourceLog:
    """The changes of one resource, oldest first, and callbacks for new ones. `start` counts the discarded changes."""

    changes: deque[Change] = field(default_factory=deque)
    start: int = 0
    waiters: dict[Callable[[], None], Callable[[], int | None]] = field(default_factory=dict)
    """Wake-up callbacks, each with a function that returns the reader's position: None if it has none yet or keeps
    none."""

    def max_lag_s(self, now: float) -> float:
        """Age of the oldest change that a reader of the log has not received yet; 0 if there is none."""
        positions = [position for position_of in self.waiters.values() if (position := position_of()) is not None]
        first = max(min(positions, default=self.end()), self.start)
        return max(0.0, now - self.changes[first - self.start].at) if first < self.end() else 0.0

    def end(self) -> int:
        return self.start + len(self.changes)

    def position_after(self, revision: int) -> int:
        """Position of the first change newer than `revision`."""
        low, high = 0, len(self.changes)
        while low < high:
            middle = (low + high) // 2
            if self.changes[middle].revision <= revision:
                low = middle + 1
            else:
                high = middle
        return self.start + low

    def since(self, position: int) -> list[Change]:
        """The changes from a position on, with a shortcut for readers that are up to date or one change behind."""
        missing = self.end() - position
        if missing <= 0:
            return []
        if missing == 1:
            return [self.changes[-1]]
        return [self.changes[index] for index in range(position - self.start, len(self.changes))]

    def wake(self) -> None:
        for waiter in list(self.waiters):
            waiter()


class History:
    """All logs. Old changes are discarded by age, number and size."""

    def __init__(self) -> None:
        self.compacted_revision = 0
        self.changes: deque[Change] = deque()
        self.logs: dict[str, ResourceLog] = {}
        self._bytes = 0

    def log(self, resource: str) -> ResourceLog:
        found = self.logs.get(resource)
        if found is None:
            found = self.logs[resource] = ResourceLog()
        return found

    def append(self, change: Change) -> None:
        self.log(change.record.key[0]).changes.append(change)
        self.changes.append(change)
        self._bytes += len(change.record.body)
        while self.changes and self._over_limit(change.at):
            self._discard_oldest()

    def discard_before(self, moment: float) -> None:
        """Discard changes older than that time."""
        while self.changes and self.changes[0].at < moment:
            self._discard_oldest()

    def discard_all(self, compacted_revision: int) -> None:
        """Discard everything after a gap in the history: no reader can resume from before `compacted_revision`."""
        while self.changes:
            self._discard_oldest()
        for log in self.logs.values():
            log.start += 1  # even readers that were up to date have missed the gap
        self.compacted_revision = compacted_revision

    def _discard_oldest(self) -> None:
        oldest = self.changes.popleft()
        self._bytes -= len(oldest.record.body)
        self.compacted_revision = oldest.revision
        log = self.logs[oldest.record.key[0]]
        log.changes.popleft()
        log.start += 1

    def _over_limit(self, now: float) -> bool:
        return (
            len(self.changes) > HISTORY_CHANGES_MAX
            or self._bytes > HISTORY_BYTES_MAX
            or now - self.changes[0].at > HISTORY_S_MAX
        )
