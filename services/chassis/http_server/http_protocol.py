"""HTTP/1.1 for one connection, with limits on what a client may send before anybody knows who it is.

uvicorn's protocol accepts a request line, headers and a pipeline without end, and waits for them for ever; it offers
settings for neither. Its values are those of the embedded Kubernetes API (`services/kube/server.py`).
"""

from __future__ import annotations

import asyncio
from asyncio.events import TimerHandle

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from services.chassis.http_server.open_files import CONNECTIONS_MAX

HEAD_BYTES_MAX = 64 * 1024
"""Request line and headers of one request."""
HEAD_WALL_S = 75.0
"""How long a client may take to send them, from its connection or its last answer on."""
PIPELINED_MAX = 100
"""Requests sent on one connection before the first of them is answered."""
DISCARDED_BYTES_MAX = 1 << 20
"""How much of a body is still read, and discarded, after its request was answered: the client may see the answer."""
TOO_LARGE = f"the request's line and headers exceed {HEAD_BYTES_MAX} bytes"


class _Refused(Exception):
    """The client has exceeded a limit. Raised in a callback of the parser, it ends parsing."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """Refuses a head that is too large with 431. Cuts off a client whose head takes too long, who sends too many
    requests at once or continues a body that was refused, and connections beyond `connections_max`."""

    connections_max = CONNECTIONS_MAX
    _head_timer: TimerHandle | None = None
    _head_too_large = False
    _in_head = False
    _parsed_bytes = 0
    """Of the head that is being received."""
    _unparsed_bytes = 0
    """Received since without its end, in pieces that began within it."""
    _discarded_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.connections_max:
            transport.abort()
        else:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        in_head = self._in_head
        super().data_received(data)
        if in_head and self._in_head:
            self._unparsed_bytes += len(data)
            if self._unparsed_bytes > HEAD_BYTES_MAX:
                self._head_too_large = True
                self.send_400_response(TOO_LARGE)
        if self._head_timer is None and not self._is_answering and not self.transport.is_closing():
            self._start_head_timer()

    def on_message_begin(self) -> None:
        self._in_head = True
        self._parsed_bytes = self._unparsed_bytes = self._discarded_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_head_timer()
        if len(self.pipeline) >= PIPELINED_MAX:
            raise _Refused
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self.cycle.response_complete:
            self._discarded_bytes += len(body)
            if self._discarded_bytes > DISCARDED_BYTES_MAX:
                self.transport.abort()
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline:
            self.flow.pause_reading()  # uvicorn reads on after each answer, whatever is waiting
        elif self._in_head and self._head_timer is None:
            self._start_head_timer()

    def send_400_response(self, msg: str) -> None:
        """Answer what cannot be served, and close. Nothing is written into another request's answer."""
        if self._is_answering:
            self.transport.abort()
            return
        status, message = (431, TOO_LARGE) if self._head_too_large else (400, msg)
        head = b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
        length = b"content-length: %d\r\n\r\n" % len(message)
        self.transport.write(STATUS_LINE[status] + head + length + message.encode("ascii"))
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """A request that asks for another protocol is answered in this one, and is the last on its connection."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _count(self, count: int) -> None:
        self._parsed_bytes += count
        if self._parsed_bytes > HEAD_BYTES_MAX:
            self._head_too_large = True
            raise _Refused

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_WALL_S, self.transport.abort)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
