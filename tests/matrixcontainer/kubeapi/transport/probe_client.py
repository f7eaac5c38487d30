"""A client that minds its own business while somebody attacks: asks in turn on a connection it keeps and on a new one.

`python -m tests.matrixcontainer.kubeapi.transport.probe_client PORT CA TOKEN PATH` asks until its input ends, then prints how it
fared; with an empty CA it speaks no TLS. A process of its own, so that what it measures is the server and not the attacker beside
it.
"""

from __future__ import annotations

import http.client
import json
import select
import ssl
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import PIPE, Popen

PATIENCE_WALL_S = 30.0
PAUSE_WALL_S = 0.01


@dataclass
class ProbeResults:
    answers: int
    errors: list[str]
    worst_kept_ms: float
    worst_new_ms: float


class ProbeClient:
    """A running one; `leave` says how it fared."""

    def __init__(self, port: int, ca: Path | None, token: str, path: str = "/api/v1/namespaces") -> None:
        command = [sys.executable, "-m", __name__, str(port), str(ca or ""), token, path]
        self._process = Popen(command, stdin=PIPE, stdout=PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()  # its first answer

    def leave(self) -> ProbeResults:
        output, _ = self._process.communicate("")
        return ProbeResults(**json.loads(output))


def _ask(connection: http.client.HTTPConnection, token: str, path: str) -> None:
    connection.request("GET", path, headers={"authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise OSError(f"answered {answer.status}")


def main(port: int, ca: str, token: str, path: str) -> None:
    trust = ssl.create_default_context(cafile=ca) if ca else None

    def connect() -> http.client.HTTPConnection:
        if trust is None:
            return http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_WALL_S)
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE_WALL_S, context=trust)

    fared = ProbeResults(0, [], 0.0, 0.0)
    kept = connect()
    while not select.select([sys.stdin], [], [], PAUSE_WALL_S)[0]:
        for connection in (kept, connect()):
            began = time.monotonic()
            try:
                _ask(connection, token, path)
                fared.answers += 1
            except OSError as failure:
                fared.errors.append(repr(failure))
                kept.close()
            took_ms = 1000 * (time.monotonic() - began)
            if connection is kept:
                fared.worst_kept_ms = max(fared.worst_kept_ms, took_ms)
            else:
                fared.worst_new_ms = max(fared.worst_new_ms, took_ms)
                connection.close()
        if fared.answers == 2:
            print("answered", flush=True)
            fared.worst_kept_ms = fared.worst_new_ms = 0.0
    print(json.dumps(asdict(fared)))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
