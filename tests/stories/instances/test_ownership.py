"""What belongs to whom: MatrixCompute takes back what its instances left, and nothing that somebody else made."""

from __future__ import annotations

import asyncio

import pytest

from matrixcompute.model.composition import OWNER_LABEL
from tests.stack import Stack

pytestmark = pytest.mark.looptime

BODY = {"plane": "ub", "qosClass": "BestEffort", "weight": 2}


async def test_a_slice_of_ones_own_stays_and_one_that_an_instance_left_goes(tmp_path):
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
