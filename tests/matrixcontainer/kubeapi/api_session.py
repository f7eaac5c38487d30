"""A session with the embedded Kubernetes API over ASGI, for its tests."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from matrixcontainer.kubeapi.auth.authentication import User
from matrixcontainer.kubeapi.server import KubeApi
from matrixcontainer.kubeapi.storage.factory import open_database
from tests.matrixcontainer.kubeapi.asgi import build_api
from tests.matrixcontainer.kubeapi.tables import create_tables

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class ManualClock:
    """Time that moves when a test says so."""

    def __init__(self, now: float = 1_790_000_000.0) -> None:
        self.moment = now

    def __call__(self) -> float:
        return self.moment


@dataclass
class Answer:
    code: int
    headers: dict[str, str]
    body: Any
    warnings: list[str] = field(default_factory=list)

    @property
    def causes(self) -> dict[str, str]:
        """Field to message, of an Invalid."""
        return {c["field"]: c["message"] for c in self.body.get("details", {}).get("causes", [])}


class ApiSession:
    def __init__(self, api: KubeApi, clock: ManualClock, token: str = "admin") -> None:
        self.api, self.clock, self.token = api, clock, token
        self.headers: list[tuple[bytes, bytes]] = []

    def acting_as(self, user: str, *groups: str, **more: str) -> ApiSession:
        """The same token, impersonating somebody; `more` are further headers with _ for -."""
        found = ApiSession(self.api, self.clock, self.token)
        reported = [("impersonate-user", user), *(("impersonate-group", group) for group in groups)]
        reported += [(key.replace("_", "-"), value) for key, value in more.items()]
        found.headers = [(name.encode(), value.encode()) for name, value in reported if value]
        return found

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        agent: str = "tests/1.0",
        **query: Any,
    ) -> Answer:
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent: list[dict[str, Any]] = []
        scope = self._scope(method, path, query, content_type, accept, agent)
        await self.api.asgi(scope, _Receiver(raw), _collect(sent))
        headers = [(name.decode(), value.decode("latin-1")) for name, value in sent[0]["headers"]]
        text = b"".join(message.get("body", b"") for message in sent[1:])
        shown = dict(headers)
        value = json.loads(text) if text and "json" in shown.get("content-type", "") else text.decode()
        return Answer(sent[0]["status"], shown, value, [v for n, v in headers if n == "warning"])

    def _scope(
        self, method: str, path: str, query: dict[str, Any], content_type: str, accept: str, agent: str
    ) -> dict[str, Any]:
        headers = [
            (b"accept", accept.encode()),
            (b"content-type", content_type.encode()),
            (b"user-agent", agent.encode()),
        ]
        headers += self.headers
        if self.token:
            headers.append((b"authorization", f"Bearer {self.token}".encode()))
        text = urlencode(
            {key: str(value).lower() if isinstance(value, bool) else value for key, value in query.items()}
        )
        found = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "raw_path": path.encode(),
            "query_string": text.encode(),
        }
        return found | {"headers": headers}

    async def get(self, path: str, **query: Any) -> Answer:
        return await self.ask("GET", path, **query)

    async def post(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.ask("POST", path, body, **query)

    async def put(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.ask("PUT", path, body, **query)

    async def patch(self, path: str, body: Any, kind: str = MERGE, **query: Any) -> Answer:
        return await self.ask("PATCH", path, body, content_type=kind, **query)

    async def apply(self, path: str, body: Any, manager: str, **query: Any) -> Answer:
        return await self.ask("PATCH", path, body, content_type=APPLY, fieldManager=manager, **query)

    async def delete(self, path: str, body: Any = None, **query: Any) -> Answer:
        return await self.ask("DELETE", path, body, **query)

    @asynccontextmanager
    async def watch(self, path: str, accept: str = "application/json", **query: Any) -> AsyncIterator[Stream]:
        scope = self._scope("GET", path, {"watch": "true"} | query, "", accept, "tests/1.0")
        stream = Stream()
        task = asyncio.create_task(self.api.asgi(scope, stream.receive, stream.send))
        stream.task = task
        try:
            yield stream
        finally:
            stream.hang_up.set()
            await task

    async def until(self, path: str, wanted: Any, tries: int = 200) -> Answer:
        """Ask again until `wanted(answer)` holds; controllers work between the turns."""
        for _ in range(tries):
            reported = await self.get(path)
            if wanted(reported):
                return reported
            await asyncio.sleep(0.005)
        raise AssertionError(f"{path} never came to be as wanted: {reported.code} {reported.body}")

    async def define(self, crd: dict[str, Any]) -> None:
        reported = await self.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        assert reported.code == 201, reported.body
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
        await self.until(path, lambda s: condition(s.body, "Established") == "True")


def condition(obj: dict[str, Any], kind: str) -> str:
    return next((c["status"] for c in obj.get("status", {}).get("conditions") or [] if c["type"] == kind), "")


class _Receiver:
    def __init__(self, body: bytes) -> None:
        self.messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def __call__(self) -> dict[str, Any]:
        if self.messages:
            return self.messages.pop()
        await asyncio.Event().wait()
        raise AssertionError


def _collect(sent: list[dict[str, Any]]) -> Any:
    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    return send


class Stream:
    """The client's end of a watch."""

    def __init__(self) -> None:
        self.hang_up = asyncio.Event()
        self.started: dict[str, Any] = {}
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.rest = b""
        self.task: asyncio.Task[None] | None = None

    async def receive(self) -> dict[str, Any]:
        await self.hang_up.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.started = message
        else:
            self.queue.put_nowait(message.get("body", b""))
            if not message.get("more_body"):
                self.queue.put_nowait(None)

    async def event(self, within_s: float = 5.0) -> dict[str, Any] | None:
        """The next event, or None when the stream has ended."""
        while b"\n" not in self.rest:
            chunk = await asyncio.wait_for(self.queue.get(), within_s)
            if chunk is None:
                return None
            self.rest += chunk
        text, _, self.rest = self.rest.partition(b"\n")
        return json.loads(text)  # type: ignore[no-any-return]

    async def brief(self) -> tuple[str, str]:
        """(type, name) of the next event."""
        event = await self.event()
        assert event is not None
        return event["type"], event["object"].get("metadata", {}).get("name", "")


@asynccontextmanager
async def a_server(url: str = "sqlite://", seed: int = 1) -> AsyncIterator[ApiSession]:
    """A running API over an empty store, or over what the URL holds."""
    clock = ManualClock()
    database = open_database(url)
    create_tables(database)
    api = build_api(
        database, clock, random.Random(seed), {"admin": User("admin", ("system:masters", "system:authenticated"))}
    )
    await api.start()
    try:
        yield ApiSession(api, clock)
    finally:
        await api.stop()
        api.store.close()
        assert not api.core.failures, api.core.failures


SPEC = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 100},
        "color": {"type": "string", "enum": ["red", "green", "blue"], "default": "red"},
        "note": {"type": "string", "nullable": True},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name", "port"],
                "properties": {"name": {"type": "string"}, "port": {"type": "integer"}},
            },
        },
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


def a_crd(**changes: Any) -> dict[str, Any]:
    """The definition of widgets.example.test; `spec` and `rules` of the schema, `versions` or `names` can be replaced."""
    spec = changes.get("spec", SPEC)
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        "selectableFields": [{"jsonPath": ".spec.color"}] if "color" in spec.get("properties", {}) else [],
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "spec": spec | {"x-kubernetes-validations": changes.get("rules", [])},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        },
    }
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.test"},
        "spec": {
            "group": "example.test",
            "scope": changes.get("scope", "Namespaced"),
            "names": names | changes.get("names", {}),
            "versions": changes.get("versions", [version]),
        },
    }


WIDGETS = "/apis/example.test/v1/namespaces/default/widgets"


def a_widget(name: str = "one", **parts: Any) -> dict[str, Any]:
    spec = parts.pop("spec", {"size": 3})
    meta = {"name": name} | parts.pop("metadata", {})
    return {"apiVersion": "example.test/v1", "kind": "Widget", "metadata": meta, "spec": spec} | parts
