"""Starts the servers, gives each the standing definitions, runs a case on one, and keeps what came of it.

Cases keep to namespaces and groups of their own, so that several run at once; each runs at most once on each server, and
`outcome(server, name)` answers from memory afterwards.
"""

import contextlib
import json
import ssl
import tempfile
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import httpx

from tests.conformance.api_session import ApiSession, Server
from tests.conformance.catalogue import CASES
from tests.conformance.things import CRDS, STANDING
from tests.e2e.realkube.control_plane import RealKube
from tests.matrixcontainer.kubeapi.process import KubeProcess

EMBEDDED, REAL = "embedded", "real"
AT_ONCE = 6


@dataclass
class Outcome:
    """What a case saw on one server, and why it failed, "" if it did not."""

    seen: list[dict[str, Any]] = field(default_factory=list)
    failure: str = ""
    took_s: float = 0.0


class Bench:
    def __init__(self) -> None:
        self.held = contextlib.ExitStack()
        self.servers: dict[str, tuple[Server, httpx.Client]] = {}
        self.outcomes: dict[tuple[str, str], Future[Outcome]] = {}
        self.pool = ThreadPoolExecutor(AT_ONCE)
        self.embedded: KubeProcess | None = None
        self.real: RealKube | None = None

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(cancel_futures=True)
        self.held.close()

    def server(self, name: str) -> tuple[Server, httpx.Client]:
        """The server and an HTTP client to it, started if it is not running yet."""
        if name not in self.servers:
            folder = Path(self.held.enter_context(tempfile.TemporaryDirectory(prefix=f"conformance-{name}-")))
            found = self._embedded(folder) if name == EMBEDDED else self._real(folder)
            verify = ssl.create_default_context(cadata=found.ca)
            limits = httpx.Limits(max_connections=100, max_keepalive_connections=20)
            client = self.held.enter_context(
                httpx.Client(base_url=found.url, verify=verify, timeout=30.0, limits=limits, trust_env=False)
            )
            self.servers[name] = (found, client)
            self._prepare(found, client)
        return self.servers[name]

    def _embedded(self, folder: Path) -> Server:
        (folder / "kube").mkdir()
        users = {
            "alice": ("alice-token", ["readers", "system:authenticated"]),
            "bob": ("bob-token", ["writers", "system:authenticated"]),
        }
        entries = {name: {"token": token, "user": name, "groups": groups} for name, (token, groups) in users.items()}
        (folder / "kube" / "tokens.json").write_text(json.dumps({"tokens": entries}))
        self.embedded = KubeProcess(folder).start()
        self.held.callback(self.embedded.stop)
        return server_of(EMBEDDED, self.embedded.kubeconfig)

    def _real(self, folder: Path) -> Server:
        self.real = self.held.enter_context(RealKube(folder))
        return Server(REAL, self.real.url, self.real.ca.read_text(), self.real.token, str(self.real.kubeconfig))

    def _prepare(self, server: Server, client: httpx.Client) -> None:
        session = ApiSession(server, client, "prepare")
        for one in STANDING:
            session.post(CRDS, one)
        for one in STANDING:
            group, found = one["spec"]["group"], one["spec"]["names"]["plural"]
            for served in one["spec"]["versions"]:
                session.until(f"/apis/{group}/{served['name']}/{found}", lambda reported: reported.code == 200)

    def begin(self, server: str, names: list[str]) -> None:
        """Starts running these cases on the server, a few at a time."""
        self.server(server)
        for name in names:
            if (server, name) not in self.outcomes:
                self.outcomes[(server, name)] = self.pool.submit(self._run, server, name)

    def outcome(self, server: str, name: str) -> Outcome:
        """What the case sees on the server; run now if it was not yet."""
        self.begin(server, [name])
        return self.outcomes[(server, name)].result()

    def _run(self, server: str, name: str) -> Outcome:
        session = ApiSession(*self.servers[server], name)
        outcome = Outcome(session.seen)
        begun = monotonic()
        try:
            CASES[name].run(session)
        except Exception as failure:
            last = traceback.extract_tb(failure.__traceback__)
            at = next((one for one in reversed(last) if "/cases/" in one.filename), last[-1])
            outcome.failure = f"{Path(at.filename).name}:{at.lineno}: {at.line}\n{type(failure).__name__}: {failure}"
        outcome.took_s = monotonic() - begun
        return outcome


def server_of(name: str, kubeconfig: Path) -> Server:
    """The server a kubeconfig with a bearer token speaks of."""
    import base64

    current = json.loads(kubeconfig.read_text())
    cluster, user = current["clusters"][0]["cluster"], current["users"][0]["user"]
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return Server(name, cluster["server"], ca, user["token"], str(kubeconfig))
