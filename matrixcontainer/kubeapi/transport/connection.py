"""One client's connection: bytes in as they come, bytes out without waiting, with or without TLS.

The socket is worked directly from the event loop, TLS included (`SSLSocket` does both in one call), because a watch is
written to a hundred connections at once and each layer between would count a hundred times. What the kernel does not
take at once waits in `waiting`, and whoever writes streams looks at it.
"""

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Callable

READ_BYTES = 64 * 1024
SLICE_BYTES = 256 * 1024
AGAIN = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError, InterruptedError)


class Connection:
    """`received` is called with what came, `drained` when nothing waits to be sent, `lost` and `ended` once when it is
    over: the one is for who speaks on it, the other for who keeps count.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        self._loop = loop
        self._tls = tls is not None
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            sock = tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True)
        self._sock = sock
        self._fd = sock.fileno()
        self._out: deque[bytes | memoryview] = deque()
        self.waiting = 0
        self.open = True
        self._closing = False
        self._paused = False
        self.received: Callable[[bytes], None] = lambda data: None
        self.lost: Callable[[], None] = lambda: None
        self.drained: Callable[[], None] = lambda: None
        self.ended: Callable[[], None] = lambda: None

    def start(self) -> None:
        if self._tls:
            self._loop.add_reader(self._fd, self._shake_hands)
            self._shake_hands()
        else:
            self._loop.add_reader(self._fd, self._read)

    def _shake_hands(self) -> None:
        assert isinstance(self._sock, ssl.SSLSocket)
        try:
            self._sock.do_handshake()
        except ssl.SSLWantWriteError:
            self._loop.add_writer(self._fd, self._shake_hands)
            return
        except AGAIN:
            self._loop.remove_writer(self._fd)
            return
        except (OSError, ValueError):
            self.abort()
            return
        self._loop.remove_writer(self._fd)
        self._loop.add_reader(self._fd, self._read)
        self._read()

    # ---- in

    def _read(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except AGAIN:
            return
        except (OSError, ValueError):
            data = b""
        if not data:
            self.abort()
            return
        self.received(data)
        if self._tls and self.open and not self._paused and self._sock.pending():  # type: ignore[attr-defined]
            self._loop.call_soon(self._read_more)

    def _read_more(self) -> None:
        if self.open and not self._paused:
            self._read()

    def pause(self) -> None:
        """Read nothing more for now."""
        if self.open and not self._paused:
            self._paused = True
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        if self.open and self._paused:
            self._paused = False
            self._loop.add_reader(self._fd, self._read)
            self._loop.call_soon(self._read_more)  # TLS may hold what the socket no longer does

    # ---- out

    def write(self, data: bytes) -> None:
        """Send, or keep what cannot be sent yet."""
        if not self.open or not data:
            return
        if not self._out and len(data) <= SLICE_BYTES:
            try:
                sent = self._sock.send(data)
            except AGAIN:
                sent = 0
            except (OSError, ValueError):
                self._loop.call_soon(self.abort)
                return
            if sent == len(data):
                return
            self._keep(memoryview(data)[sent:] if sent else data)
        else:
            whole = memoryview(data)
            for start in range(0, len(data), SLICE_BYTES):
                self._keep(whole[start : start + SLICE_BYTES])
            self._send_waiting()
            return
        self._loop.add_writer(self._fd, self._send_waiting)

    def _keep(self, data: bytes | memoryview) -> None:
        self._out.append(data)
        self.waiting += len(data)

    def _send_waiting(self) -> None:
        """A slice that TLS could not send whole has to be offered again as it is."""
        try:
            while self._out:
                head = self._out[0]
                sent = self._sock.send(head)
                self.waiting -= sent
                if sent == len(head):
                    self._out.popleft()
                else:
                    self._out[0] = memoryview(head)[sent:]
        except AGAIN:
            self._loop.add_writer(self._fd, self._send_waiting)
            return
        except (OSError, ValueError):
            self._loop.call_soon(self.abort)
            return
        self._loop.remove_writer(self._fd)
        if self._closing:
            self.abort()
        else:
            self.drained()

    # ---- end

    def close(self) -> None:
        """End once everything has been sent."""
        self._closing = True
        if not self._out:
            self.abort()

    def abort(self) -> None:
        if not self.open:
            return
        self.open = False
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._out.clear()
        if self._tls and self._closing:
            with contextlib.suppress(OSError, ValueError):
                self._sock.unwrap()  # type: ignore[attr-defined]
        with contextlib.suppress(OSError):
            self._sock.close()
        self.lost()
        self.ended()
