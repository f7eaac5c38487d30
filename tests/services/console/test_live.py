"""The live stream: the machine as it is, one picture for an audience, nothing of another project's in it."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import httpx
import pytest

from matrixcommon.api.authorization import REDACTED_NAME
from services.chassis.access import revoke_token
from services.console import main as console_main
from services.console.gateway import streams
from services.console.live import broadcast
from services.console.live.collector import Collector
from services.testing.asgi import StreamingASGITransport
from tests.clocks import LoopClock

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(120)]


def free(picture, count=384):
    return picture["counts"]["free"] == count


async def ensure(console, name, project, **spec):
    http = console.stack.http["compute"]
    answer = await http.put(f"/v1/instances/{name}", params={"project": project}, json=spec)
    assert answer.is_success, answer.text
    return answer


async def test_the_machine_comes_whole_and_then_what_changes(start_console):
    async with start_console() as console, console.live(console.token("viewer", project="red")) as frames:
        picture = await frames.until(lambda now: free(now) and now["services"]["agents"])
        assert [len(nodes) for nodes in picture["supernodes"]["sn0"]["cabinets"].values()] == [4] * 12
        assert picture["services"] == {
            "resource": True,
            "link": True,
            "compute": True,
            "infer": False,
            "agents": True,
        }
        await ensure(console, "a", "red", nodes=2, spares=1)
        picture = await frames.until(lambda now: now["counts"]["held"] == 16)
        assert picture["counts"]["spare"] == 8
        assert picture["instances"]["red/a"]["nodes"] == 2
        assert set(picture["supernodes"]["sn0"]["holders"].values()) == {"red/a"}
        kind, data = await frames.next() if picture["instances"]["red/a"]["state"] != "Active" else ("patch", {})
        assert kind == "patch"
        assert len(json.dumps(data)) < 6000, "a patch says what changed, not all"


async def test_who_holds_what_shows_to_its_project_and_to_those_who_see_all(start_console):
    async with start_console() as console:
        tokens = {project: console.token("viewer", project=project) for project in ("red", "blue", "*")}
        await ensure(console, "secret-name", "red", nodes=2)
        seen = {}
        for project, token in tokens.items():
            async with console.live(token) as frames:
                seen[project] = await frames.until(lambda now: now["counts"]["held"] == 16)
        assert set(seen["red"]["supernodes"]["sn0"]["holders"].values()) == {"red/secret-name"}
        assert set(seen["*"]["supernodes"]["sn0"]["holders"].values()) == {"red/secret-name"}
        assert set(seen["blue"]["supernodes"]["sn0"]["holders"].values()) == {REDACTED_NAME}
        assert seen["blue"]["supernodes"]["sn0"]["states"] == seen["*"]["supernodes"]["sn0"]["states"], (
            "hardware is everybody's"
        )
        assert "secret-name" not in json.dumps(seen["blue"])
        assert "red" not in json.dumps({key: value for key, value in seen["blue"].items() if key != "services"})


async def test_faults_and_lost_services_show_and_what_was_known_stays(start_console):
    async with start_console() as console, console.live(console.token("viewer", project="red")) as frames:
        await frames.until(free)
        console.stack.impair("broken", "npu-fault", "sn0-c02-n1", npu=3, die=1)
        picture = await frames.until(lambda now: now["counts"]["faulty"] == 1)
        assert picture["supernodes"]["sn0"]["states"]["sn0-c02-n1"] == "dddxdddd"
        assert picture["alerts"]["node sn0-c02-n1"]["message"].startswith("npu3-die1 raised ")
        await console.stack.kill("resource")
        picture = await frames.until(lambda now: not now["services"]["resource"])
        assert free(picture, 376), "what was known last stays"
        assert "service resource" in picture["alerts"]
        await console.stack.start("resource")
        await frames.until(lambda now: now["services"]["resource"])


async def test_a_stream_ends_with_its_token(console_alone):
    token = console_alone.token("viewer", project="red")
    async with console_alone.live(token) as frames:
        await frames.next()
        revoke_token(console_alone.tokens, "viewer-of-red")
        async with asyncio.timeout(30):
            while (await frames.next())[0] != "end":
                pass


@pytest.mark.parametrize(("role", "status"), [("user", 403), ("agent", 403), ("viewer", 200), ("editor", 200)])
async def test_viewers_and_above_may_watch(console_alone, role, status):
    token = console_alone.token(role, project="red", nodes="sn0-*" if role == "agent" else "")
    async with console_alone.live(token) as frames:
        assert frames.answer.status_code == status
    assert (await console_alone.client(token).get("/whoami")).status_code == status


async def test_nobody_watches_without_a_token(console_alone):
    for path in ("/live", "/whoami", "/metrics"):
        assert (await console_alone.http.get(path)).status_code == 401, path


async def test_there_are_only_so_many_streams(console_alone, monkeypatch):
    monkeypatch.setattr("services.console.gateway.streams.STREAMS_MAX", 1)
    token = console_alone.token("viewer", project="red")
    async with console_alone.live(token) as frames:
        await frames.next()
        refused = await console_alone.client(token).get("/live")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")


async def test_nobody_has_more_than_a_share_of_the_streams(console_alone):
    """Whoever opens them at once, and whatever becomes of them; the others are not kept from theirs."""
    mine, yours = console_alone.token("viewer", project="red"), console_alone.token("editor", project="red")
    async with AsyncExitStack() as open_ones:
        taken = [
            await open_ones.enter_async_context(console_alone.live(mine)) for _ in range(streams.STREAMS_PER_TOKEN_MAX)
        ]
        assert {each.answer.status_code for each in taken} == {200}
        refused = await console_alone.client(mine).get("/live")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
        assert refused.json()["reason"] == "TooManyRequests"
        assert "viewer-of-red has 20 open streams" in refused.json()["detail"]
        async with console_alone.live(yours) as frames:
            assert frames.answer.status_code == 200
            assert (await frames.next())[0] == "now"

    async def admitted() -> bool:
        async with console_alone.live(mine) as frames:
            return frames.answer.status_code == 200

    async with asyncio.timeout(60):  # those that are over count no more, once the console has heard of it
        while not await admitted():
            await asyncio.sleep(0.1)
    assert streams.STREAMS_PER_TOKEN_MAX * 5 <= streams.STREAMS_MAX


async def test_without_tokens_there_is_nobody_to_share_with():
    console = console_main.build(console_main.ConsoleSettings(), LoopClock(0.0))
    way = StreamingASGITransport(console)
    browser = httpx.AsyncClient(base_url="http://console", transport=way, timeout=None)
    async with AsyncExitStack() as open_ones:
        for _ in range(streams.STREAMS_PER_TOKEN_MAX + 1):
            answer = await open_ones.enter_async_context(browser.stream("GET", "/live"))
            assert answer.status_code == 200


async def test_a_slow_reader_skips_frames_and_gets_the_newest_picture():
    """It holds no queue: what it missed is not kept for it."""
    collector = Collector(dict.fromkeys(("resource", "link", "compute", "infer", "agents")), clock=_Clock())
    sender = broadcast.Broadcast(collector)
    running = asyncio.create_task(sender.run())
    reader = sender.frames_for("*")
    assert (await anext(reader)).startswith(b"event: whole\nid: 1\n")
    for number in range(5):
        collector.update(capacity=_capacity(number))
        await asyncio.sleep(broadcast.FRAME_WALL_S * 2)
    late = await anext(reader)
    assert late.startswith(b"event: whole\nid: 6\n")
    assert b'"all":4' in late
    collector.update(capacity=_capacity(9))
    assert (await anext(reader)).startswith(b"event: patch\nid: 7\n")
    assert (sender.skipped, sender.frames) == (4, 6)
    await reader.aclose()
    assert sender.readers == 0
    running.cancel()


async def test_changes_are_merged_to_five_frames_a_second():
    collector = Collector(dict.fromkeys(("resource", "link", "compute", "infer", "agents")), clock=_Clock())
    sender = broadcast.Broadcast(collector)
    running = asyncio.create_task(sender.run())
    reader = sender.frames_for("*")
    await anext(reader)
    for number in range(200):
        collector.update(capacity=_capacity(number + 1))
        await asyncio.sleep(0.01)
    assert 9 <= sender.frames <= 11
    await reader.aclose()
    running.cancel()


def _capacity(nodes):
    return {"largestBlock": {"cabinet": 4, "supernode": nodes, "all": nodes}, "supernodes": [], "cabinets": []}


class _Clock:
    scale = 1.0

    def now(self):
        return 0.0


async def test_a_stream_whose_token_cannot_be_looked_up_ends_without_a_word(console_alone):
    """The page logs its user out where it hears that a token has ended; this one may not have."""
    token = console_alone.token("viewer", project="red")
    async with console_alone.client(token).stream("GET", "/live") as answer:
        console_alone.tokens.write_text("{")
        lines = [line async for line in answer.aiter_lines()]
    assert not any(line.startswith("event: end") for line in lines)
    assert (await console_alone.client(token).get("/live")).status_code == 503


async def test_a_stream_begins_with_what_time_it_is_at_the_gateway(console_alone):
    async with console_alone.live(console_alone.token("viewer", project="red")) as frames:
        assert (await frames.next())[0] == "now"
        assert (await frames.next())[0] == "whole"
