"""A watch is handed to the server as soon as there is something, at the pace at which the server takes it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import pytest

from matrixcontainer.kubeapi.transport.watch_feed import PIECE_BYTES, WatchFeed


class ScriptedWatch:
    """A watch that gives what was put into it."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = deque(chunks)
        self.ended = False
        self.opened: Callable[[], None] | None = None
        self.takes = 0
        self.due = asyncio.get_running_loop().time() + 3600

    def open(self, wake: Callable[[], None]) -> None:
        self.opened = wake

    def close(self) -> None:
        self.opened = None

    def next_chunk(self) -> bytes:
        self.takes += 1
        return self.chunks.popleft() if self.chunks else b""

    def put(self, *chunks: bytes) -> None:
        self.chunks += chunks
        assert self.opened
        self.opened()


class Receiver:
    """A server that takes `room` pieces ahead of its client, then makes who sends wait for it."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.taken: list[bytes] = []
        self.read_on = asyncio.Event()

    async def send(self, piece: bytes) -> None:
        while self.room == 0:
            self.read_on.clear()
            await self.read_on.wait()
        self.room -= 1
        self.taken.append(piece)

    def read(self, pieces: int) -> None:
        self.room += pieces
        self.read_on.set()


def feed_of(watch: ScriptedWatch, send: Callable[[bytes], object]) -> WatchFeed:
    return WatchFeed(watch, send)  # type: ignore[arg-type]


async def loop_iteration() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


async def test_changes_are_pushed_without_a_task() -> None:
    watch, taker = ScriptedWatch(), Receiver(room=100)
    feed = feed_of(watch, taker.send)
    feed.start()
    before = asyncio.all_tasks()
    for number in range(3):
        watch.put(b"%d" % number)
        watch.put(b"%d again" % number)
        await loop_iteration()
        assert asyncio.all_tasks() == before
    assert taker.taken == [b"0", b"0 again", b"1", b"1 again", b"2", b"2 again"]
    feed.close()
    assert watch.opened is None


async def test_backpressure_of_the_server() -> None:
    chunk = bytes(range(256)) * (3 * PIECE_BYTES // 256) + b"end"
    watch, taker = ScriptedWatch(chunk, b"second", b"third"), Receiver(room=1)
    feed = feed_of(watch, taker.send)
    feed.start()
    watch.put(b"fourth")
    await loop_iteration()
    assert (watch.takes, len(taker.taken)) == (1, 1)
    taker.read(2)
    await loop_iteration()
    assert (watch.takes, len(taker.taken)) == (1, 3)
    taker.read(1)
    await loop_iteration()
    assert b"".join(taker.taken) == chunk
    assert max(map(len, taker.taken)) == PIECE_BYTES
    taker.read(10)
    await loop_iteration()
    assert taker.taken[-3:] == [b"second", b"third", b"fourth"]
    feed.close()


async def test_feed_ends_with_the_watch_and_reports_its_failure() -> None:
    watch, taker = ScriptedWatch(), Receiver(room=9)
    feed = feed_of(watch, taker.send)
    feed.start()
    watch.ended = True
    watch.put()
    await feed.ended

    async def refuse(piece: bytes) -> None:
        await asyncio.sleep(0)
        raise ConnectionError("gone")

    broken = ScriptedWatch(b"line")
    failing = feed_of(broken, refuse)
    failing.start()
    with pytest.raises(ConnectionError):
        await failing.ended
    failing.close()
    assert broken.opened is None


async def test_nothing_is_sent_after_close_during_backpressure() -> None:
    watch, taker = ScriptedWatch(b"one", b"two"), Receiver(room=0)
    feed = feed_of(watch, taker.send)
    feed.start()
    await loop_iteration()
    feed.close()
    taker.read(5)
    await loop_iteration()
    assert (taker.taken, watch.takes) == ([], 1)
