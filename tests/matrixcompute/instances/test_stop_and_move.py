"""An instance that is to lie elsewhere, where there is no room, is switched off and on where it lies."""

from __future__ import annotations

import pytest

from tests.small_stack import SmallStack

pytestmark = pytest.mark.looptime

SPREAD, ONE_CABINET = {"policy": "spread", "level": "cabinet"}, {"policy": "pack", "level": "cabinet", "required": True}


async def test_refused_move_does_not_prevent_stop_and_start(tmp_path):
    async with SmallStack(tmp_path) as stack:
        await stack.apply("one", 4, placement=SPREAD)
        lay = await stack.active("one", 4)
        await stack.apply("rest", 8)
        await stack.active("rest", 8)
        await stack.apply("one", 4, placement=ONE_CABINET)

        async def waits(state: str) -> bool:
            view = await stack.compute.find_instance("one")
            progressing = next(each for each in view.conditions if each.type == "Progressing")
            return (view.state, progressing.reason) == (state, "InsufficientCapacity")

        await stack.until(lambda: waits("Active"), "the move is refused", within_s=300)
        for verb, state in (("stop", "Stopped"), ("start", "Active")):
            answer = await stack.http["compute"].post(f"/v1/instances/one:{verb}")
            assert answer.status_code == 202, answer.text
            await stack.until(lambda state=state: waits(state), f"it is {state}, and waits to move", within_s=1200)
            view = await stack.compute.find_instance("one")
            assert [each.node for each in view.members] == [each.node for each in lay.members]
        await stack.compute.delete_instance("rest")
        assert len({each.cabinet for each in (await stack.active("one", 4)).members}) == 1
        await stack.check()
