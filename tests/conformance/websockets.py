"""The client's end of a websocket (RFC 6455) on a socket of its own: enough to watch, ping and hang up."""

import base64
import contextlib
import hashlib
import os
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlencode, urlsplit

from tests.conformance.api_session import EVENT_PATIENCE_S, ApiSession

SALT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, CLOSE, PING, PONG = 0x1, 0x8, 0x9, 0xA


class WebSocket:
    """After the handshake: `code` and `headers` of the answer, then `frame` by frame; `rest` is what a refusal said."""

    def __init__(self, sock: socket.socket, key: str) -> None:
        self._sock = sock
        self._in = b""
        while b"\r\n\r\n" not in self._in:
            self._more()
        head, _, self._in = self._in.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.code = int(first.split(" ")[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        wanted = base64.b64encode(hashlib.sha1(key.encode() + SALT).digest()).decode()
        self.accepted = self.headers.get("sec-websocket-accept") == wanted

    def _more(self) -> None:
        data = self._sock.recv(65536)
        if not data:
            raise EOFError
        self._in += data

    def _take(self, count: int) -> bytes:
        while len(self._in) < count:
            self._more()
        taken, self._in = self._in[:count], self._in[count:]
        return taken

    def frame(self) -> tuple[int, bytes]:
        """(kind, payload) of the next frame."""
        first, size = self._take(2)
        if size >= 126:
            size = int.from_bytes(self._take(2 if size == 126 else 8), "big")
        return first & 0x0F, self._take(size)

    def send(self, kind: int, payload: bytes = b"") -> None:
        mask = os.urandom(4)
        hidden = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
        self._sock.sendall(bytes((0x80 | kind, 0x80 | len(payload))) + mask + hidden)


@contextlib.contextmanager
def upgraded(session: ApiSession, path: str, token: bool = True, **headers: str) -> Iterator[WebSocket]:
    """A GET of the path that asks for a websocket; further headers with _ for -."""
    where = urlsplit(session.server.url)
    key = base64.b64encode(os.urandom(16)).decode()
    reported = {
        "host": where.netloc,
        "upgrade": "websocket",
        "connection": "Upgrade",
        "sec-websocket-version": "13",
        "sec-websocket-key": key,
        "user-agent": "conformance/1.0",
    }
    if token:
        reported["authorization"] = f"Bearer {session.server.token}"
    reported |= {name.replace("_", "-"): value for name, value in headers.items()}
    text = "".join(f"{name}: {value}\r\n" for name, value in reported.items() if value)
    with socket.create_connection((where.hostname or "", where.port or 443), EVENT_PATIENCE_S) as plain:
        context = ssl.create_default_context(cadata=session.server.ca)
        with context.wrap_socket(plain, server_hostname=where.hostname) as sock:
            sock.sendall(f"GET {path} HTTP/1.1\r\n{text}\r\n".encode())
            yield WebSocket(sock, key)


def watch_path(session: ApiSession, path: str, **query: str) -> str:
    return f"{session.path(path)}?{urlencode({'watch': 'true'} | query)}"
