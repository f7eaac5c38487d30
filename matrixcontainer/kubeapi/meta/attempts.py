"""Turns: what is refused of one keeps no other from its own."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from matrixcontainer.kubeapi.meta.errors import ignoring

T = TypeVar("T")


async def attempt_all(attempts: Iterable[Awaitable[T]], *ignored: int) -> list[T]:
    """One after another, all of them, whatever becomes of those before; then the first failure is raised.

    Refusals with an `ignored` code are none. Returns what the others came to.
    """
    found: list[T] = []
    first: Exception | None = None
    for attempt in attempts:
        try:
            with ignoring(*ignored):
                found.append(await attempt)
        except Exception as failure:
            raise_if_cancelled(failure)
            first = first or failure
    if first is not None:
        raise first
    return found


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
