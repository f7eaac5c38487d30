"""A process that is asked to end says goodbye to those who watch, and nothing worse to its log."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from matrixcommon.api.client import watch
from services.chassis.http_server.serving import GracefulShutdown


def listening(process: subprocess.Popen[str]) -> str:
    """Where it says that it can be reached; once it does, its requests are answered soon."""
    assert process.stderr is not None
    for line in process.stderr:
        if '"listening"' in line:
            return str(json.loads(line)["url"])
    raise AssertionError("it never listened")


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "services.resource", "--state", str(tmp_path), "--port", "0"]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


@pytest.mark.timeout(120)
async def test_watches_of_a_process_that_is_stopped_end_and_nothing_is_logged_of_it(
    process: subprocess.Popen[str],
) -> None:
    http = httpx.AsyncClient(base_url=await asyncio.to_thread(listening, process), trust_env=False)

    async def followed(path: str, there: asyncio.Event) -> str:
        """How it ended: raises what it was broken off with."""
        async for event in watch(http, path, since=None):
            if event.type == "BOOKMARK":
                there.set()
        return "ended"

    paths, begun = ("/v1/nodes", "/v1/npus", "/v1/operations"), [asyncio.Event() for _ in range(3)]
    watches = [asyncio.create_task(followed(*each)) for each in zip(paths, begun, strict=True)]
    await asyncio.gather(*(each.wait() for each in begun))
    process.send_signal(signal.SIGTERM)
    assert await asyncio.gather(*watches) == ["ended"] * 3
    _, logged = await asyncio.to_thread(process.communicate)
    assert process.returncode == -signal.SIGTERM
    assert [line for line in logged.splitlines() if "Traceback" in line or '"ERROR"' in line] == []


class Served:
    """One request to an application, and what was answered."""

    def __init__(self, app: GracefulShutdown, method: str) -> None:
        self.sent: list[Any] = []
        self.first = asyncio.Event()
        scope = {"type": "http", "method": method, "path": "/v1/things", "headers": []}
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        await asyncio.Event().wait()

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        self.first.set()


def stream(media_type: bytes) -> Any:
    """An application that answers without an end."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", media_type)]})
        await asyncio.Event().wait()

    return app


END = {"type": "http.response.body", "body": b"", "more_body": False}


async def test_a_watch_is_ended_at_once() -> None:
    app = GracefulShutdown(stream(b"text/event-stream; charset=utf-8"))
    served = Served(app, "GET")
    await served.first.wait()
    app.stop()
    await served.task
    assert served.sent[1:] == [END]
    late = Served(app, "GET")
    await late.task
    assert late.sent[1:] == [END], "one that begins while the process ends"


@pytest.mark.parametrize(
    ("method", "media_type"), [("POST", b"text/event-stream"), ("GET", b"application/octet-stream")]
)
async def test_an_answer_that_cannot_be_gone_on_with_is_not_made_to_look_whole(method: str, media_type: bytes) -> None:
    app = GracefulShutdown(stream(media_type))
    served = Served(app, method)
    await served.first.wait()
    app.stop()
    served.task.cancel()  # as the server does with what is under way after its patience
    await served.task
    assert len(served.sent) == 1


async def test_who_was_not_answered_yet_is_to_ask_again() -> None:
    async def waits(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    app = GracefulShutdown(waits)
    served = Served(app, "POST")
    await asyncio.sleep(0)
    app.stop()
    served.task.cancel()
    await served.task
    start, body = served.sent
    assert (start["status"], json.loads(body["body"])["reason"]) == (503, "Unavailable")
    assert b"retry-after" in dict(start["headers"])


async def test_what_is_cancelled_for_another_reason_is() -> None:
    served = Served(GracefulShutdown(stream(b"text/event-stream")), "GET")
    await served.first.wait()
    served.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await served.task
    assert len(served.sent) == 1
