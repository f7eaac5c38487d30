"""Admission webhooks that tests answer: an HTTPS server in this loop, and the configurations that name it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import uvicorn

from matrixcontainer.kubeapi.transport.certificates import certificate_files, ensure_certificates
from services.kube.bind import listen

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Hooks:
    """`answers[path]` is asked with the request of a review; what came is in `seen` by path."""

    def __init__(self, port: int, ca: bytes) -> None:
        self.port, self.ca = port, ca
        self.answers: dict[str, Answer] = {}
        self.seen: dict[str, list[dict[str, Any]]] = {}

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message.get("more_body"):
                break
        review = json.loads(body)
        self.seen.setdefault(scope["path"], []).append(review["request"])
        response = {"uid": review["request"]["uid"]} | self.answers[scope["path"]](review["request"])
        code = response.pop("http", 200)
        text = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
        await send({"type": "http.response.start", "status": code, "headers": []})
        await send({"type": "http.response.body", "body": text.encode()})

    def client(self, path: str) -> dict[str, Any]:
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": base64.b64encode(self.ca).decode()}

    def hook(self, path: str, answer: Answer, **more: Any) -> dict[str, Any]:
        """A webhook at the path, for every operation on widgets unless `more` says otherwise."""
        self.answers[path] = answer
        rule = {"apiGroups": ["example.test"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["widgets"]}
        found = {
            "name": f"{path.strip('/')}.hooks.test",
            "clientConfig": self.client(path),
            "rules": [rule | more.pop("rule", {})],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        return found | more


@contextlib.asynccontextmanager
async def hook_server(folder: Path) -> AsyncIterator[Hooks]:
    ensure_certificates(folder, [])
    ca, certificate, key = certificate_files(folder)
    listener = listen("127.0.0.1", 0)
    hooks = Hooks(listener.getsockname()[1], ca.read_bytes())
    config = uvicorn.Config(
        hooks, log_config=None, lifespan="off", ws="none", ssl_certfile=certificate, ssl_keyfile=key, loop="asyncio"
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.005)
    try:
        yield hooks
    finally:
        server.should_exit = server.force_exit = True
        await task


def allow(request: dict[str, Any]) -> dict[str, Any]:
    return {"allowed": True}


def patch(*operations: dict[str, Any]) -> Answer:
    text = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda request: {"allowed": True, "patchType": "JSONPatch", "patch": text}
