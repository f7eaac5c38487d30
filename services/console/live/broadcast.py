"""Broadcast of each audience's picture: encoded once for all readers, at most five times a second.

Nothing is queued for a reader. It fetches what it has not seen: the newest patch if it has the frame before, else the
whole picture. So a slow reader skips frames and costs no memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson

from services.console.live.collector import Collector
from services.console.live.merge_patch import merge_patch
from services.console.live.picture import Picture

FRAME_WALL_S = 0.2
"""The interval between frames: 5 Hz."""
KEEPALIVE_WALL_S = 10.0
"""The longest silence of a stream, so that a reader can tell a quiet machine from a dead gateway."""


class Channel:
    """The frames of one audience."""

    def __init__(self, collector: Collector, audience: str) -> None:
        self._picture = Picture(collector, audience)
        self.sequence = 0
        self.readers = 0
        self._document: dict[str, Any] = {}
        self._patch = b""
        self._whole: bytes | None = None

    def draw(self) -> bool:
        """Make a new frame if the picture has changed. Return whether it has."""
        document = self._picture.document()
        patch = merge_patch(self._document, document)
        if not patch and self.sequence:
            return False
        self._document, self._whole = document, None
        self.sequence += 1
        self._patch = _frame("patch", self.sequence, {"patch": patch})
        return True

    def message_since(self, seen: int) -> bytes:
        """The message that brings a reader from frame `seen` (0: none) to the newest one."""
        if seen and seen == self.sequence - 1:
            return self._patch
        if self._whole is None:
            self._whole = _frame("whole", self.sequence, {"picture": self._document})
        return self._whole


def _frame(event: str, sequence: int, data: dict[str, Any]) -> bytes:
    return b"event: %s\nid: %d\ndata: %s\n\n" % (event.encode(), sequence, orjson.dumps({"sequence": sequence, **data}))


class Broadcast:
    """The channels that have readers."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._channels: dict[str, Channel] = {}
        self._dirty = asyncio.Event()
        self._published = asyncio.Event()
        """Set when the next frame is published; each frame has its own event."""
        self.frames = 0
        self.skipped = 0
        collector.changed = self._dirty.set

    @property
    def collector(self) -> Collector:
        return self._collector

    @property
    def readers(self) -> int:
        return sum(channel.readers for channel in self._channels.values())

    async def run(self) -> None:
        """Forever: make a frame for each audience when something changed, then rest."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            changed = [channel.draw() for channel in self._channels.values()]
            if any(changed):
                self.frames += sum(changed)
                self._published.set()
                self._published = asyncio.Event()
            await asyncio.sleep(FRAME_WALL_S)

    async def frames_for(self, audience: str) -> AsyncIterator[bytes]:
        """The stream of one reader: the whole picture, then patches; a comment after a long silence."""
        channel = self._channels.setdefault(audience, Channel(self._collector, audience))
        channel.readers += 1
        if not channel.sequence:
            channel.draw()
        seen = 0
        try:
            while True:
                if channel.sequence != seen:
                    if seen and channel.sequence > seen + 1:
                        self.skipped += channel.sequence - seen - 1
                    frame, seen = channel.message_since(seen), channel.sequence
                    yield frame
                elif not await self._wait_for_frame(channel, seen):
                    yield b": nothing new\n\n"
        finally:
            channel.readers -= 1
            if not channel.readers:
                self._channels.pop(audience, None)

    async def _wait_for_frame(self, channel: Channel, seen: int) -> bool:
        """Wait for another frame. Return False if there was none within the longest silence."""
        try:
            async with asyncio.timeout(KEEPALIVE_WALL_S):
                while channel.sequence == seen:
                    await self._published.wait()
        except TimeoutError:
            return False
        return True
