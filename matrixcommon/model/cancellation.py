"""Ends of tasks that contain failures."""

import asyncio


def raise_if_cancelled(failure: Exception) -> None:
    """Raise CancelledError where this task was asked to end, and what failed did so on the way there: who contains it
    and continues would never end, and who waits for that end neither."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from failure
