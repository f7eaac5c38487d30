"""Run several operations so that a failure of one does not hold up the others."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from matrixcontainer.kubeapi.meta.errors import ignoring

T = TypeVar("T")


async def attempt_all(attempts: Iterable[Awaitable[T]], *ignored: int) -> list[T]:
    """Await all attempts in sequence even if some fail, then raise the first failure.

    ApiErrors with an `ignored` code do not count as failures. Returns the results of the successful attempts.
    """
    results: list[T] = []
    first: Exception | None = None
    for attempt in attempts:
        try:
            with ignoring(*ignored):
                results.append(await attempt)
        except Exception as failure:
            raise_if_cancelled(failure)
            first = first or failure
    if first is not None:
        raise first
    return results


def raise_if_cancelled(failure: Exception) -> None:
    """Raise CancelledError if this task was cancelled and `failure` arose from that. Code that catches the failure and
    continues would otherwise never end, nor would whoever awaits it. A failed task group is not such a cancellation,
    although Python 3.11 and 3.12 keep counting it as one."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        if _interrupted(failure):
            raise asyncio.CancelledError from failure
        task.uncancel()


def _interrupted(failure: BaseException | None) -> bool:
    """Whether the failure was raised while a CancelledError was being handled."""
    while failure is not None and not isinstance(failure, asyncio.CancelledError):
        failure = failure.__context__
    return failure is not None
