"""VirtualLoop: an event loop whose time passes only when nobody has anything to do, and in which processes can freeze.

Each process of the simulated stack is a context: whatever is scheduled by its tasks carries its name in `PROCESS`. To
freeze one is to put aside all that it has scheduled, timers too, until it resumes: a process that was sent SIGSTOP.
Threads are not started (what would run in one runs at once), so the same callbacks come in the same order each time.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from asyncio import events
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

PROCESS: ContextVar[str] = ContextVar("PROCESS", default="user")
"""Which process of the stack runs at present; `user` is everybody outside."""


class _Skipping(selectors.SelectSelector):
    """Waits for nothing: time jumps to where the loop would have waited until."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("nothing is scheduled any more: everybody waits for somebody else")
        self.loop.seconds += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """`seconds` is its time."""

    _ready: Any
    _scheduled: Any

    def __init__(self) -> None:
        selector = _Skipping()
        selector.loop = self
        self.seconds = 0.0
        self._frozen: dict[str, list[events.Handle]] = {}
        super().__init__(selector)

    def time(self) -> float:
        return self.seconds

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> events.Handle:  # type: ignore[override]
        if self._frozen:
            process = PROCESS.get() if context is None else context.get(PROCESS, "user")
            if process in self._frozen:
                handle = events.Handle(callback, args, self, context)
                self._frozen[process].append(handle)
                return handle
        return super().call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as wrong:
            done.set_exception(wrong)
        return done

    @property
    def frozen(self) -> list[str]:
        """The processes that stand still."""
        return list(self._frozen)

    def freeze(self, process: str) -> None:
        """Nothing of that process runs from now on."""
        if process in self._frozen:
            return

        def belongs(handle: Any) -> bool:
            return bool(handle._context.get(PROCESS, "user") == process)

        aside = [handle for handle in self._ready if belongs(handle)]
        late = sorted((handle for handle in self._scheduled if belongs(handle)), key=lambda handle: handle._when)
        self._frozen[process] = aside + late
        for at, handle in enumerate(self._ready):  # the loop counts on as many as there are: none is taken out
            if belongs(handle):
                self._ready[at] = self._nothing()
        self._scheduled = [handle for handle in self._scheduled if not belongs(handle)]
        heapq.heapify(self._scheduled)

    def _nothing(self) -> events.Handle:
        handle = events.Handle(lambda: None, (), self)
        handle.cancel()
        return handle

    def resume(self, process: str) -> None:
        """It continues where it stood; what has come due meanwhile is done first."""
        for handle in self._frozen.pop(process, []):
            if handle.cancelled():
                continue
            if isinstance(handle, events.TimerHandle):
                heapq.heappush(self._scheduled, handle)
            else:
                self._ready.append(handle)
