"""Every collection of every service, watched: what is there, then a bookmark to go on from, or a refusal that says so."""

from __future__ import annotations

import asyncio

import pytest

from matrixcommon.api.client import EventReader
from services.chassis.access import revoke_token
from tests.services.every_route import RULES
from tests.stack import Stack

pytestmark = pytest.mark.looptime

NOT_WATCHED = {
    ("infer", "usage"),
    ("infer", "models"),
    *(("agents", kind) for kind in ("supernodes", "nodes", "faults", "traffic", "processes", "process-faults")),
}
"""Not journalled: metering, the endpoint of another's making, and the emulated hardware, which tells nobody anything."""


async def first_events(http, path: str) -> list[str]:
    """The types of the events up to the first bookmark."""
    seen = []
    async with asyncio.timeout(60), http.stream("GET", path, params={"watch": "true"}) as answer:
        assert answer.status_code == 200, (path, await answer.aread())
        async for line in answer.aiter_lines():
            if line.startswith("event:"):
                seen.append(line.partition(":")[2].strip())
                if seen[-1] == "BOOKMARK":
                    break
    return seen


async def test_every_collection_is_watched_or_says_that_it_is_not(tmp_path):
    async with Stack(tmp_path) as stack:
        watched = []
        for service, rules in RULES.items():
            if service not in stack.http:
                continue
            for kind in rules.kinds:
                if "LIST" not in kind.verbs:
                    continue
                path = f"/v1/{kind.collection}"
                if (await stack.http[service].get(path)).status_code == 501:
                    continue  # in the contract, and not there yet
                if (service, kind.collection) in NOT_WATCHED:
                    refused = await stack.http[service].get(path, params={"watch": "true"})
                    assert (refused.status_code, refused.json()["field"]) == (501, "watch"), path
                    continue
                events = await first_events(stack.http[service], path)
                assert events[-1:] == ["BOOKMARK"], (service, path, events)
                watched.append(kind.collection)
        assert {"npus", "spares", "links", "telemetry", "faults", "stuck", "forwarding-tables"} <= set(watched)


async def test_a_forwarding_table_is_seen_to_change(tmp_path):
    async with Stack(tmp_path) as stack:
        http = stack.http["link"]
        listed = (await http.get("/v1/forwarding-tables")).json()
        stack.impair("dark", "link-down", "sn0-c00-n0", port="ub-p3-k11")
        since = {"watch": "true", "resourceVersion": listed["resourceVersion"], "filter": "state=Changed"}
        async with asyncio.timeout(300), http.stream("GET", "/v1/forwarding-tables", params=since) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data:") and "sn0-c00-n0-l1p3" in line:
                    return
        raise AssertionError("the table of a chip that lost a port was never told of")


@pytest.mark.parametrize(
    ("service", "path", "project"),
    [("compute", "/v1/instances", "red"), ("compute", "/v1/stuck", "red"), ("link", "/v1/telemetry", "*")],
)
async def test_a_watch_ends_with_the_token_that_it_was_asked_with(tmp_path, service, path, project):
    async with Stack(tmp_path, tokens=True) as stack:
        token = stack.token("viewer", project)
        http, headers = stack.http[service], {"Authorization": f"Bearer {token}"}
        revoked, after = False, []
        async with http.stream("GET", path, params={"watch": "true"}, headers=headers) as answer:
            async with asyncio.timeout(120):
                async for line in answer.aiter_lines():
                    if revoked and line.startswith("event:"):
                        after.append(line)
                    elif not revoked:
                        revoke_token(stack.tokens, f"viewer-of-{project}".replace("*", "all"))
                        await stack.apply("one", 1)
                        revoked = True
        assert not [line for line in after if "BOOKMARK" not in line], "nothing is shown to who may see nothing"
        assert (await http.get(path, headers=headers)).status_code == 401


async def test_a_link_leaves_the_links_that_are_up_and_comes_back(tmp_path):
    """Also one that had no row before; and of another node's, which is not asked for, nothing is shown."""
    async with Stack(tmp_path) as stack:
        asked = {"watch": "true", "node": "sn0-c00-n0", "filter": "state=Up"}
        seen: list[tuple[str, str]] = []
        reader, whole = EventReader(), False
        async with asyncio.timeout(600), stack.http["link"].stream("GET", "/v1/links", params=asked) as answer:
            async for line in answer.aiter_lines():
                if (event := reader.take(line)) is None:
                    continue
                if event.type == "BOOKMARK" and not whole:
                    whole = True
                    stack.impair("elsewhere", "link-down", "sn0-c01-n0", port="ub-p3-k11")
                    stack.impair("dark", "link-down", "sn0-c00-n0", port="ub-p3-k11")
                elif whole and event.type != "BOOKMARK":
                    seen.append((event.type, event.view["name"]))
                    if event.type == "DELETED":
                        assert event.view["state"] == "Down", "as it is now"
                        stack.repair("dark")
                    elif event.type == "ADDED":
                        break
        assert seen == [("DELETED", "sn0-c00-n0.ub-p3-k11"), ("ADDED", "sn0-c00-n0.ub-p3-k11")]


async def test_links_of_no_plane_are_refused_to_who_watches_too(tmp_path):
    async with Stack(tmp_path) as stack:
        for more in ({}, {"watch": "true"}, {"watch": "true", "resourceVersion": "1"}):
            answer = await stack.http["link"].get("/v1/links", params={"plane": "fourth", **more})
            assert (answer.status_code, answer.json()["field"]) == (422, "plane"), more
