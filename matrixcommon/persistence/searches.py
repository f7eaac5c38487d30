"""Long searches, run on a copy of the state in another thread, outside of the event loop and the journal's lock.

A verb that needs one raises `SearchRequired`, so that its transaction is rolled back, and is run again with the result
if that is still valid. Without `run_with_searches` a verb searches inline.
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
    """State that can be searched; its copy must be independent of it."""

    def copy(self: S) -> S: ...


S = TypeVar("S")
C = TypeVar("C", bound=Copyable)
T = TypeVar("T")

SEARCHES_MAX = 5
"""Most searches outside for one verb. If their results are always outdated, the verb then searches inline, under the
lock: one long wait for everybody instead of a verb that never ends."""

_found: ContextVar[dict[str, Any] | None] = ContextVar("found", default=None)
"""Results found outside for the current verb, by the search's name; None if it searches inline."""


class SearchRequired(Exception):
    """A verb needs a search first. `find` may be called in any thread."""

    def __init__(self, name: str, find: Callable[[], Any]) -> None:
        super().__init__(name)
        self.name = name
        self.find = find


def search(name: str, find: Callable[[C], T], state: C, holds: Callable[[T], bool]) -> T:
    """Return what `find` finds in `state`, or found earlier in a copy of it if that `holds` for the present `state`.
    Raises SearchRequired if it has to be searched outside first.

    `find` may change only the copy. `name` distinguishes the searches of one verb.
    """
    found = _found.get()
    if found is None:
        return find(state)
    if name in found and holds(found[name]):
        result: T = found[name]
        return result
    raise SearchRequired(name, partial(find, copy_without_gc(state)))


def copy_without_gc(state: C) -> C:
    """Copy the state, on the event loop, with garbage collection off: each collection that the growing copy triggers
    walks the whole heap, which together takes four times as long as a copy of 20,000 nodes itself."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return state.copy()
    finally:
        if collects:
            gc.enable()


async def run_with_searches(verb: Callable[[], Awaitable[T]], executor: Executor | None) -> T:
    """Return what the verb returns, with its searches run in `executor` (by default the loop's). Raises what the verb
    raises."""
    found: dict[str, Any] = {}
    before = _found.set(found)
    try:
        for _ in range(SEARCHES_MAX):
            try:
                return await verb()
            except SearchRequired as needed:
                found[needed.name] = await asyncio.get_running_loop().run_in_executor(executor, needed.find)
        with contextlib.suppress(SearchRequired):
            return await verb()
        _found.set(None)
        return await verb()
    finally:
        _found.reset(before)
