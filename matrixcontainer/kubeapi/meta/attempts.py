"""Turns: what is refused of one keeps no other from its own."""

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
            first = first or failure
    if first is not None:
        raise first
    return found
