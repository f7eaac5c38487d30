"""Ends of tasks that contain failures."""

import asyncio


def raise_if_cancelled(failure: Exception) -> None:
    """Raise CancelledError where this task was asked to end, and what failed did so on the way there: who contains it
    and continues would never end, and who waits for that end neither. A task group that failed is no such end, though
    Python 3.11 and 3.12 count it as one from then on."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        if _interrupted(failure):
            raise asyncio.CancelledError from failure
        task.uncancel()


def _interrupted(failure: BaseException | None) -> bool:
    """Whether it was raised while a cancellation was under way."""
    while failure is not None and not isinstance(failure, asyncio.CancelledError):
        failure = failure.__context__
    return failure is not None
