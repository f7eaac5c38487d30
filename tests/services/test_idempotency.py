"""`Idempotency-Key` on every route that takes it: sent twice with the same key, one thing is made, and the second answer
is of that one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from matrixresource.contract.allocations import AllocationRequest
from tests.services.every_route import ask, differences, every_request, remembered, takes_header
from tests.stack import Stack

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(300)]

CABINET = {"policy": "pack", "level": "cabinet", "required": True}
HOLDERS = (("full", 36), ("most", 3), ("w", 1), ("a", 1), ("b", 1), ("x", 1), ("y", 1), ("c", 1), ("d", 1))
"""Nine cabinets are full and three nodes of c09 taken; with w, x and y gone, no cabinet has four nodes free."""

OTHERWISE: dict[str, dict[str, Any]] = {"defragmentations": {"nodes": 3}, "scenario-runs": {"scenario": "slow-node"}}


async def crowded(stack: Stack) -> None:
    """A machine where room has to be made for four nodes of one cabinet."""
    for name, nodes in HOLDERS:
        more: dict[str, Any] = {"placement": CABINET} if nodes == 3 else {}
        await stack.resource.reserve(name, AllocationRequest.model_validate({"nodes": nodes, **more}))
    for name in "wxy":
        await stack.resource.release(name)

    async def clean() -> bool:
        return sum(node.state == "Available" for node in await stack.resource.nodes()) == 5

    await stack.until(clean, "what was let go of is clean")
    for service in ("agents", "compute"):
        await stack.stop_background_tasks(service)


async def test_a_key_sent_twice_makes_one_thing(tmp_path):
    async with Stack(tmp_path, tokens=True) as stack:
        await crowded(stack)
        walked = []
        for request in every_request(stack):
            if not takes_header(stack, request, "Idempotency-Key"):
                continue
            walked.append((request.service, request.rule.path))
            token = stack.token("admin", "default")
            first = await ask(stack, request, token, key="once")
            assert first.is_success, f"{request}: {first.text}"
            before = remembered(stack)
            second = await ask(stack, request, token, key="once")
            assert (second.status_code, second.json()) == (first.status_code, first.json()), str(request)
            assert not differences(before, remembered(stack)), str(request)
            third = await ask(stack, request, token, key="another")
            assert third.json()["name"] != first.json()["name"], "another key is another thing"
            sent = replace(request, body=OTHERWISE[request.rule.kind])
            other = await ask(stack, sent, token, key="once")
            assert (other.status_code, other.json()["field"]) == (409, "Idempotency-Key"), f"{request}: {other.text}"
            assert "'once'" in other.json()["detail"], other.text
            named = replace(request, body=OTHERWISE[request.rule.kind] | {"name": first.json()["name"]})
            other = await ask(stack, named, token, key="once")
            assert (other.status_code, other.json()["field"]) == (409, "name"), f"{request}: {other.text}"
        assert walked == [("resource", "/v1/defragmentations"), ("compute", "/v1/scenario-runs")]
        for service, path in walked:
            assert len((await stack.get(service, path)).json()["items"]) == 2


async def test_what_is_posted_to_a_collection_and_kept_takes_a_key(tmp_path):
    """But reports of agents, which number them themselves, and cordons, which are what they are however often asked for."""
    async with Stack(tmp_path) as stack:
        for request in every_request(stack):
            rule = request.rule
            if rule.method == "POST" and rule.mutates and "{}" not in rule.path:
                without = rule.kind in ("node-reports", "link-reports", "node-cordons")
                assert takes_header(stack, request, "Idempotency-Key") != without, str(request)
