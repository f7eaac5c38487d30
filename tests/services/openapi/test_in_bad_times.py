"""Every request while something it needs is not to be had, and every request twice at once: none is a failure.

A refusal is one of those that a client understands (404, 409, 422, 503), and everything can be read afterwards.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from tests.services.every_route import NODE, Request, every_request
from tests.services.furnished import MARK, furnished_stack
from tests.small_stack import SmallStack
from tests.stack import Stack

WRITES = ("INSERT", "UPDATE", "DELETE")


async def ask(stack: Stack, request: Request) -> httpx.Response:
    agent = request.rule.path.endswith("-reports")
    token = stack.token("agent", MARK, NODE) if agent else stack.token("admin", MARK)
    return await stack.http[request.service].request(
        request.rule.method,
        request.path,
        content=None if request.body is None else json.dumps(request.body),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        params=request.query | request.of(MARK),
    )


@contextmanager
def refused_writes() -> Iterator[None]:
    """As a database that became a standby, or whose disk is full."""

    def refuse(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if statement.startswith(WRITES):
            why = sqlite3.OperationalError("attempt to write a readonly database")
            raise OperationalError(statement, parameters, why)

    event.listen(Engine, "before_cursor_execute", refuse)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", refuse)


def failures(request: Request, answers: Iterable[httpx.Response]) -> list[tuple[str, str]]:
    understood = (404, 409, 412, 422, 503)
    return [(str(request), each.text) for each in answers if not each.is_success and each.status_code not in understood]


async def everything_is_read(stack: Stack, requests: list[Request]) -> None:
    for request in requests:
        if request.rule.method == "GET" and "{}" not in request.rule.path:
            answer = await ask(stack, request)
            assert answer.is_success, (str(request), answer.text)


@pytest.mark.timeout(300)
@pytest.mark.looptime
async def test_every_request_twice_at_once_has_two_answers(tmp_path: Path) -> None:
    async with furnished_stack(tmp_path, SmallStack) as (stack, names):
        requests, failed = every_request(stack, names), []
        for request in requests:
            if request.rule.method != "GET":
                failed += failures(request, await asyncio.gather(ask(stack, request), ask(stack, request)))
        assert not failed
        await everything_is_read(stack, requests)


@pytest.mark.timeout(300)
@pytest.mark.looptime
async def test_what_cannot_be_written_is_refused_and_has_not_happened(tmp_path: Path) -> None:
    async with furnished_stack(tmp_path, SmallStack) as (stack, names):
        requests, failed, unavailable = every_request(stack, names), [], 0
        with refused_writes():
            for request in requests:
                if request.rule.method != "GET":
                    answers = [await ask(stack, request)]
                    failed += failures(request, answers)
                    unavailable += answers[0].status_code == 503
        assert not failed
        assert unavailable > 30
        await everything_is_read(stack, requests)


@pytest.mark.timeout(300)
@pytest.mark.looptime
@pytest.mark.parametrize("away", ["resource", "link", "compute"])
async def test_without_a_neighbour_every_other_service_answers(tmp_path: Path, away: str) -> None:
    async with furnished_stack(tmp_path, SmallStack) as (stack, names):
        requests, failed = every_request(stack, names), []
        await stack.kill(away)
        for request in requests:
            if request.service != away:
                failed += failures(request, [await ask(stack, request)])
        assert not failed
        await stack.start(away)
        await everything_is_read(stack, requests)
