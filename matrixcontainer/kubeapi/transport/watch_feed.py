"""Sends a watch to its client without a task of its own: new lines are passed to the server as soon as they exist.

The server buffers a few pieces ahead of the client and returns immediately; only if it does not, a task waits until the
client has read more. So a change that a hundred clients watch costs a hundred calls instead of a hundred task switches,
and no piece is produced before the server has accepted the previous one.
"""

import asyncio
import types
from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import Any

from matrixcontainer.kubeapi.registry.watch import Watch

PIECE_BYTES = 64 * 1024  # the server buffers a few before it applies backpressure

SendPiece = Callable[[bytes], Awaitable[None]]


def split_chunk(chunk: bytes) -> Iterator[bytes]:
    if len(chunk) <= PIECE_BYTES:
        yield chunk
        return
    for at in range(0, len(chunk), PIECE_BYTES):
        yield chunk[at : at + PIECE_BYTES]


class WatchFeed:
    """Sends between `start` and `close`. The future `ended` resolves when the watch has ended, or with its error."""

    def __init__(self, watch: Watch, send: SendPiece) -> None:
        self._watch, self._send = watch, send
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._scheduled_push = False
        self._send_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._watch.open(self._schedule_push)
        self._push()

    def close(self) -> None:
        self._watch.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._send_task is not None:
            self._send_task.cancel()
        self.ended.cancel()

    def _schedule_push(self) -> None:
        """Schedule a push, once however often this is called, for after the current callbacks."""
        if not self._scheduled_push:
            self._scheduled_push = True
            self._loop.call_soon(self._push)

    def _push(self) -> None:
        self._scheduled_push = False
        if self._send_task is not None or self.ended.done():
            return
        try:
            while not self._watch.ended:
                chunk = self._watch.next_chunk()
                if not chunk:
                    break
                if not self._send_pieces(split_chunk(chunk)):
                    return
                if len(chunk) > PIECE_BYTES:
                    self._schedule_push()  # let others run first
                    return
        except Exception as failure:
            self.ended.set_exception(failure)
            return
        if self._watch.ended:
            self.ended.set_result(None)
        elif self._timer is None:
            self._timer = self._loop.call_at(self._watch.due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._push()

    def _send_pieces(self, pieces: Iterator[bytes]) -> bool:
        """Send the pieces; return whether the server accepted all. Otherwise a task sends the rest."""
        for piece in pieces:
            step = self._send(piece).__await__()
            try:
                waiting_for = next(step)
            except StopIteration:
                continue
            self._send_task = self._loop.create_task(self._send_rest(_resume(step, waiting_for), pieces))
            self._send_task.add_done_callback(self._on_rest_sent)
            return False
        return True

    async def _send_rest(self, suspended: Awaitable[None], pieces: Iterator[bytes]) -> None:
        await suspended
        for piece in pieces:
            await self._send(piece)

    def _on_rest_sent(self, task: asyncio.Task[None]) -> None:
        self._send_task = None
        if task.cancelled() or self.ended.done():
            return
        if (failure := task.exception()) is not None:
            self.ended.set_exception(failure)
        else:
            self._push()


@types.coroutine
def _resume(step: Generator[Any, Any, None], waiting_for: Any) -> Generator[Any, Any, None]:
    """Continue in a task a coroutine that was started outside of one, as Python 3.12's eager tasks do."""
    yield waiting_for
    yield from step
