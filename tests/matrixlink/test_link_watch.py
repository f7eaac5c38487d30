"""Watches carry every change in order: programs to agents, slices to MatrixCompute, links to whoever looks."""

import asyncio
import contextlib

import httpx
import pytest

from matrixcommon.model.errors import Gone
from matrixlink.client import LinkClient
from services.testing.asgi import StreamingASGITransport
from tests.matrixlink.fleet import NODES, slice_request


@pytest.fixture
async def watching(stack):
    transport = StreamingASGITransport(stack.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://link") as http:
        yield LinkClient(http)


async def until(client, collection, since, enough):
    """Events until `enough(view)` is true of one."""
    seen = []
    async with asyncio.timeout(20):
        async for event in client.watch(collection, since):
            if event.type != "BOOKMARK":
                seen.append(event)
                if enough(event):
                    return seen
    return seen


async def test_agents_watch_their_programs(stack, watching):
    since = stack.slice_controller().store.records.latest()
    hearing = asyncio.create_task(until(watching, "programs", since, lambda e: e.view["node"] == NODES[3]))
    await stack.client.admit("a-ub", slice_request())
    await stack.client.program("a-ub")
    heard = await hearing
    assert [(e.type, e.view["node"], e.view["action"]) for e in heard] == [("ADDED", n, "program") for n in NODES]
    assert heard[0].view["stripes"][0]["weight"] == pytest.approx(1 / 7)


async def test_a_slice_is_watched_through_its_lifecycle(stack, watching):
    seeing = asyncio.create_task(until(watching, "slices", 0, lambda e: e.type == "DELETED"))
    await stack.active()
    await stack.client.withdraw("a-ub")
    await stack.settle()
    states = [e.view["state"] for e in await seeing]
    assert [s for i, s in enumerate(states) if i == 0 or states[i - 1] != s] == [
        "Admitted", "Programming", "Active", "Withdrawing", "Withdrawn",
    ]  # fmt: skip


async def test_a_watch_shows_a_link_failing_and_recovering(stack, watching):
    seeing = asyncio.create_task(until(watching, "links", 0, lambda e: e.view["state"] == "Up"))
    for share in (0.0, 0.5):
        stack.hardware[NODES[0]].ports["ub-p3-k11"] = share
        await stack.report()
    stack.hardware[NODES[0]].ports.clear()
    await stack.report()
    seen = [(e.view["state"], e.view["gbps"]) for e in await seeing]
    assert seen == [("Down", 0.0), ("Degraded", 14.0), ("Up", 28.0)]


async def test_derived_collections_can_be_watched(stack, watching):
    """A chip is seen to be impaired and to be whole again, though nobody writes of chips."""
    await stack.report()
    current = (await stack.http.get("/v1/switches?filter=name=sn0-l2p3-k11")).json()
    whole = current["items"][0]
    events = watching.watch("switches", current["resourceVersion"])
    async with asyncio.timeout(20), contextlib.aclosing(events):
        assert (await anext(events)).type == "BOOKMARK"
        for share, state in ((0.0, "Degraded"), (1.0, "Up")):
            for node in stack.hardware.values():
                node.ports["ub-p3-k11"] = share
            await stack.report()
            seen = await anext(event async for event in events if _is_of(event, whole["name"]))
            assert (seen.type, seen.view["state"]) == ("MODIFIED", state)
        assert seen.view == whole


def _is_of(event, name):
    return event.type != "BOOKMARK" and event.view["name"] == name


async def test_derived_collections_cannot_be_watched_from_the_past(stack, watching):
    past = (await stack.http.get("/v1/planes")).json()["resourceVersion"]
    stack.hardware[NODES[0]].ports["ub-p3-k11"] = 0.0
    await stack.report()
    with pytest.raises(Gone):
        await anext(watching.watch("planes", past))
    events = watching.watch("planes", None)
    async with asyncio.timeout(20), contextlib.aclosing(events):
        seen = [await anext(events) for _ in range(4)]
    assert [(e.type, e.view.get("name")) for e in seen] == [
        ("ADDED", "rdma"), ("ADDED", "ub"), ("ADDED", "vpc"), ("BOOKMARK", None),
    ]  # fmt: skip
