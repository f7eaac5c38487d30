"""A console in front of a whole stack in this process, each asked with a token of its own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.chassis.access import create_token
from services.console import main as console_main
from services.console.live.merge_patch import apply_merge_patch
from services.testing.asgi import StreamingASGITransport
from tests.clocks import LoopClock
from tests.stack import Stack


class ConsoleServer:
    """The console's application, with a stack's services behind it, or with none that answers."""

    def __init__(self, tokens: Path, stack: Stack | None = None) -> None:
        self.tokens = tokens
        if stack is not None:
            self.stack = stack
        unreachable = StreamingASGITransport(None)
        unreachable.down = True
        settings = console_main.ConsoleSettings(tokens=tokens, token=self.token("viewer", project="*"))
        transports = {name: slot.transport for name, slot in stack.slots.items()} if stack else {}
        self.app = console_main.build(
            settings,
            stack.clock if stack else LoopClock(0.0),
            {name: transports.get(name, unreachable) for name in settings.urls()},
        )
        self.transport = StreamingASGITransport(self.app)
        self.http = self.client("")

    def token(self, role: str, project: str, nodes: str = "") -> str:
        return create_token(self.tokens, f"{role}-of-{project}".replace("*", "all"), project, role, nodes)

    def client(self, token: str) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.AsyncClient(base_url="http://console", transport=self.transport, headers=headers, timeout=None)

    @asynccontextmanager
    async def live(self, token: str) -> AsyncIterator[Frames]:
        async with self.client(token).stream("GET", "/live") as answer:
            yield Frames(answer)


class Frames:
    """The events of a live stream, with the picture that they make."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()
        self.picture: dict[str, Any] = {}
        self.sequence = 0

    async def next(self) -> tuple[str, dict[str, Any]]:
        fields: dict[str, str] = {}
        async for line in self._lines:
            if line:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
            elif "data" in fields:
                break
            else:
                fields = {}
        kind, data = fields["event"], json.loads(fields["data"])
        if kind == "whole":
            self.picture = data["picture"]
        elif kind == "patch":
            self.picture = apply_merge_patch(self.picture, data["patch"])
        self.sequence = data.get("sequence", self.sequence)
        return kind, data

    async def until(self, holds: Any) -> dict[str, Any]:
        while not (self.picture and holds(self.picture)):
            kind, data = await self.next()
            assert kind != "end", data
        return self.picture


@pytest.fixture
def start_console(tmp_path):
    """To be entered in the test: a stack that begins in a fixture begins before time is virtual."""
    return lambda: console_over_stack(tmp_path)


@asynccontextmanager
async def console_over_stack(folder):
    async with Stack(folder, tokens=True) as stack:
        assert stack.tokens is not None
        console = ConsoleServer(stack.tokens, stack)
        async with console.app.router.lifespan_context(console.app):
            yield console


@pytest.fixture
async def console_alone(tmp_path):
    """A console whose services are all away."""
    console = ConsoleServer(tmp_path / "tokens.json")
    async with console.app.router.lifespan_context(console.app):
        yield console
