"""An agent that fails lives on in its next life: nobody's node is at rest for ever because of one error, and what its
card cannot keep now it keeps later."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest

from matrixcommon.model.errors import Unavailable
from matrixcommon.model.hardware_names import NodeName
from matrixresource.agent.agent import node_stages
from matrixresource.agent.hardware import InjectedFault
from matrixresource.contract.agents import AssignmentView
from services.chassis.app import create_app
from services.node_agent.access import ACCESS
from services.node_agent.agents.agent_channels import resource_agents
from services.node_agent.fleet.fleet import Fleet
from services.node_agent.fleet.store import FleetStore
from services.node_agent.main import all_routes
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
    fleet.write_memory("resource")
    assert memory.all("resource")[name] == {"epoch": 2}
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def full(memory: FleetStore, is_full: bool, what: str = "INSERT") -> None:
    """Have its database take nothing, as one on a full disk, or take everything again."""
    refuse = f"CREATE TRIGGER full BEFORE {what} ON documents BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
    memory._db.execute(refuse if is_full else "DROP TRIGGER full")


def test_a_fleet_waits_for_its_file_to_take_writes(tmp_path: Path) -> None:
    memory = FleetStore(tmp_path / "agents.db")
    fleet = Fleet([], memory, FixedClock(), seed=1)
    assert fleet.waiting_for() is None
    memory._db.execute("PRAGMA query_only = ON")
    with pytest.raises(Unavailable):
        memory.put("traffic", {"a": {}})
    assert fleet.waiting_for() == "its database, which takes no writes: attempt to write a readonly database"
    memory._db.execute("PRAGMA query_only = OFF")
    memory.put("traffic", {"a": {}})
    assert fleet.waiting_for() is None


def test_what_could_not_be_written_is_written_before_the_next_report(tmp_path: Path) -> None:
    name, agent = NodeName("sn0-c00-n0"), Agent()
    memory = FleetStore(tmp_path / "agents.db")
    fleet = Fleet([name], memory, FixedClock(), seed=1)
    fleet.add_agents("resource", lambda *_: agent)
    full(memory, True)
    for _ in range(2):
        with pytest.raises(sqlite3.DatabaseError, match="the disk is full"):
            fleet.write_memory("resource")
    full(memory, False)
    fleet.write_memory("resource")
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


class Powered(Agent):
    """Remembers whether it has lost its power."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = False

    def power_lost(self) -> None:
        self.lost = True

    def memory(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "lost": self.lost}

    def restore(self, memory: dict[str, Any]) -> None:
        super().restore(memory)
        self.lost = memory["lost"]


def make_fleet(file: Path, agents: list[Powered]) -> Fleet:
    """A life of the process: what the cards remember, and what is broken, is in the file."""
    fleet = Fleet([NodeName("sn0-c00-n0")], FleetStore(file), FixedClock(), seed=1)

    def make(*_: Any) -> Powered:
        agents.append(Powered())
        return agents[-1]

    fleet.add_agents("resource", make)
    return fleet


@pytest.mark.parametrize("kind", ["node-down", "cabinet-power"])
@pytest.mark.parametrize("ended_by", ["a fault that stays", "a fault that is gone again"])
async def test_a_node_whose_power_went_as_the_process_ended_has_lost_it(
    kind: str, ended_by: str, tmp_path: Path
) -> None:
    """What was in its memory is gone, also where the card could not be written to before the process was."""
    agents: list[Powered] = []
    before = make_fleet(tmp_path / "agents.db", agents)
    before.write_memory("resource")
    target = "sn0-c00-n0" if kind == "node-down" else "sn0-c00"
    before.inject(InjectedFault.model_validate({"name": "off", "kind": kind, "target": target}))
    if ended_by == "a fault that is gone again":
        before.clear("off")
    after = make_fleet(tmp_path / "agents.db", agents)
    assert agents[-1].lost
    assert after.nodes[NodeName("sn0-c00-n0")].powered is (ended_by == "a fault that is gone again")


def test_an_end_that_was_half_forgotten_does_not_end_the_next_fault_of_that_name(tmp_path: Path) -> None:
    """A repair in place ends a fault; the process ends while the fault is cleared; it is injected again."""
    name = NodeName("sn0-c00-n0")
    fault = InjectedFault(name="npu", kind="npu-fault", target=name, parameters={"endsWith": "restart"})
    before = Fleet([name], FleetStore(tmp_path / "agents.db"), FixedClock(), seed=1)
    before.inject(fault)
    before.nodes[name].on_repaired("restart")
    assert before.nodes[name].codes == []
    full(before._store, True, "DELETE")
    with pytest.raises(sqlite3.DatabaseError, match="the disk is full"):
        before.clear("npu")
    full(before._store, False)
    before._store._db.execute("DELETE FROM documents WHERE kind = 'fault'")  # as an earlier version left it
    after = Fleet([name], FleetStore(tmp_path / "agents.db"), FixedClock(), seed=1)
    after.inject(fault)
    assert after.nodes[name].codes, "it acts"
    again = Fleet([name], FleetStore(tmp_path / "agents.db"), FixedClock(), seed=1)
    assert again.nodes[name].codes, "in the next life too"


async def test_faults_go_with_their_supernode_and_can_be_asked_to_go_again(tmp_path: Path) -> None:
    """Nothing of it is left for a supernode that is put up under that name later."""
    memory = FleetStore(tmp_path / "agents.db")
    fleet = Fleet([NodeName("sn0-c00-n0")], memory, FixedClock(), seed=1)
    fleet.add_agents("resource", lambda *_: Powered())
    fleet.add_supernode("sn1")
    fleet.write_memory("resource")
    fleet.inject(InjectedFault.model_validate({"name": "off", "kind": "node-down", "target": "sn1-c00-n0"}))
    full(memory, True, "DELETE")
    with pytest.raises(sqlite3.DatabaseError, match="the disk is full"):
        fleet.remove_supernode("sn1")
    assert fleet.supernodes() == ["sn0", "sn1"]
    assert not fleet.nodes[NodeName("sn1-c00-n0")].powered
    full(memory, False)
    fleet.remove_supernode("sn1")
    assert [key for kind in ("supernode", "resource") for key in memory.all(kind) if "sn1" in key] == []
    assert memory.all("fault") == {}
    after = Fleet([NodeName("sn0-c00-n0")], memory, FixedClock(), seed=1)
    after.add_supernode("sn1")
    assert all(node.powered for node in after.nodes.values())


async def test_a_full_disk_is_reported_as_what_passes_and_nothing_is_struck(tmp_path: Path) -> None:
    """As of every service's database, and reports go on once there is room."""
    name, agent = NodeName("sn0-c00-n0"), Agent()
    memory = FleetStore(tmp_path / "agents.db")
    fleet = Fleet([name], memory, FixedClock(), seed=1)
    fleet.add_agents("resource", lambda *_: agent)
    (pages,) = memory._db.execute("PRAGMA page_count").fetchone()
    memory._db.execute(f"PRAGMA max_page_count = {pages}")
    app = create_app("agents", "Emulated nodes", all_routes(fleet, tmp_path), ACCESS)
    why = {"parameters": {"stage": "join", "why": "x" * 200}, "kind": "stage-failure", "target": name}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agents") as http:
        answers = [await http.put(f"/v1/faults/f{at}", json=why) for at in range(100)]
        struck = [each["name"] for each in (await http.get("/v1/faults?pageSize=500")).json()["items"]]
    refused = answers[-1]
    assert (refused.status_code, refused.json()["reason"]) == (503, "Unavailable")
    assert "full" in refused.json()["detail"]
    assert "retry-after" in refused.headers
    assert sorted(struck) == sorted(f"f{at}" for at, each in enumerate(answers) if each.status_code == 200)
    assert sorted(struck) == sorted(memory.all("fault"))
    memory._db.execute("PRAGMA max_page_count = 10000")
    fleet.inject(InjectedFault.model_validate({"name": "f99", **why}))
    assert "f99" in memory.all("fault")


async def test_a_repair_in_place_whose_end_cannot_be_kept_is_done_again(tmp_path: Path) -> None:
    """Done by the card and forgotten by the disk, the fault would be there for ever."""
    name = NodeName("sn0-c00-n0")
    memory = FleetStore(tmp_path / "agents.db")
    fleet = Fleet([name], memory, LoopClock(0.0), seed=1)
    resource_agents(fleet, None, node_stages())
    agent = fleet.agent("resource", name)
    agent.status, agent.holds, agent.deployed = "Active", "one", True
    fleet.inject(InjectedFault(name="npu", kind="npu-fault", target=name, parameters={"endsWith": "restart"}))
    running = [asyncio.ensure_future(task()) for task in fleet.tasks()]
    spec = {"allocation": "one", "rank": 0, "task": "restart", "taskGeneration": 1, "generation": 1}
    agent.ensure(AssignmentView.model_validate({"name": name, "desiredRole": "Member"} | spec))
    full(memory, True)
    await asyncio.sleep(300)
    assert fleet.nodes[name].codes, "nothing of it was kept"
    assert agent.done_generation == 0
    full(memory, False)
    async with asyncio.timeout(300):
        while fleet.nodes[name].codes or agent.status != "Active":
            await asyncio.sleep(1)
    assert (agent.done_generation, memory.all("ended")) == (1, {"npu": {"by": "restart"}})
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
