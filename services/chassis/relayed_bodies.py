"""Bodies of requests that a process relays before anybody has checked who sent them: bounded each, and together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from matrixcommon.model.errors import Malformed, TooLarge, Unavailable

BODY_LIMIT_BYTES = 1 << 20
BUFFER_LIMIT_BYTES = 256 << 20
RETRY_AFTER_S = 1.0


class RelayedBodies:
    """Keeps at most `limit_bytes` in all, so that clients without a token cannot fill the memory."""

    def __init__(self, limit_bytes: int = BUFFER_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self.buffered_bytes = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Yield the body of a request, kept until the end of the block. Raises Malformed, TooLarge, Unavailable."""
        chunks, size = list[bytes](), 0
        try:
            try:
                async for chunk in request.stream():
                    size += len(chunk)
                    self.buffered_bytes += len(chunk)
                    if size > BODY_LIMIT_BYTES:
                        raise TooLarge(f"the body exceeds {BODY_LIMIT_BYTES} bytes", field="body")
                    if self.buffered_bytes > self._limit_bytes:
                        raise Unavailable("too many requests are being received; retry", retry_after_s=RETRY_AFTER_S)
                    chunks.append(chunk)
            except ClientDisconnect as gone:
                raise Malformed("the connection closed before the end of the body", field="body") from gone
            yield b"".join(chunks)
        finally:
            self.buffered_bytes -= size
