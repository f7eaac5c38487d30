"""A supernode is added while the stack runs: its cabinets are put up, its agents make it known, work lands on it and
leaves it, and it is taken away again."""

from __future__ import annotations

import asyncio

import pytest

from tests.stack import Stack

pytestmark = pytest.mark.looptime


async def test_supernode_is_added_serves_and_is_removed(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.http["resource"].post("/v1/domains/sn0:close", json={})
        asked = await stack.http["resource"].put("/v1/supernodes/sn1", json={})
        assert (asked.status_code, asked.json()["nodes"]) == (200, 48)
        await stack.apply("second", 4)
        assert (await stack.http["agents"].put("/v1/supernodes/sn1")).json()["nodes"] == 48
        second = await stack.active("second", 4)
        assert {member.node.partition("-")[0] for member in second.members} == {"sn1"}
        assert {slice.plane for slice in await stack.link.slices() if slice.instance == "second"} == {
            "ub",
            "rdma",
            "vpc",
        }
        for service in ("agents", "link", "resource"):
            await stack.restart(service)
        stack.impair("dark", "node-down", second.members[0].node)

        async def replaced() -> bool:
            view = await stack.compute.find_instance("second")
            assert view is not None
            members = {member.node for member in view.members}
            return view.state == "Active" and second.members[0].node not in members and view.ready_nodes == 4

        await stack.until(replaced, "its lost member is replaced in sn1")
        current = await stack.http["resource"].delete("/v1/supernodes/sn1")
        assert (current.status_code, current.json()["reason"]) == (409, "Conflict")
        await stack.compute.delete_instance("second")
        await stack.gone("second")
        gone = await stack.http["resource"].delete("/v1/supernodes/sn1")
        assert gone.status_code == 204
        kept = await stack.http["agents"].delete("/v1/supernodes/sn0")
        assert (kept.status_code, kept.json()["field"]) == (409, "name")
        assert (await stack.http["agents"].delete("/v1/supernodes/sn1")).status_code == 204
        assert len(await stack.resource.nodes()) == 48

        async def forgotten() -> bool:
            cards = await stack.http["link"].get("/v1/links", params={"pageSize": 1000, "plane": "vpc"})
            return not any(link["name"].startswith("sn1-") for link in cards.json()["items"])

        await stack.until(forgotten, "MatrixLink forgets what nobody speaks for", within_s=7200, every_s=60)
        await stack.check()


async def test_removed_supernode_can_be_added_again(tmp_path):
    """Its cards are other ones, and what they report is newer than all that was heard from there before."""
    async with Stack(tmp_path) as stack:

        async def heard() -> bool:
            nodes = [node for node in await stack.resource.nodes() if node.name.startswith("sn1-")]
            cards = await stack.http["link"].get("/v1/links", params={"pageSize": 1000, "plane": "vpc"})
            known = sum(link["name"].startswith("sn1-") for link in cards.json()["items"])
            return len(nodes) == 48 and {node.agent for node in nodes} == {"Connected"} and known == 48

        for times in range(3):
            assert (await stack.http["resource"].put("/v1/supernodes/sn1", json={})).status_code == 200
            assert (await stack.http["agents"].put("/v1/supernodes/sn1")).status_code == 200
            await stack.until(heard, "its agents are heard", within_s=300)
            if times:
                await stack.restart("agents")  # each card begins another life
            await asyncio.sleep(1800)
            assert (await stack.http["resource"].delete("/v1/supernodes/sn1")).status_code == 204
            assert (await stack.http["agents"].delete("/v1/supernodes/sn1")).status_code == 204
        await stack.check()
