"""The last batch of writes that was lost, and whether that says something about the next one."""

import logging
import time

from matrixcontainer.kubeapi.storage.objects import StorageError

log = logging.getLogger(__name__)

FAILURE_VALID_WALL_S = 15.0  # how long a lost write says that there is no writing


class LostWrites:
    def __init__(self) -> None:
        self._last: tuple[StorageError, float] | None = None

    @property
    def reason(self) -> StorageError | None:
        """Why nothing can be written; None if the last write was durable, or was lost long ago."""
        failure, at = self._last or (None, 0.0)
        return failure if time.monotonic() - at < FAILURE_VALID_WALL_S else None

    def record(self, failure: StorageError) -> None:
        """A batch was lost. Logged once, until another reason or a durable write."""
        if self._last is None or str(failure) != str(self._last[0]):
            log.error("writes lost", extra={"why": str(failure)})
        self._last = failure, time.monotonic()

    def clear(self) -> None:
        """A batch is durable."""
        self._last = None
