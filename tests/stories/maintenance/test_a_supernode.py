"""Another firmware on every node of a supernode while it serves: every floor is kept and no request is lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stack import Stack
from tests.stories.maintenance.running import NEW, members, nothing_is_left, put, show, until

pytestmark = pytest.mark.looptime

LOAD = {"requestsPerSecond": 2.0, "seed": 7, "inputTokensMax": 4096}


async def serving(stack: Stack, name: str, **load: float) -> None:
    await stack.http["infer"].put(f"/v1/deployments/{name}", json={"instance": name})

    async def serves() -> bool:
        return (await stack.get("infer", f"/v1/deployments/{name}")).json()["state"] == "Serving"

    await stack.until(serves, "it serves")
    answer = await stack.http["infer"].put(f"/v1/deployments/{name}/load", json=LOAD | load)
    assert answer.status_code == 200, answer.text


def nothing_lost(shown: dict[str, Any]) -> None:
    assert shown["submitted"] == shown["finished"] + shown["inFlight"] > 0, shown
    assert (shown["lost"], shown["cancelled"]) == (0, 0), shown
    assert (shown["load"]["refused"], shown["load"]["skipped"]) == (0, 0), shown


async def rolled_over(stack: Stack, sizes: dict[str, int], kills: tuple[int, ...] = (), **spec: Any) -> None:
    """Every node gets the firmware; after so many are done MatrixCompute is killed."""
    least = dict(sizes)
    left = list(kills)
    await put(stack, "fw", target={"supernode": "sn0"}, action="Firmware", firmware=NEW, **spec)
    shown: dict[str, Any] = {}

    async def over() -> bool:
        shown.update(await show(stack, "fw"))
        for each in sizes:
            instance = await stack.compute.find_instance(each)
            least[each] = min(least[each], instance.ready_nodes)
        if left and shown["counts"]["done"] >= left[0]:
            left.pop(0)
            await stack.restart("compute")
        return shown["state"] not in ("Scheduled", "Running")

    await stack.until(over, "every node is done", every_s=15, within_s=6 * 3600)
    assert (shown["state"], shown["counts"]["done"]) == ("Completed", shown["counts"]["total"]), shown["message"]
    assert least == sizes, "no instance had fewer members than it asked for"
    assert {each.firmware for each in await stack.resource.nodes()} == {NEW}
    for name, size in sizes.items():
        instance = await stack.active(name, size)
        assert instance.repairs == 0
    await nothing_is_left(stack)
    await stack.check()


async def test_a_member_that_serves_moves_and_no_request_is_lost(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        await stack.apply("served", 4)
        target = (await members(stack, "served"))[0]
        await serving(stack, "served", requestsPerSecond=0.3, inputTokensMax=1024)
        await put(stack, "fan", target={"node": target}, serviceS=30)
        await until(stack, "fan", "Completed")
        assert target not in await members(stack, "served")
        nothing_lost((await stack.get("infer", "/v1/deployments/served/statistics")).json())
        await nothing_is_left(stack)


@pytest.mark.soak
async def test_a_supernode_that_is_nine_tenths_full_rolls_over_under_load(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        sizes = {"served": 8, "one": 16, "two": 16, "three": 3}
        for name, nodes in sizes.items():
            await stack.apply(name, nodes)
        for name, nodes in sizes.items():
            await stack.active(name, nodes)
        await serving(stack, "served")
        budget = {"maxUnavailable": 4, "maxUnavailablePerCabinet": 2}
        await rolled_over(stack, sizes, kills=(5, 20, 40), budget=budget)
        nothing_lost((await stack.get("infer", "/v1/deployments/served/statistics")).json())
