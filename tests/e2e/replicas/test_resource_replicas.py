"""Two replicas of MatrixResource on one PostgreSQL are one allocator.

Owners ask both at once, for nodes and parts of nodes, whatever the other replica is doing: no die is given twice, what
was acknowledged is there, and an agent that reports to one of them is not lost to the other.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from sqlalchemy import select

from matrixcommon.model.errors import Conflict, InsufficientCapacity
from matrixcommon.persistence.database_session import Database
from matrixresource.contract.agents import NodeReport
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import Base
from matrixresource.store.topology_versions import TopologyVersionRow
from matrixresource.supernodes.topology_manager import TopologyManager
from matrixresource.topology.loading import load_spec
from services.chassis.database import DatabaseEngine
from services.resource.main import MIGRATIONS
from tests.clocks import FixedClock
from tests.e2e.owners import Owner, run_all
from tests.matrixcontainer.kubeapi.postgres import a_database, needs_postgres
from tests.matrixresource.machine import Machine

pytestmark = [pytest.mark.e2e, needs_postgres]

SPECS = [
    {"nodes": 1},
    {"nodes": 6, "spares": 1},
    {"npus": 0.5},
    {"npus": 3, "cpus": 1, "memoryGib": 500},
    {"nodes": 5, "npusPerNode": 4},
    {"cpus": 9, "memoryGib": 2000},
    {"nodes": 20},
]
STEPS = 60


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[list[Machine]]:
    with a_database() as url:
        machines = [Machine(tmp_path, url=url, shared=True), Machine(tmp_path, supernodes=0, url=url, shared=True)]
        yield machines
        for machine in machines:
            machine.database.close()


class Tenant(Owner):
    """Asks one replica again and again; `reported` is what it was reported last of each allocation it has."""

    def __init__(self, number: int, machine: Machine) -> None:
        super().__init__(number, STEPS)
        self.machine = machine
        self.reported: dict[str, list[str]] = {}

    def ask(self, name: str) -> None:
        mine, chance = sorted(self.reported), self.random.random()
        try:
            if chance < 0.6 or not mine:
                self._record_answer(self.machine.reserve(name, **self.random.choice(SPECS)).name)
            elif chance < 0.75:
                name = self.random.choice(mine)
                request = self.machine.allocation(name)
                if request.npus == 8 * request.nodes:
                    self.machine.reserve(name, nodes=self.random.randint(1, 8))
                    self._record_answer(name)
            else:
                name = self.random.choice(mine)
                self.reported.pop(name)
                self.machine.allocator.release(name)
        except (InsufficientCapacity, Conflict):
            self.refused += 1

    def _record_answer(self, name: str) -> None:
        self.answers += 1
        self.reported[name] = sorted(f"{m.node} {m.rank} {m.dies}" for m in self.machine.allocation(name).members)


@pytest.mark.timeout(180)
def test_two_replicas_never_give_a_die_twice(replicas: list[Machine]) -> None:
    owners = [Tenant(number, machine) for number, machine in enumerate(replicas)]
    run_all(owners)
    for machine in replicas:
        machine.check()
    for owner in owners:
        for name, members in owner.reported.items():
            view = replicas[0].allocation(name)
            assert sorted(f"{m.node} {m.rank} {m.dies}" for m in view.members) == members, name
    assert any(owner.refused for owner in owners), "they stood in one another's way"
    assert all(owner.answers >= 10 for owner in owners)


def report(machine: Machine, sequence: int, lease_s: float = 30.0) -> bool:
    reported = NodeReport(node="sn0-c00-n0", epoch=2, sequence=sequence, lease_s=lease_s, status="Clean", generation=9)
    return machine.reports.process([reported])[0].accepted


def test_who_reports_to_one_replica_is_not_lost_to_the_other(replicas: list[Machine]) -> None:
    hears, hears_nobody = replicas
    hears_nobody.restart()  # it has heard nobody in this life

    def agent() -> str:
        asyncio.run(hears_nobody.reports.watch_leases())
        with hears.store.reading() as session:
            return hears.store.node(session, "sn0-c00-n0").agent

    for step in range(1, 12):
        for machine in replicas:
            machine.clock.at += 14
        assert report(hears, step)
        assert agent() == "Connected"
    assert not report(hears_nobody, 0), "what the one has taken is stale to the other"
    for machine in replicas:
        machine.clock.at += 100
    assert agent() == "Lost", "silent to both, it is lost whoever looks"
    assert report(hears_nobody, 12)
    assert agent() == "Connected"


def begin(url: str, together: Barrier) -> None:
    together.wait(60)
    database = DatabaseEngine(url)
    database.migrate(MIGRATIONS)
    clock = FixedClock()
    store = ResourceStore(Database(database.sessions, Base.metadata, clock))
    TopologyManager(store, clock, load_spec()).seed(["sn0"])
    database.close()


@pytest.mark.timeout(180)
def test_replicas_that_start_at_once_begin_one_database(tmp_path: Path) -> None:
    spawned = multiprocessing.get_context("spawn")
    with a_database() as url:
        together = spawned.Barrier(3)
        replicas = [spawned.Process(target=begin, args=(url, together)) for _ in range(3)]
        for replica in replicas:
            replica.start()
        for replica in replicas:
            replica.join(120)
        assert [replica.exitcode for replica in replicas] == [0, 0, 0]
        machine = Machine(tmp_path, supernodes=0, url=url, shared=True)
        machine.provision("all", nodes=48)
        machine.check()
        with machine.store.reading() as session:
            assert [row.number for row in session.scalars(select(TopologyVersionRow))] == [1]
        machine.database.close()


def test_requests_under_way_at_once_are_decided_one_after_the_other(replicas: list[Machine]) -> None:
    """The same last nodes, asked of both at once: one has them, the other is refused."""
    answers: list[str] = []

    def ask(machine: Machine, name: str) -> None:
        try:
            machine.allocator.reserve(name, AllocationRequest(nodes=25))
            answers.append("held")
        except InsufficientCapacity:
            answers.append("refused")

    for attempt in range(10):
        threads = [threading.Thread(target=ask, args=(m, f"last-{attempt}-{n}")) for n, m in enumerate(replicas)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(answers) == ["held", "refused"]
        answers.clear()
        current = replicas[0].names()
        for name in current:
            replicas[0].allocator.release(name)
        replicas[0].check()
