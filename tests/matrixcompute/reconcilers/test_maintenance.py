"""What a maintenance shows of what a neighbour refuses: once, for as long as it is refused so."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixcommon.model.errors import Conflict
from tests.matrixcompute.maintenance_world import Machine, World

NODE = {"node": "sn0-c00-n0"}
SWITCH = {"switch": "sn0-l2p4-k11"}


class Refusing(Machine):
    """It refuses everything with `why`, as long as there is one."""

    why: str | None = "not now"

    def refuse(self) -> None:
        if self.why is not None:
            raise Conflict(self.why)

    async def ensure_drain(self, name: str, switch: str, reason: str) -> None:
        self.refuse()
        await super().ensure_drain(name, switch, reason)

    async def ask_node(self, node: str, verb: str, reason: str, firmware: str | None = None) -> None:
        self.refuse()
        await super().ask_node(node, verb, reason, firmware)


@pytest.mark.parametrize("target", [NODE, SWITCH])
def test_a_refusal_is_written_once_for_as_long_as_it_says_the_same(tmp_path: Path, target: dict[str, str]) -> None:
    machine = Refusing()
    world = World(tmp_path, machine)
    woken = []
    world.put("m", action="Service", target=target, serviceS=60)
    for _ in range(3):
        world.look()
    assert [(unit.reason, unit.message) for unit in world.view("m").units] == [("Conflict", "not now")]
    before = world.view("m")
    world.reconciler.wake = lambda: woken.append(None)
    for _ in range(5):
        world.clock.at += 3.0
        world.look()
    assert world.view("m") == before
    assert woken == [], "what is refused is asked again at the next look"
    machine.why = "and not today"
    for _ in range(2):
        world.look()
    assert [unit.message for unit in world.view("m").units] == ["and not today"]
    machine.why = None
    for _ in range(2):
        world.look()
    assert [unit.reason for unit in world.view("m").units] != ["Conflict"]
