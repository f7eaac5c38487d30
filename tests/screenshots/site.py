"""The console's page over a recorded machine: its own files, and one picture that never changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

from services.console.gateway.static_files import INDEX, load_files
from tests.screenshots.machine import Recorded

WHO = {"name": "admin", "project": "default", "role": "admin", "everywhere": True, "version": "0"}


@contextmanager
def served(recorded: Recorded) -> Iterator[str]:
    """Its address, while it is served on loopback."""
    ending = Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0].strip("/")
            if path == "whoami":
                self._answer("application/json", json.dumps(WHO).encode())
            elif path == "live":
                self._stream()
            elif self.path.startswith("/api/"):
                found = recorded.answers.get(self.path.removeprefix("/api/"))
                if found is None:
                    self.send_error(404, "not recorded")
                else:
                    self._answer("application/json", json.dumps(found).encode())
            else:
                file = load_files().get(path) or load_files()[INDEX]
                self._answer(file.kind, file.plain)

        def _answer(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _stream(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            data = json.dumps({"sequence": 1, "picture": recorded.picture})
            self.wfile.write(f"event: whole\nid: 1\ndata: {data}\n\n".encode())
            self.wfile.flush()
            ending.wait()

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        ending.set()
        server.shutdown()
        thread.join()
        server.server_close()
