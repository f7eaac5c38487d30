"""A mirror of a collection, in front of a service that is a text."""

from __future__ import annotations

import asyncio
import json
import logging

import httpx
import pytest

from services.console.live.mirror import Mirror

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(60)]

KEPT = 5


def event(kind: str, project: str, number: int) -> str:
    view = {"project": project, "name": f"{project}-{number}"}
    return f"event: {kind}\nid: {number}\ndata: {json.dumps(view)}\n\n"


BOOKMARK = "event: BOOKMARK\nid: 1000\ndata: {}\n\n"


async def mirrored(text: str, limit: int) -> list[str]:
    """Names of what a mirror keeps of a watch that says `text`, and then ends."""
    ended = asyncio.Event()

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text=text)

    def heard() -> None:
        if mirror.version and not mirror.reachable:
            ended.set()

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://service") as http:
        mirror: Mirror[str] = Mirror(http, "events", lambda view: view["name"], heard, limit)
        running = asyncio.create_task(mirror.run())
        await ended.wait()
        running.cancel()
    return list(mirror.items.values())


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_happens_much_in_one_project_takes_no_events_of_another(at_once):
    news = [event("ADDED", "quiet", 0), *(event("ADDED", "loud", number) for number in range(1, 50))]
    news.insert(1 if not at_once else len(news), BOOKMARK)
    kept = await mirrored("".join(news), KEPT)
    assert kept == ["quiet-0", *(f"loud-{number}" for number in range(45, 50))]


async def test_what_is_gone_makes_room():
    news = [*(event("ADDED", "loud", number) for number in range(KEPT)), BOOKMARK]
    news += [event("DELETED", "loud", 3), event("ADDED", "loud", 9)]
    assert await mirrored("".join(news), KEPT) == ["loud-0", "loud-1", "loud-2", "loud-4", "loud-9"]


async def test_a_service_that_stays_away_is_logged_once_for_each_time(caplog):
    """Away, back, away again: each is asked for more than once."""
    asked, enough = 0, asyncio.Event()

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal asked
        asked += 1
        if asked == 20:
            enough.set()
        if asked == 10:
            return httpx.Response(200, text=BOOKMARK)
        raise httpx.ConnectError("refused", request=request)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://service") as http:
        mirror: Mirror[str] = Mirror(http, "events", lambda view: view["name"], lambda: None)
        with caplog.at_level(logging.INFO, "services.console.live.mirror"):
            running = asyncio.create_task(mirror.run())
            await enough.wait()
            running.cancel()
    assert [each.message for each in caplog.records] == ["watch ended"] * 2
