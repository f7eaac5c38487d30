"""Prepared: a stack that has been started before, to be copied by those that come after it in this session.

The real code makes it: every service migrates its own database, every node proves what it is and enrols, then all of
it is ended as a process is. A copy is thus a stack that starts again on what it had written, with its clock going on
from there. It is kept in memory, so nothing of it outlives the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import looptime

if TYPE_CHECKING:
    from tests.stack import Stack

AGENTS = ("resource", "link")
"""The kinds of agents, each of which keeps something on its node's card."""


@dataclass(frozen=True)
class Prepared:
    """What a stack had written when it was ended: database files by name, the nodes' cards by kind of agent, and how
    many seconds its clock had run."""

    files: dict[str, bytes]
    cards: dict[str, dict[str, Any]]
    seconds: float


_made: dict[str, Prepared] = {}


def prepared(
    kind: str,
    make: Callable[[Path], Stack],
    loop: Callable[[], asyncio.AbstractEventLoop] = looptime.new_event_loop,
) -> Prepared:
    """The one of this kind, made by starting and ending a stack of `make` the first time it is asked for, in a `loop`
    whose time is virtual."""
    if kind not in _made:
        # A loop of its own, whose time is virtual whatever the asking test's is, needs a thread of its own.
        with ThreadPoolExecutor(1) as thread:
            _made[kind] = thread.submit(_start_and_end, make, loop).result()
    return _made[kind]


def _start_and_end(make: Callable[[Path], Stack], new_loop: Callable[[], asyncio.AbstractEventLoop]) -> Prepared:
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(new_loop()) as loop:
        stack = make(Path(folder))
        seconds = loop.run_until_complete(_seconds_to_start(stack))
        files = {file.name: file.read_bytes() for file in Path(folder).iterdir() if ".db" in file.name}
        return Prepared(files, {kind: stack.memory.all(kind) for kind in AGENTS}, seconds)


async def _seconds_to_start(stack: Stack) -> float:
    async with stack:
        pass
    return asyncio.get_running_loop().time()
