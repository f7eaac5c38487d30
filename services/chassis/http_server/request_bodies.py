"""Bodies of requests: bounded each, and together where a process relays them before the sender has been checked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.types import Receive

from matrixcommon.model.errors import Malformed, TooLarge, Unavailable, UnsupportedEncoding

BODY_LIMIT_BYTES = 1 << 20
BUFFER_LIMIT_BYTES = 256 << 20
RETRY_AFTER_S = 1.0


async def read_body(
    headers: Mapping[str, str], receive: Receive, on_chunk: Callable[[int], object] = lambda size: None
) -> bytes | None:
    """Read the whole body, or None if there is none, so that a too large or incomplete one is refused before anything
    happens. `on_chunk` is called with the size of each piece, and may refuse it. Raises Malformed, TooLarge,
    UnsupportedEncoding."""
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return None
    refuse_encoding(headers.get("content-encoding", ""))
    length = headers.get("content-length", "")
    declared, read = int(length) if length.isdigit() else 0, 0
    chunks, more = list[bytes](), True
    while more and max(declared, read) <= BODY_LIMIT_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Malformed("the connection closed before the end of the body", field="body")
        chunk = message.get("body", b"")
        on_chunk(len(chunk))
        chunks.append(chunk)
        read, more = read + len(chunk), message.get("more_body", False)
    if max(declared, read) > BODY_LIMIT_BYTES:
        raise TooLarge(f"the body exceeds {BODY_LIMIT_BYTES} bytes", field="body")
    return b"".join(chunks)


def refuse_encoding(encodings: str) -> None:
    """Raises UnsupportedEncoding unless `Content-Encoding` leaves the body as it is."""
    named = [each.strip().lower() for each in encodings.split(",") if each.strip()]
    if any(each != "identity" for each in named):
        raise UnsupportedEncoding(
            f"the body is encoded as {encodings[:40]!r}, which is not decoded here: send it unencoded (identity)",
            field="Content-Encoding",
        )


class RelayedBodies:
    """Keeps at most `limit_bytes` in all, so that clients without a token cannot fill the memory."""

    def __init__(self, limit_bytes: int = BUFFER_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self.buffered_bytes = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Yield the body of a request, kept until the end of the block. Raises Malformed, TooLarge, Unavailable,
        UnsupportedEncoding."""
        size = 0

        def count(more: int) -> None:
            nonlocal size
            size += more
            self.buffered_bytes += more
            if self.buffered_bytes > self._limit_bytes:
                raise Unavailable("too many requests are being received; retry", retry_after_s=RETRY_AFTER_S)

        try:
            yield await read_body(request.headers, request.receive, count) or b""
        finally:
            self.buffered_bytes -= size
