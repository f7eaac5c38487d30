"""A raw HTTPS client for one case on one server: every request leaves an observation, polls leave only their last.

A case gets an `ApiSession`. `session.post(path, body, want=201)` sends, asserts the code and records what came back.
Paths may start with `~`, which stands for the case's own namespace (`~pods` is a core path, `~apps/v1/deployments` one
of a group); the namespace is made when it is first used. `session.note` records any other value.
"""

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import Any
from urllib.parse import quote

import httpx

from tests.conformance.normal import normal, printed

ENVIRONMENT = dict(os.environ)
"""As it was at the start: pytest changes its own while cases run in other threads, and a copy may trip over that."""

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PATIENCE_S = 25.0
EVENT_PATIENCE_S = 10.0


@dataclass
class Answer:
    """An answer."""

    code: int
    headers: httpx.Headers
    body: Any
    warnings: list[str] = field(default_factory=list)

    def __getitem__(self, key: str) -> Any:
        return self.body[key]

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def causes(self) -> list[dict[str, str]]:
        return list((self.body.get("details") or {}).get("causes") or [])

    @property
    def names(self) -> list[str]:
        """Names of a list's items."""
        return [item["metadata"]["name"] for item in self.body["items"]]

    @property
    def rv(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])


@dataclass
class Server:
    """Where a server is and how to be its administrator."""

    name: str
    url: str
    ca: str
    token: str
    kubeconfig: str
    done: dict[str, Lock] = field(default_factory=dict)
    guard: Lock = field(default_factory=Lock)

    def once(self, name: str, action: Callable[[], None]) -> None:
        """Does something once for all cases of this server; the others wait for it."""
        with self.guard:
            first = name not in self.done
            lock = self.done.setdefault(name, Lock())
            if first:
                lock.acquire()
        if first:
            try:
                action()
            finally:
                lock.release()
        else:
            with lock:
                pass


class ApiSession:
    """The requests of one case to one server, and what they observed."""

    def __init__(self, server: Server, client: httpx.Client, case: str) -> None:
        self.server, self.client, self.case = server, client, case
        self.seen: list[dict[str, Any]] = []
        self._namespace = ""
        self.recording = True

    # ---- names

    @property
    def ns(self) -> str:
        """The case's namespace, made at first use."""
        if not self._namespace:
            self._namespace = self.case[:63]
            made = self.quietly("POST", "/api/v1/namespaces", {"metadata": {"name": self._namespace}})
            assert made.code == 201, made.body
        return self._namespace

    def path(self, text: str) -> str:
        """`~pods/x` is /api/v1/namespaces/NS/pods/x, `~apps/v1/deployments` /apis/apps/v1/namespaces/NS/deployments."""
        if not text.startswith("~"):
            return text
        parts = text[1:].split("/")
        if len(parts) > 2 and parts[1].startswith("v") and parts[1][1:2].isdigit():
            return f"/apis/{parts[0]}/{parts[1]}/namespaces/{self.ns}/{'/'.join(parts[2:])}"
        return f"/api/v1/namespaces/{self.ns}/{text[1:]}"

    # ---- requests

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        want: int | None = None,
        kind: str | None = "application/json",
        accept: str = "application/json",
        token: str | None = None,
        headers: dict[str, str] | None = None,
        note: bool = True,
        **query: Any,
    ) -> Answer:
        """Send, record unless `note` is false, and assert the code unless `want` is None."""
        raw = body if isinstance(body, bytes | str) else None if body is None else json.dumps(body)
        sent = {"accept": accept, "user-agent": "conformance/1.0"}
        if raw is not None and kind:
            sent["content-type"] = kind
        sent["authorization"] = f"Bearer {self.server.token if token is None else token}"
        if token == "":
            del sent["authorization"]
        asked = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in query.items()}
        got = self.client.request(
            method, self.path(path), content=raw, params=asked or None, headers=sent | (headers or {})
        )
        reported = _read(got)
        if note and self.recording:
            entry = {"did": _did(method, path, asked), "code": reported.code, "body": normal(reported.body)}
            if reported.warnings:
                entry["warnings"] = reported.warnings
            self.seen.append(entry)
        if want is not None:
            assert reported.code == want, (
                f"{method} {path}: wanted {want}, got {reported.code}: {json.dumps(reported.body)[:1500]}"
            )
        return reported

    def quietly(self, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        return self.ask(method, path, body, note=False, **more)

    def get(self, path: str, want: int | None = 200, **more: Any) -> Answer:
        return self.ask("GET", path, want=want, **more)

    def post(self, path: str, body: Any, want: int | None = 201, **more: Any) -> Answer:
        return self.ask("POST", path, body, want=want, **more)

    def put(self, path: str, body: Any, want: int | None = 200, **more: Any) -> Answer:
        return self.ask("PUT", path, body, want=want, **more)

    def patch(self, path: str, body: Any, kind: str = MERGE, want: int | None = 200, **more: Any) -> Answer:
        return self.ask("PATCH", path, body, want=want, kind=kind, **more)

    def apply(self, path: str, body: Any, manager: str = "one", want: int | None = 200, **more: Any) -> Answer:
        return self.ask("PATCH", path, body, want=want, kind=APPLY, fieldManager=manager, **more)

    def delete(self, path: str, body: Any = None, want: int | None = 200, **more: Any) -> Answer:
        return self.ask("DELETE", path, body, want=want, **more)

    def kubectl(self, *words: str, stdin: Any = None, fails: bool = False, note: bool = True) -> str:
        """Runs kubectl in the case's namespace; records exit code and both outputs, and returns the standard one."""
        folder = Path(self.server.kubeconfig).parent
        environment = ENVIRONMENT | {"KUBECONFIG": self.server.kubeconfig, "HOME": str(folder)}
        text = stdin if isinstance(stdin, str) or stdin is None else json.dumps(stdin)
        command = ["kubectl", "--namespace", self.ns, *words]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=60, env=environment, check=False
        )
        if note:
            shown = {"exit": done.returncode, "out": printed(done.stdout), "errors": printed(done.stderr)}
            self.seen.append({"did": " ".join(["kubectl", *words])[:120], **shown})
        assert (done.returncode != 0) == fails, f"{' '.join(command)}: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    # ---- waiting

    def until(
        self, path: str, holds: Callable[[Answer], Any], note: bool = True, patience_s: float = PATIENCE_S, **more: Any
    ) -> Answer:
        """Ask again until the answer is as wanted; the last one is recorded."""
        deadline = monotonic() + patience_s
        while True:
            reported = self.quietly("GET", path, **more)
            if holds(reported):
                break
            assert monotonic() < deadline, (
                f"GET {path} never came to be as wanted; last: {reported.code} {reported.body}"
            )
            sleep(0.02)
        if note:
            self.seen.append(
                {"did": f"GET {path} until as wanted", "code": reported.code, "body": normal(reported.body)}
            )
        return reported

    def until_gone(self, path: str, **more: Any) -> Answer:
        return self.until(path, lambda reported: reported.code == 404, **more)

    def note(self, name: str, value: Any) -> None:
        """Record any value."""
        self.seen.append({"did": name, "value": normal(value)})

    # ---- watches

    @contextlib.contextmanager
    def watch(self, path: str, accept: str = "application/json", **query: Any) -> Iterator["Stream"]:
        """An open watch; its events are recorded as they are taken."""
        asked = {"watch": "true"} | {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in query.items()}
        headers = {"accept": accept, "authorization": f"Bearer {self.server.token}", "user-agent": "conformance/1.0"}
        patience = httpx.Timeout(PATIENCE_S, read=EVENT_PATIENCE_S)
        with self.client.stream("GET", self.path(path), params=asked, headers=headers, timeout=patience) as response:
            yield Stream(self, f"watch {path}", response)


class Stream:
    """The events of one watch. An event that does not come in time is an error."""

    def __init__(self, session: ApiSession, did: str, response: httpx.Response) -> None:
        self.session, self.did, self.code = session, did, response.status_code
        self._lines = response.iter_lines()

    def event(self) -> dict[str, Any] | None:
        """The next event, unrecorded; None at the stream's end."""
        return next((json.loads(line) for line in self._lines if line), None)

    def take(self, count: int, bookmarks: bool = False) -> list[dict[str, Any]]:
        """The next `count` events, recorded; bookmarks are passed over unless wanted."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            event = self.event()
            assert event is not None, f"{self.did}: ended after {found}"
            if event["type"] != "BOOKMARK" or bookmarks:
                found.append(event)
        self.session.seen.append({"did": self.did, "events": normal(found)})
        return found

    def rest(self) -> list[dict[str, Any]]:
        """Everything until the stream ends, recorded."""
        found = []
        while (event := self.event()) is not None:
            found.append(event)
        self.session.seen.append({"did": self.did, "events until the end": normal(found)})
        return found


def brief(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """(type, name) of events."""
    return [(event["type"], event["object"].get("metadata", {}).get("name", "")) for event in events]


def _did(method: str, path: str, asked: dict[str, str]) -> str:
    """The request in a line; versions and tokens of a server's own are not told."""
    own = ("continue", "resourceVersion")
    words = [f"{key}={'...' if key in own else quote(value)}" for key, value in asked.items()]
    return f"{method} {path}" + (f"?{'&'.join(words)}" if words else "")


def _read(got: httpx.Response) -> Answer:
    warnings = got.headers.get_list("warning")
    media = got.headers.get("content-type", "")
    spoken = "json" in media or got.content[:2] in (b'{"', b"{\n")
    body = got.json() if got.content and spoken else got.text
    return Answer(got.status_code, got.headers, body, warnings)
