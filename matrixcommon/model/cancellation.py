"""Cancellation of tasks that contain failures."""

import asyncio


def raise_if_cancelled(failure: Exception) -> None:
    """Raise CancelledError if this task is being cancelled and `failure` was raised during that cancellation.

    A task that contained the failure and continued would never end, nor would whoever awaits its end. A failed task
    group is not a cancellation, though Python 3.11 and 3.12 count it as one from then on."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        if _caused_by_cancellation(failure):
            raise asyncio.CancelledError from failure
        task.uncancel()


def _caused_by_cancellation(failure: BaseException | None) -> bool:
    """Whether the failure was raised while a cancellation was in progress."""
    while failure is not None and not isinstance(failure, asyncio.CancelledError):
        failure = failure.__context__
    return failure is not None
