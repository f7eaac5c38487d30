"""The embedded API's transport alone: granian, as in `services/kube`, with an application that does nothing.

    python -m benchmarks.kubernetes.transport FOLDER     # prints its port; FOLDER holds the certificates

The API's own work comes on top of this cost, so under the same load no request to it can be faster. A GET returns a
fixed text of the size of an object, a POST returns what was sent, and a PATCH of a status is sent to all watches as one
line before it is answered. Nothing is authenticated, stored or encoded.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import uvloop

from matrixcontainer.kubeapi.server import KubeApi
from matrixcontainer.kubeapi.transport.certificates import certificate_files, ensure_certificates
from services.kube.server import Server

HEAD = [(b"content-type", b"application/json"), (b"cache-control", b"no-cache, private")]
OBJECT = b'{"text":"%s"}' % (b"x" * 900)

Message = dict[str, Any]
Send = Callable[[Message], Awaitable[None]]


class EmptyServer:
    """Replaces a `KubeApi`."""

    def __init__(self) -> None:
        self._watches: set[Send] = set()

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def asgi(self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Send) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request" and scope["method"] != "GET":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if b"watch=true" in scope["query_string"]:
            await self._watch(receive, send)
            return
        if scope["raw_path"].endswith(b"/status"):
            for watch in self._watches:
                await watch({"type": "http.response.body", "body": b'{"object":%s}\n' % body, "more_body": True})
        answer = body or OBJECT
        head = [*HEAD, (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": answer})

    async def _watch(self, receive: Callable[[], Awaitable[Message]], send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": HEAD})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        self._watches.add(send)
        while (await receive())["type"] != "http.disconnect":
            pass
        self._watches.discard(send)


async def _serve(folder: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    _, certificate, key = certificate_files(folder)
    server = Server(cast(KubeApi, EmptyServer()), listener, certificate, key)
    server.stop_on_signals()
    await server.serve(lambda: print(listener.getsockname()[1], flush=True))


@contextmanager
def run_empty_server(folder: Path) -> Iterator[tuple[str, int, Path]]:
    """Run the transport as a process. Yields its URL, its process ID and the file of its CA."""
    ensure_certificates(folder, [])
    command = [sys.executable, "-m", "benchmarks.kubernetes.transport", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield f"https://127.0.0.1:{int(process.stdout.readline())}", process.pid, certificate_files(folder)[0]
        finally:
            process.terminate()


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1])))
