"""matrixctl before services of this process: what it asks ends in their applications, and what it prints is reported."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from services.matrixctl.clients import api_client
from services.matrixctl.main import run
from services.matrixctl.supervisor.state_folder import StackTime
from services.testing.stack import InProcessStack

WITHIN_WALL_S = 30.0


def connect_matrixctl(monkeypatch: pytest.MonkeyPatch, clients: Mapping[str, Any]) -> None:
    """Until the test ends, matrixctl's way to each service leads to the client of that name."""

    class InProcessClient(api_client.ApiClient):
        def _client(self, service: str) -> Any:
            return contextlib.nullcontext(clients[service])

    monkeypatch.setattr(
        api_client.ApiClient,
        "of",
        lambda folder, project=None: InProcessClient(
            folder, SimpleNamespace(children=dict.fromkeys(clients), time=StackTime(1.0, 0.0, 0.0)), project=project
        ),
    )


def run_matrixctl(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run matrixctl: exit code, standard output, standard error."""
    code = 0
    try:
        run([*words])
    except SystemExit as end:
        code = int(end.code or 0)
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def run_line(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, str]:
    """Run a line without quotes: exit code, and all that was printed."""
    code, out, err = run_matrixctl(capsys, *line.split())
    return code, out + err


def run_line_normalised(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, str, str]:
    """Run a line without quotes: exit code, standard output with its gaps closed, standard error."""
    code, out, err = run_matrixctl(capsys, *line.split())
    return code, " ".join(out.split()), err


def connect_matrixctl_to(monkeypatch: pytest.MonkeyPatch, stack: InProcessStack) -> None:
    """The same for a stack of this test's loop, for commands that `run_line_in_thread` runs."""
    loop = asyncio.get_running_loop()

    class Client:
        def __init__(self, service: str) -> None:
            self._http = stack.http[service]

        def request(self, *request: Any, **more: Any) -> httpx.Response:
            return asyncio.run_coroutine_threadsafe(self._http.request(*request, **more), loop).result(WITHIN_WALL_S)

    connect_matrixctl(monkeypatch, {service: Client(service) for service in stack.services})


async def run_line_in_thread(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, str, str]:
    """Run a line without quotes in a thread, while the stack goes on in this one; as `run_line_normalised`."""
    return await asyncio.to_thread(run_line_normalised, capsys, line)
