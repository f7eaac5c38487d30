"""An agent that fails lives on in its next life: nobody's node is at rest for ever because of one error, and what its
card cannot keep now it keeps later."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from matrixcommon.model.hardware_names import NodeName
from matrixresource.agent.hardware import InjectedFault
from services.node_agent.fleet.fleet import Fleet
from services.node_agent.fleet.store import FleetStore
from tests.clocks import FixedClock, LoopClock

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(60)]


class Agent:
    """Fails in its first life, and works in those after it."""

    def __init__(self) -> None:
        self.epoch = 1
        self.at_work = asyncio.Event()

    async def run(self) -> None:
        if self.epoch == 1:
            raise KeyError("what no agent has thought of")
        self.at_work.set()
        await asyncio.Event().wait()

    def power_lost(self) -> None:
        """It keeps nothing."""

    def memory(self) -> dict[str, Any]:
        return {"epoch": self.epoch}

    def restore(self, memory: dict[str, Any]) -> None:
        self.epoch = memory["epoch"] + 1


async def test_an_agent_that_fails_begins_its_next_life_and_remembers_that(tmp_path: Path) -> None:
    name, agent = NodeName("sn0-c00-n0"), Agent()
    memory = FleetStore(tmp_path / "agents.db")
    fleet = Fleet([name], memory, LoopClock(0.0), seed=1)
    fleet.add_agents("resource", lambda *_: agent)
    running = [asyncio.ensure_future(task()) for task in fleet.tasks()]
    async with asyncio.timeout(3600):
        await agent.at_work.wait()
    fleet.remember("resource")
    assert memory.all("resource")[name] == {"epoch": 2}
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def full(memory: FleetStore, is_full: bool, what: str = "INSERT") -> None:
    """Have its database take nothing, as one on a full disk, or take everything again."""
    refuse = f"CREATE TRIGGER full BEFORE {what} ON documents BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
    memory._db.execute(refuse if is_full else "DROP TRIGGER full")


def test_what_could_not_be_written_is_written_before_the_next_report(tmp_path: Path) -> None:
    name, agent = NodeName("sn0-c00-n0"), Agent()
    memory = FleetStore(tmp_path / "agents.db")
    fleet = Fleet([name], memory, FixedClock(), seed=1)
    fleet.add_agents("resource", lambda *_: agent)
    full(memory, True)
    for _ in range(2):
        with pytest.raises(sqlite3.DatabaseError, match="the disk is full"):
            fleet.remember("resource")
    full(memory, False)
    fleet.remember("resource")
    assert memory.all("resource") == {name: {"epoch": 1}}


def test_a_fault_whose_end_could_not_be_written_is_there_and_can_be_cleared_later(tmp_path: Path) -> None:
    name = NodeName("sn0-c00-n0")
    memory = FleetStore(tmp_path / "agents.db")
    fleet = Fleet([name], memory, FixedClock(), seed=1)
    fleet.inject(InjectedFault(name="off", kind="node-down", target=name, parameters={}))
    full(memory, True, "DELETE")
    with pytest.raises(sqlite3.DatabaseError, match="the disk is full"):
        fleet.clear("off")
    assert (list(fleet.faults), fleet.nodes[name].powered) == (["off"], False)
    full(memory, False)
    fleet.clear("off")
    assert (memory.all("fault"), fleet.nodes[name].powered) == ({}, True)
