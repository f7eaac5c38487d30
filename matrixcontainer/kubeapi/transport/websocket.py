"""Watches over a websocket (RFC 6455): each event is one text message.

Only what a watch needs: the server talks, the client may ping or close. What else it sends is read and dropped, as the
original does.
"""

import base64
import hashlib
import re

from matrixcontainer.kubeapi.endpoints.request import Request
from matrixcontainer.kubeapi.registry.watch import Watch
from matrixcontainer.kubeapi.transport.streams import Exchange, WatchStream

SALT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
VERSION = "13"
TOKEN_PROTOCOL = "base64url.bearer.authorization.k8s.io."
TEXT, CLOSE, PING, PONG = 0x1, 0x8, 0x9, 0xA
NORMAL = (1000).to_bytes(2, "big")  # the reason to close when there is none
FRAME_BYTES_MAX = 64 * 1024


def is_wanted(request: Request) -> bool:
    return (
        request.method == "GET"
        and "websocket" in request.headers.get("upgrade", "").lower()
        and "upgrade" in request.headers.get("connection", "").lower()
    )


def take_token(request: Request) -> None:
    """Browsers cannot set headers: they may name a token among the protocols, with another protocol beside it."""
    offered = _protocols(request)
    tokens = [word.removeprefix(TOKEN_PROTOCOL) for word in offered if word.startswith(TOKEN_PROTOCOL)]
    if not tokens or "authorization" in request.headers:
        return
    others = [word for word in offered if not word.startswith(TOKEN_PROTOCOL)]
    token = ""
    if len(tokens) == 1 and others:
        try:
            token = base64.urlsafe_b64decode(tokens[0] + "=" * (-len(tokens[0]) % 4)).decode()
        except ValueError:
            token = ""
    request.headers["authorization"] = f"Bearer {token}"
    request.headers["sec-websocket-protocol"] = ", ".join(others)


def _protocols(request: Request) -> list[str]:
    words = request.headers.get("sec-websocket-protocol", "").split(",")
    return [word.strip() for word in words if word.strip()]


def refusal(request: Request) -> tuple[int, str] | None:
    """Why there can be no websocket, as (status, text); None when there can."""
    headers = request.headers
    if headers.get("sec-websocket-version") != VERSION:
        return 400, f"only version {VERSION} of the protocol is spoken"
    if not headers.get("sec-websocket-key"):
        return 400, "Sec-WebSocket-Key is missing"
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", headers.get("origin", "")):
        return 403, "Origin is missing or no URL"
    return (400, "one protocol at most can be chosen") if len(_protocols(request)) > 1 else None


def handshake(request: Request) -> bytes:
    key = request.headers["sec-websocket-key"].encode("latin-1")
    accept = base64.b64encode(hashlib.sha1(key + SALT, usedforsecurity=False).digest())
    head = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    for protocol in _protocols(request):
        head += b"sec-websocket-protocol: " + protocol.encode("latin-1") + b"\r\n"
    return head + b"sec-websocket-accept: " + accept + b"\r\n\r\n"


def frame(kind: int, payload: bytes) -> bytes:
    """One whole, unmasked message."""
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | kind, size))
    elif size < 65536:
        head = bytes((0x80 | kind, 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | kind, 127)) + size.to_bytes(8, "big")
    return head + payload


class WebSocket(WatchStream):
    """The server's side of one, over a connection that spoke HTTP before."""

    def __init__(self, exchange: Exchange, watch: Watch) -> None:
        self._in = b""
        super().__init__(exchange, watch)

    def _framed(self, chunk: bytes) -> bytes:
        return b"".join(frame(TEXT, line) for line in chunk.splitlines(keepends=True))

    def _end(self) -> None:
        self._exchange.connection.write(frame(CLOSE, NORMAL))
        self._exchange.stream_ended()

    def received(self, data: bytes) -> None:
        """Answer pings and close frames; anything else a client sends is dropped."""
        self._in += data
        while (found := _parse(self._in)) is not None:
            kind, payload, self._in = found
            if kind == PING:
                self._exchange.connection.write(frame(PONG, payload))
            elif kind == CLOSE:
                self.close()
                self._exchange.connection.write(frame(CLOSE, payload[:2]))
                self._exchange.stream_ended()
                return
        if len(self._in) > FRAME_BYTES_MAX:
            self.close()
            self._exchange.connection.abort()


def _parse(data: bytes) -> tuple[int, bytes, bytes] | None:
    """(kind, payload, rest) of the first frame, or None while it is not whole. Clients mask what they send."""
    if len(data) < 2:
        return None
    size, at = data[1] & 0x7F, 2
    if size >= 126:
        width = 2 if size == 126 else 8
        if len(data) < at + width:
            return None
        size, at = int.from_bytes(data[at : at + width], "big"), at + width
    mask = b""
    if data[1] & 0x80:
        mask, at = data[at : at + 4], at + 4
    if len(data) < at + size:
        return None
    payload = data[at : at + size]
    if mask:
        payload = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
    return data[0] & 0x0F, payload, data[at + size :]
