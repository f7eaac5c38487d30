"""What belongs to whom: MatrixCompute takes back what its instances left, and nothing that somebody else made."""

from __future__ import annotations

import asyncio

import pytest

from matrixcompute.model.composition import OWNER_LABEL
from tests.stack import Stack

pytestmark = pytest.mark.looptime

BODY = {"plane": "ub", "qosClass": "BestEffort", "weight": 2}


async def test_user_slice_is_kept_and_orphaned_slice_is_withdrawn(tmp_path):
    async with Stack(tmp_path) as stack:
        allocation = (await stack.http["resource"].put("/v1/allocations/mine", json={"nodes": 1})).json()
        body = BODY | {"allocation": "mine", "instance": "mine", "members": [allocation["members"][0]["node"]]}
        for name, labels in (("by-hand", {}), ("left", {OWNER_LABEL: "mine"})):
            answer = await stack.http["link"].put(f"/v1/slices/{name}", json=body | {"labels": labels})
            assert answer.is_success, answer.text

        async def given_back() -> bool:
            return await stack.link.find_slice("left") is None

        await stack.until(given_back, "what an instance left is taken back", within_s=600)
        await asyncio.sleep(600)
        assert await stack.link.find_slice("by-hand") is not None
        assert await stack.resource.find_allocation("mine") is not None


async def test_user_slice_is_withdrawn_with_its_allocation(tmp_path):
    async with Stack(tmp_path) as stack:
        allocation = (await stack.http["resource"].put("/v1/allocations/mine", json={"nodes": 2})).json()
        members = [member["node"] for member in allocation["members"]]
        body = {"plane": "ub", "qosClass": "Guaranteed", "floorGbpsPerNpu": 300, "allocation": "mine",
                "instance": "mine", "members": members}  # fmt: skip
        answer = await stack.http["link"].put("/v1/slices/by-hand", json=body)
        assert answer.is_success, answer.text
        await stack.http["link"].post("/v1/slices/by-hand:program")
        await stack.http["resource"].delete("/v1/allocations/mine")

        async def given_back() -> bool:
            return await stack.link.find_slice("by-hand") is None

        await stack.until(given_back, "a slice goes with its allocation", within_s=600)
        events = (await stack.get("link", "/v1/events")).json()["items"]
        reported = [each for each in events if each["reason"] == "OrphanReleased"]
        assert [each["about"] for each in reported] == ["by-hand"]
        assert "its allocation mine is gone" in reported[0]["message"]
        await stack.nothing_left()
        assert not (await stack.get("link", "/v1/slices")).json()["items"]


async def test_slices_are_kept_while_matrixresource_is_unavailable(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        await stack.active("one", 2)
        await stack.kill("resource")
        await asyncio.sleep(900)
        assert len((await stack.get("link", "/v1/slices")).json()["items"]) == 3
        await stack.start("resource")
        await stack.active("one", 2)
        await stack.check()
