"""HTTP/1.1 on a connection: requests in, one after another, answers and streams out.

A read is answered in the iteration of the loop it arrived in, without a task; a watch is written by whoever wakes it.
A client that reads slowly holds up only itself: its watch waits until what it was sent has left.
"""

import asyncio
import json
import time
from collections import deque
from http import HTTPStatus

import httptools

from matrixcontainer.kubeapi.endpoints.app import App
from matrixcontainer.kubeapi.endpoints.request import BODY_BYTES_MAX, Request, add_header, query_of, stated_too_large
from matrixcontainer.kubeapi.endpoints.response import Response
from matrixcontainer.kubeapi.registry.watch import Watch
from matrixcontainer.kubeapi.transport import websocket
from matrixcontainer.kubeapi.transport.connection import Connection
from matrixcontainer.kubeapi.transport.streams import ChunkStream, Stream, WatchStream

HEADER_BYTES_MAX = 256 * 1024
PIPELINED_MAX = 16

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


class Http1:
    """One client. `idle_since` is None while a request is under way."""

    def __init__(self, app: App, connection: Connection) -> None:
        self.app, self.connection = app, connection
        self.loop = asyncio.get_running_loop()
        self.idle_since: float | None = self.loop.time()
        self.ending = False  # nothing further is read
        self._last = False  # no further request is taken
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[tuple[Request, bool]] = deque()
        self._request: Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._stream: Stream | None = None
        self._upgraded = False
        self._rest = b""
        self._url, self._header_bytes, self._body_bytes = b"", 0, 0
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        connection.received, connection.lost, connection.drained = self._received, self._lost, self._drained

    # ---- in

    def _received(self, data: bytes) -> None:
        if self._upgraded or self.ending:
            if isinstance(self._stream, websocket.WebSocket):
                self._stream.received(data)
            return
        if self.idle_since is not None:
            self.idle_since = self.loop.time()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as stopped:
            self._upgraded = True
            self._rest = data[stopped.args[0] :]
        except httptools.HttpParserError:
            self.connection.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.connection.close()
            return
        self._next()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes + len(self._url) > HEADER_BYTES_MAX:
            raise httptools.HttpParserError("the headers are too large")
        add_header(self._headers, name, value)

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() != "100-continue":
            return
        if stated_too_large(self._headers):  # what the client asks about need not be sent to be refused
            self._body_bytes = BODY_BYTES_MAX + 1
            self.on_message_complete()
            self.ending = True
        else:
            self.connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes <= BODY_BYTES_MAX:
            self._body.append(body)

    def on_message_complete(self) -> None:
        path, _, query = self._url.partition(b"?")
        if not path.startswith(b"/"):  # the absolute form, as proxies write it
            path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
        request = Request(
            self._parser.get_method().decode(),
            path.decode("latin-1"),
            query_of(query),
            self._headers,
            b"".join(self._body),
            self._body_bytes > BODY_BYTES_MAX,
        )
        self._waiting.append((request, self._parser.should_keep_alive()))
        self._url, self._headers, self._body, self._header_bytes, self._body_bytes = b"", {}, [], 0, 0
        if len(self._waiting) > PIPELINED_MAX:
            self.connection.pause()

    # ---- one request after another

    def _next(self) -> None:
        while self._request is None and self._waiting and self.connection.open and not self._last:
            request, keep = self._waiting.popleft()
            self._last = self.ending = self.ending or not keep or self._upgraded
            self._request, self.idle_since = request, None
            if self._upgraded and websocket.is_wanted(request):
                websocket.take_token(request)
            response = self.app.respond_sync(request)
            if response is not None:
                self._answer(response)
            else:
                self._task = self.loop.create_task(self._wait_for(request))
        if not self._waiting:
            self.connection.resume()

    async def _wait_for(self, request: Request) -> None:
        response = await self.app.respond(request)
        self._task = None
        self._answer(response)
        self._next()

    def _answer(self, response: Response) -> None:
        request = self._request
        assert request is not None
        body = response.body
        if not self.connection.open:
            self._finished()
        elif isinstance(body, bytes):
            shown = b"" if request.method == "HEAD" else body
            self.connection.write(self._head(request, response, b"%d" % len(body), shown))
            self._finished()
        elif isinstance(body, Watch) and self._upgraded and websocket.is_wanted(request):
            self._switch(request, body)
        else:
            self.connection.write(self._head(request, response, b"", b""))
            self._stream = WatchStream(self, body) if isinstance(body, Watch) else ChunkStream(self, body)
            self._stream.wake()

    def _switch(self, request: Request, watch: Watch) -> None:
        """From HTTP to a websocket, if the client asks as it should."""
        if (refused := websocket.refusal(request)) is not None:
            self._answer(Response(refused[1].encode(), refused[0], "text/plain; charset=utf-8"))
            return
        self.connection.write(websocket.handshake(request))
        stream = self._stream = websocket.WebSocket(self, watch)
        stream.wake()
        stream.received(self._rest)

    def _head(self, request: Request, response: Response, length: bytes, body: bytes) -> bytes:
        first = STATUS_LINES.get(response.code) or f"HTTP/1.1 {response.code} \r\n"
        if response.headers or request.warnings:
            own = "".join(f"{name}: {value}\r\n" for name, value in headers_of(request, response))
        else:
            own = f"content-type: {response.media}\r\ncache-control: no-cache, private\r\n"
        head = f"{first}{_date(int(time.time()))}{own}".encode("latin-1", "replace")
        framing = b"content-length: %b\r\n" % length if length else b"transfer-encoding: chunked\r\n"
        return b"%b%b%b\r\n%b" % (head, framing, b"connection: close\r\n" if self.ending else b"", body)

    def _finished(self) -> None:
        """The answer is on its way; the next request may come."""
        self._request, self._stream = None, None
        self.idle_since = self.loop.time()
        if self.ending:
            self.connection.close()

    def stream_failed(self, failure: Exception) -> None:
        """Nothing sensible can be sent in the middle of a stream: the client sees it break off."""
        if self._request is not None:
            self.app.failed(self._request, failure)
        self.connection.abort()

    def stream_ended(self) -> None:
        self._finished()
        self._next()

    # ---- the connection's news

    def _drained(self) -> None:
        if self._stream is not None:
            self._stream.wake()

    def _lost(self) -> None:
        self._waiting.clear()
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        # A write under way goes on: its task ends by itself, and nobody hears the answer.

    def end(self) -> None:
        """Take no further request; end when the one under way has been answered."""
        self.ending = True
        if self._request is None:
            self.connection.close()


_DATE = (0, "")


def _date(now: int) -> str:
    """The Date header, made once a second."""
    global _DATE
    if _DATE[0] != now:
        _DATE = (now, time.strftime("date: %a, %d %b %Y %H:%M:%S GMT\r\n", time.gmtime(now)))
    return _DATE[1]


def headers_of(request: Request, response: Response) -> list[tuple[str, str]]:
    """All headers of an answer but those of its framing."""
    found = [("content-type", response.media), ("cache-control", "no-cache, private")]
    found += [(name.lower(), value) for name, value in response.headers.items()]
    return found + [("warning", f"299 - {json.dumps(text)}") for text in dict.fromkeys(request.warnings)]
