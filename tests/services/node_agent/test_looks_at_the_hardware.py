"""What CloudMatrix-Infer sees of the hardware at one look: who is up, and who is switched off."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.infer.main import HardwareOverHttp
from tests.small_stack import SmallStack

pytestmark = pytest.mark.looptime


async def test_nodes_are_up_or_switched_off_as_their_instance_is(tmp_path: Path) -> None:
    async with SmallStack(tmp_path) as stack:
        hardware = HardwareOverHttp(stack.http["agents"])
        assert await hardware.up_and_off() == (frozenset(), frozenset())
        for name in ("one", "two"):
            await stack.apply(name, 2)
        members = {
            name: {each.node for each in (await stack.active(name, 2)).members if each.role == "member"}
            for name in ("one", "two")
        }
        assert await hardware.up_and_off() == (members["one"] | members["two"], frozenset())
        assert (await stack.http["compute"].post("/v1/instances/one:stop", json={})).is_success

        async def stopped() -> bool:
            view = await stack.compute.find_instance("one")
            return view is not None and view.state == "Stopped"

        await stack.until(stopped, "one is switched off")
        assert await hardware.up_and_off() == (members["two"], members["one"])
