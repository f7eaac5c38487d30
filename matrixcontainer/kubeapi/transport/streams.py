"""What goes on being sent after the head of an answer: watches, written by whoever wakes them, and other streams."""

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from matrixcontainer.kubeapi.registry.watch import Watch
from matrixcontainer.kubeapi.transport.connection import Connection

WAITING_BYTES_MAX = 1024 * 1024  # a stream goes on when less than this waits to be sent


class Exchange(Protocol):
    """The request a stream answers: where its bytes go, and who hears how it ended."""

    connection: Connection
    loop: asyncio.AbstractEventLoop

    def stream_ended(self) -> None: ...

    def stream_failed(self, failure: Exception) -> None: ...


class Stream(Protocol):
    def wake(self) -> None:
        """There may be something new, or room for it."""

    def close(self) -> None:
        """The client has gone."""


class WatchStream:
    """A watch as chunks of HTTP."""

    def __init__(self, exchange: Exchange, watch: Watch) -> None:
        self._exchange, self._watch = exchange, watch
        self._timer: asyncio.TimerHandle | None = None
        watch.open(self.wake)

    def wake(self) -> None:
        connection, watch = self._exchange.connection, self._watch
        try:
            while connection.waiting < WAITING_BYTES_MAX and connection.open:
                chunk = watch.take()
                if chunk:
                    connection.write(self._framed(chunk))
                if watch.ended:
                    self.close()
                    self._end()
                    return
                if not chunk or (self._timer is not None and not watch.behind):
                    break
        except Exception as failure:  # one broken watch must not keep the others from their lines
            self.close()
            self._exchange.stream_failed(failure)
            return
        # What is due only ever moves away; who waits for a slow client is woken when there is room.
        if self._timer is None and connection.open and connection.waiting < WAITING_BYTES_MAX:
            self._timer = self._exchange.loop.call_at(watch.due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.wake()

    def _framed(self, chunk: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(chunk), chunk)

    def _end(self) -> None:
        self._exchange.connection.write(b"0\r\n\r\n")
        self._exchange.stream_ended()

    def close(self) -> None:
        self._watch.close()
        if self._timer is not None:
            self._timer.cancel()


class ChunkStream:
    """Any other stream, pumped by a task that waits while the client is behind."""

    def __init__(self, exchange: Exchange, chunks: AsyncIterator[bytes]) -> None:
        self._exchange, self._chunks = exchange, chunks
        self._room = asyncio.Event()
        self._task = exchange.loop.create_task(self._pump())

    def wake(self) -> None:
        self._room.set()

    async def _pump(self) -> None:
        connection = self._exchange.connection
        try:
            async for chunk in self._chunks:
                if chunk:
                    connection.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                while connection.waiting > WAITING_BYTES_MAX and connection.open:
                    self._room.clear()
                    await self._room.wait()
        except Exception as failure:
            self._exchange.stream_failed(failure)
            return
        finally:
            await self._chunks.aclose()  # type: ignore[attr-defined]
        connection.write(b"0\r\n\r\n")
        self._exchange.stream_ended()

    def close(self) -> None:
        self._task.cancel()
