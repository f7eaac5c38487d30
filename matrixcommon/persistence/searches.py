"""Long searches: on a copy of what they search, in another thread, outside of the event loop and the journal's lock.

A verb that comes to one is not decided: it ends with `SearchNeeded`, so that its transaction comes to nothing, and is
decided again with what was found, where that still holds. Who does not ask for it (`search_outside`) searches where
it stands.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol, TypeVar


class Copyable(Protocol):
    """What a search may look at: its copy is its own, whatever becomes of it."""

    def copy(self: S) -> S: ...


S = TypeVar("S")
C = TypeVar("C", bound=Copyable)
T = TypeVar("T")

SEARCHES_MAX = 5
"""How often a verb is searched for outside. Where what was found never holds any more, it then searches where it
stands, under the lock: one long wait for everybody rather than none that ends."""

_found: ContextVar[dict[str, Any] | None] = ContextVar("found", default=None)
"""What was found outside for the verb under way, by the search's name; None where it searches where it stands."""


class SearchNeeded(Exception):
    """A verb has to wait for a search. `find` may be called in any thread."""

    def __init__(self, name: str, find: Callable[[], Any]) -> None:
        super().__init__(name)
        self.name = name
        self.find = find


def search(name: str, find: Callable[[C], T], state: C, holds: Callable[[T], bool]) -> T:
    """What `find` finds in `state`, or found in a copy of it before, which `holds` in `state` as it is now.

    `find` changes nothing but the copy. `name` tells the searches of one verb apart.
    """
    found = _found.get()
    if found is None:
        return find(state)
    if name in found and holds(found[name]):
        result: T = found[name]
        return result
    raise SearchNeeded(name, partial(find, copied(state)))


def copied(state: C) -> C:
    """Its copy, in the loop. Garbage is not collected meanwhile: each collection that a growing copy sets off walks all
    that there is, which takes four times as long as a copy of 20,000 nodes."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return state.copy()
    finally:
        if collects:
            gc.enable()


async def search_outside(verb: Callable[[], Awaitable[T]], executor: Executor | None) -> T:
    """What the verb returns, with its searches in `executor` (by default the loop's). Raises what the verb raises."""
    found: dict[str, Any] = {}
    before = _found.set(found)
    try:
        for _ in range(SEARCHES_MAX):
            try:
                return await verb()
            except SearchNeeded as needed:
                found[needed.name] = await asyncio.get_running_loop().run_in_executor(executor, needed.find)
        with contextlib.suppress(SearchNeeded):
            return await verb()
        _found.set(None)
        return await verb()
    finally:
        _found.reset(before)
