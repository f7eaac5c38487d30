"""Another firmware on every node of a supernode while it serves: every floor is kept and no request is lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stack import Stack
from tests.stories.maintenance.running import NEW, nothing_is_left, put, show
from tests.stories.repairs.serving import nothing_lost, serving_under_load, statistics

pytestmark = pytest.mark.looptime


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


@pytest.mark.soak
async def test_rolling_maintenance_of_a_nearly_full_supernode_under_load(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        sizes = {"served": 8, "one": 16, "two": 16, "three": 3}
        for name, nodes in sizes.items():
            await stack.apply(name, nodes)
        for name, nodes in sizes.items():
            await stack.active(name, nodes)
        await serving_under_load(stack, "served", requestsPerSecond=2.0, inputTokensMax=4096)
        budget = {"maxUnavailable": 4, "maxUnavailablePerCabinet": 2}
        await rolled_over(stack, sizes, kills=(5, 20, 40), budget=budget)
        nothing_lost(await statistics(stack, "served"))
