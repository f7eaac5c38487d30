"""The embedded API as an ASGI application, to be run by any ASGI server.

Requests are authenticated and authorized before their body is read, so that nothing from unauthorized clients is
buffered. Watches and followed logs are sent at their reader's pace: no chunk is produced before the server has accepted
the previous one, and a client that falls behind the history gets 410. Watches are also available over websockets (RFC
6455), with one text message per event; messages from the client are ignored.
"""

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from matrixcontainer.kubeapi.endpoints.app import App
from matrixcontainer.kubeapi.endpoints.request import BODY_BYTES_MAX, Request, parse_headers, parse_query
from matrixcontainer.kubeapi.endpoints.response import Response
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.registry.watch import Watch
from matrixcontainer.kubeapi.transport.watch_feed import SendPiece, WatchFeed, split_chunk

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

DISCARDED_BYTES_MAX = 256 * 1024  # of an unread body; as much as Go's server reads to keep a connection
TOKEN_PROTOCOL = "base64url.bearer.authorization.k8s.io."
NORMAL_CLOSURE = 1000  # RFC 6455, section 7.4.1


class Asgi:
    """Without lifespan events: the caller starts and stops the API."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = parse_headers(scope["headers"])
        path = scope["raw_path"].decode("latin-1")
        request = Request(scope.get("method", "GET"), path, parse_query(scope["query_string"]), headers)
        if scope["type"] == "websocket":
            await self._websocket(request, receive, send)
        else:
            await self._http(request, receive, send, scope["http_version"].startswith("1"))

    async def _http(self, request: Request, receive: Receive, send: Send, http_1: bool) -> None:
        body = Body(request.headers, receive, http_1)
        request.read = body.read
        response = await self._app.respond(request)
        head = _headers(request, response)
        if not await body.discard() and http_1:
            head.append(
                (b"connection", b"close")
            )  # otherwise the client may send its next request on a closing connection
        await send({"type": "http.response.start", "status": response.code, "headers": head})
        if isinstance(response.body, bytes):
            shown = b"" if request.method == "HEAD" else response.body
            await send({"type": "http.response.body", "body": shown})
            return

        def send_piece(piece: bytes) -> Awaitable[None]:
            return send({"type": "http.response.body", "body": piece, "more_body": True})

        await send_piece(b"")
        if isinstance(response.body, Watch):
            ended = await self._serve_watch_feed(request, WatchFeed(response.body, send_piece), receive)
        else:
            ended = await self._stream(request, response.body, send_pieces(send_piece), receive, "http.disconnect")
        if ended:
            await send({"type": "http.response.body", "body": b""})

    async def _serve_watch_feed(self, request: Request, feed: WatchFeed, receive: Receive) -> bool:
        """Send a watch until it ends or the client disconnects; return whether it ended."""
        disconnect = asyncio.ensure_future(_wait_for_message("http.disconnect", receive))
        try:
            feed.start()
            await asyncio.wait((feed.ended, disconnect), return_when=asyncio.FIRST_COMPLETED)
            ended = feed.ended.done()
            if ended and (failure := feed.ended.exception()) is not None:
                self._app.record_failure(request, failure)
                raise failure  # too late for an error response: the client sees the stream break
        finally:
            disconnect.cancel()
            feed.close()
            await asyncio.gather(disconnect, return_exceptions=True)
        return ended

    async def _websocket(self, request: Request, receive: Receive, send: Send) -> None:
        await receive()  # the connect message
        _move_token_to_header(request)
        response = await self._app.respond(request)
        if isinstance(response.body, Watch) and (rejected := _websocket_rejection(request)) is not None:
            response = rejected
        if not isinstance(response.body, Watch):
            text = response.body if isinstance(response.body, bytes) else b""
            head = {"status": response.code, "headers": _headers(request, response)}
            await send({"type": "websocket.http.response.start"} | head)
            await send({"type": "websocket.http.response.body", "body": text})
            return
        await send({"type": "websocket.accept", "subprotocol": next(iter(_protocols(request)), None)})

        async def send_chunk(chunk: bytes) -> None:
            for line in chunk.decode().splitlines(keepends=True):
                await send({"type": "websocket.send", "text": line})

        if await self._stream(request, response.body, send_chunk, receive, "websocket.disconnect"):
            await send({"type": "websocket.close", "code": NORMAL_CLOSURE})

    async def _stream(
        self,
        request: Request,
        body: Watch | AsyncIterator[bytes],
        send_chunk: Callable[[bytes], Awaitable[None]],
        receive: Receive,
        disconnect_event: str,
    ) -> bool:
        """Send a stream until it ends or the client disconnects; return whether it ended. Stops receiving messages."""
        chunks = watch_lines(body) if isinstance(body, Watch) else body

        async def pump() -> None:
            async for chunk in chunks:
                await send_chunk(chunk)

        sending, disconnect = (
            asyncio.ensure_future(pump()),
            asyncio.ensure_future(_wait_for_message(disconnect_event, receive)),
        )
        try:
            await asyncio.wait((sending, disconnect), return_when=asyncio.FIRST_COMPLETED)
            ended = sending.done()
            if ended and (failure := sending.exception()) is not None:
                self._app.record_failure(request, failure)
                raise failure  # too late for an error response: the client sees the stream break
        finally:
            for task in (sending, disconnect):
                task.cancel()
            await asyncio.gather(sending, disconnect, return_exceptions=True)
            await chunks.aclose()  # type: ignore[attr-defined]
        return ended


class Body:
    """The body of a request, read on demand."""

    def __init__(self, headers: dict[str, str], receive: Receive, http_1: bool) -> None:
        self._receive = receive
        self._declared_length = headers.get("content-length", "0")
        self._encoding = headers.get("content-encoding", "")
        # On HTTP/1.1 a body ends with its last byte; on HTTP/2 the end may be signalled separately.
        self._length = int(self._declared_length) if http_1 and self._declared_length.isdigit() else None
        # With `Expect: 100-continue` the client sends nothing unless the body is read; on HTTP/2 it can stay unread.
        self._has_body = (self._declared_length != "0" or "transfer-encoding" in headers) and "expect" not in headers
        self._more, self._is_malformed = True, False

    async def read(self) -> bytes:
        """Read the whole body. Raises 415 if it is encoded, 413 as soon as it is known to be too large."""
        if {each.strip().lower() for each in self._encoding.split(",")} - {"", "identity"}:
            raise errors.unsupported_encoding(self._encoding)
        if self._declared_length.isdigit() and int(self._declared_length) > BODY_BYTES_MAX:
            raise errors.too_large(BODY_BYTES_MAX)
        parts: list[bytes] = []
        size = 0
        while chunk := await self._next():
            parts.append(chunk)
            size += len(chunk)
            if size > BODY_BYTES_MAX:
                raise errors.too_large(BODY_BYTES_MAX)
            if size == self._length:
                self._more = False
        if self._is_malformed:
            raise errors.bad_request("unexpected EOF")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def discard(self) -> bool:
        """Read and drop the rest of a small body so that the connection can be reused; return whether it can."""
        size = 0
        while self._has_body and size < DISCARDED_BYTES_MAX and (chunk := await self._next()):
            size += len(chunk)
        return not self._has_body or not self._more

    async def _next(self) -> bytes:
        """The next chunk; b"" at the end."""
        while self._more:
            message = await self._receive()
            self._is_malformed = message["type"] == "http.disconnect"
            self._more = message.get("more_body", False)
            if chunk := message.get("body", b""):
                return bytes(chunk)
        return b""


def send_pieces(send_piece: SendPiece) -> SendPiece:
    """A function that sends a chunk of any length in pieces."""

    async def send_chunk(chunk: bytes) -> None:
        for piece in split_chunk(chunk):
            await send_piece(piece)

    return send_chunk


async def watch_lines(watch: Watch) -> AsyncIterator[bytes]:
    """A watch as chunks of whole lines."""
    wake = asyncio.Event()
    loop = asyncio.get_running_loop()
    watch.open(wake.set)
    try:
        while not watch.ended:
            wake.clear()
            if chunk := watch.next_chunk():
                yield chunk
            elif not watch.ended:
                timer = loop.call_at(watch.due, wake.set)
                await wake.wait()
                timer.cancel()
    finally:
        watch.close()


async def _wait_for_message(kind: str, receive: Receive) -> None:
    while (await receive())["type"] != kind:
        pass


def _headers(request: Request, response: Response) -> list[tuple[bytes, bytes]]:
    headers = [(b"content-type", response.media.encode("latin-1", "replace")), (b"cache-control", b"no-cache, private")]
    if isinstance(response.body, bytes):
        headers.append((b"content-length", b"%d" % len(response.body)))
    if response.headers or request.warnings:
        more = list(response.headers.items())
        more += [("warning", f"299 - {_quote(text)}") for text in dict.fromkeys(request.warnings)]
        headers += [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in more]
    return headers


def _quote(text: str) -> str:
    """Quote a header value: ASCII without control characters."""
    return json.dumps(text).replace("\x7f", "\\u007f")


# ---- websocket requests


def _protocols(request: Request) -> list[str]:
    words = request.headers.get("sec-websocket-protocol", "").split(",")
    return [word.strip() for word in words if word.strip()]


def _move_token_to_header(request: Request) -> None:
    """Move a bearer token from the subprotocols to the Authorization header: browsers cannot set headers, so they may
    send it as a subprotocol next to another one."""
    offered = _protocols(request)
    tokens = [protocol.removeprefix(TOKEN_PROTOCOL) for protocol in offered if protocol.startswith(TOKEN_PROTOCOL)]
    if not tokens or "authorization" in request.headers:
        return
    others = [protocol for protocol in offered if not protocol.startswith(TOKEN_PROTOCOL)]
    token = ""
    if len(tokens) == 1 and others:
        with contextlib.suppress(ValueError):
            token = base64.urlsafe_b64decode(tokens[0] + "=" * (-len(tokens[0]) % 4)).decode()
    request.headers["authorization"] = f"Bearer {token}"
    request.headers["sec-websocket-protocol"] = ", ".join(others)


def _websocket_rejection(request: Request) -> Response | None:
    """The response if the websocket must be refused; the server has already checked key and version."""
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", request.headers.get("origin", "")):
        return Response(b"Origin is missing or not a URL", 403, "text/plain; charset=utf-8")
    if len(_protocols(request)) > 1:
        return Response(b"at most one subprotocol may be requested", 400, "text/plain; charset=utf-8")
    return None
