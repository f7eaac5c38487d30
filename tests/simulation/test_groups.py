"""Whatever verbs wait at the same moment, whoever of them is refused or fails, and whatever happens to the process and its
database meanwhile: what was acknowledged has happened as if those verbs had been done one by one.

A twin does them one by one. After every group the two databases are compared row by row, the journal with its numbers and
texts included, and the tables with what a watcher was reported.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from matrixcommon.model.errors import Conflict, MatrixError
from matrixcommon.persistence.group_commit import Outcome, run_group
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.quotas import QuotaRequest
from matrixresource.store.allocation_tables import AllocationRow, AssignmentRow
from matrixresource.store.tables import Base, NodeRow
from tests.matrixcontainer.kubeapi.postgres import a_database, needs_postgres
from tests.matrixresource.accounting import table_contents
from tests.matrixresource.machine import Machine
from tests.simulation.grouping import Watcher, befalling, broken_off, few, same

NAMES = [f"a{number}" for number in range(6)]
SIZES: list[dict[str, Any]] = [
    {"nodes": 1},
    {"nodes": 5, "spares": 1},
    {"nodes": 30},
    {"npus": 0.5},
    {"npus": 3, "cpus": 1, "memoryGib": 200},
    {"nodes": 4, "npusPerNode": 2, "priority": 1, "preemption": "LowerPriority"},
    {"nodes": 40, "priority": 2, "preemption": "LowerPriority"},
    {"nodes": 2, "leaseS": 100, "project": "red"},
    {"npus": 12, "project": "red"},
]
"""Many of them stand in one another's way, and so do two halves of the machine."""


@dataclass(frozen=True)
class Verb:
    """One request. `fails`: something breaks when what it did is about to be followed."""

    action: str
    name: str
    size: int
    fails: bool

    def on(self, machine: Machine) -> Callable[[], Any]:
        action = self._on(machine)
        return partial(broken_off, machine.store.records, action) if self.fails else action

    def _on(self, machine: Machine) -> Callable[[], Any]:
        allocator = machine.allocator
        if self.action == "reserve":
            request = AllocationRequest.model_validate(SIZES[self.size])
            return lambda: allocator.reserve(self.name, request)
        if self.action == "bind":
            return lambda: allocator.bind(self.name)
        if self.action == "change and refuse":
            return partial(changed_and_refused, machine, self.name)
        if self.action == "renew":
            return lambda: allocator.renew(self.name, 50.0 + self.size)
        return lambda: allocator.release(self.name)


VERBS = st.builds(
    Verb,
    st.sampled_from(["reserve", "reserve", "reserve", "release", "release", "bind", "renew", "change and refuse"]),
    st.sampled_from(NAMES),
    st.integers(0, len(SIZES) - 1),
    st.sampled_from([False] * 9 + [True]),
)
MISHAPS = st.sampled_from(["none"] * 6 + ["writing", "before the commit", "after the commit", "report_all", "restart"])
GROUPS = st.lists(st.tuples(st.lists(VERBS, min_size=1, max_size=8), MISHAPS), min_size=2, max_size=7)


class Pair:
    """A machine that decides in groups, and its twin."""

    def __init__(self, grouped: Machine, twin: Machine) -> None:
        self.grouped, self.twin = grouped, twin
        self.watcher = Watcher(lambda: self.grouped.store.records, (NodeRow, AssignmentRow, AllocationRow))

    def close(self) -> None:
        self.grouped.database.close()
        self.twin.database.close()

    def step(self, verbs: list[Verb], mishap: str) -> None:
        if mishap in ("report_all", "restart"):
            for machine in (self.grouped, self.twin):
                getattr(machine, mishap)()
        with befalling(self.grouped.database.engine, self.grouped.store.records, mishap):
            outcomes = run_group(self.grouped.store.records, [verb.on(self.grouped) for verb in verbs])
        if mishap == "after the commit":
            self.grouped.restart()  # the process has died: who asked does not know, and all of it has happened
            for verb in verbs:
                alone(verb, self.twin)
        else:
            for verb, outcome in zip(verbs, outcomes, strict=True):
                if str(outcome.error) != mishap:  # who was not informed so was answered
                    same(outcome, alone(verb, self.twin), verb)
        self.check()

    def check(self) -> None:
        self.grouped.check()
        with self.grouped.store.reading() as mine, self.twin.store.reading() as theirs:
            assert table_contents(mine) == table_contents(theirs)
        self.watcher.check()


def pair_of(folder: Path, begun: Path) -> Pair:
    """Two machines that begin with the same database."""
    for name in ("grouped", "twin"):
        (folder / name).mkdir()
        for file in begun.iterdir():
            shutil.copy(file, folder / name)
    return Pair(*(Machine(folder / name, supernodes=0, policy="tightest") for name in ("grouped", "twin")))


def alone(verb: Verb, machine: Machine) -> Outcome:
    return run_group(machine.store.records, [verb.on(machine)])[0]


def changed_and_refused(machine: Machine, name: str) -> None:
    with machine.store.transaction() as session:
        allocation = machine.store.allocation(session, name)
        allocation.labels = {"half": "done"}
        for node in machine.store.allocated_to(session, name):
            node.cordon("someone", not node.cordoned_by)
        raise Conflict("after it had changed something")


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database in which somebody lives already and a project has a quota, made once and copied for every life."""
    folder = tmp_path_factory.mktemp("begun")
    begin(Machine(folder)).database.close()
    return folder


def begin(machine: Machine) -> Machine:
    machine.provision("old", nodes=9)
    machine.reserve("half", npus=0.5)
    machine.quotas.put("red", QuotaRequest(npus=24))
    return machine


def live(begun: Path, groups: list[tuple[list[Verb], str]]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="groups-"))
    pair = pair_of(folder, begun)
    try:
        for verbs, mishap in groups:
            pair.step(verbs, mishap)
    finally:
        pair.close()
        shutil.rmtree(folder)


def test_group_commits_equal_serial_execution(begun: Path) -> None:
    few(25)(given(GROUPS)(lambda groups: live(begun, groups)))()


@needs_postgres
@pytest.mark.e2e
def test_group_commits_on_postgresql_equal_serial_execution_on_sqlite(tmp_path: Path) -> None:
    chance = Random(7)
    with a_database() as url:
        grouped = begin(Machine(tmp_path, url=url, policy="tightest"))
        pair = Pair(grouped, begin(Machine(tmp_path, policy="tightest")))
        for step in range(30):
            actions = ["reserve", "reserve", "reserve", "release", "bind", "change and refuse"]
            verbs = [
                Verb(chance.choice(actions), chance.choice(NAMES), chance.randrange(len(SIZES)), chance.random() < 0.05)
                for _ in range(chance.randint(1, 8))
            ]
            pair.step(verbs, ["none", "report_all", "none", "restart", "before the commit"][step % 5])
        pair.close()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_group_commits_equal_serial_execution_in_many_runs(begun: Path) -> None:
    many = settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
    many(given(GROUPS)(lambda groups: live(begun, groups)))()


def test_refused_verb_does_not_affect_its_group(begun: Path, tmp_path: Path) -> None:
    """One transaction for all of them, whoever of them is refused."""
    pair = pair_of(tmp_path, begun)
    commits: list[int] = []
    pair.grouped.store.records.after_commit.append(commits.append)
    verbs = [Verb("reserve", "a0", 0, False), Verb("reserve", "a1", 6, False), Verb("release", "a5", 0, False)]
    verbs += [Verb("reserve", "a2", 2, False), Verb("reserve", "a3", 2, False), Verb("release", "a0", 0, False)]
    outcomes = run_group(pair.grouped.store.records, [verb.on(pair.grouped) for verb in verbs])
    refused = [type(outcome.error).__name__ if outcome.error else "" for outcome in outcomes]
    assert refused == ["", "", "NotFound", "InsufficientCapacity", "InsufficientCapacity", ""]
    assert len(commits) == 1
    for verb, outcome in zip(verbs, outcomes, strict=True):
        assert outcome.error is None or isinstance(outcome.error, MatrixError)
        same(outcome, alone(verb, pair.twin), verb)
    pair.check()
    pair.close()


def test_uncommitted_group_is_not_visible(begun: Path, tmp_path: Path) -> None:
    pair = pair_of(tmp_path, begun)
    records, seen = pair.grouped.store.records, []
    before = (records.latest(), pair.grouped.names())

    def look(*_: Any) -> None:
        seen.append((records.latest(), pair.grouped.names()))

    records.before_commit.append(look)
    event.listen(pair.grouped.database.engine, "commit", look)
    run_group(records, [Verb("reserve", name, 0, False).on(pair.grouped) for name in NAMES])
    event.remove(pair.grouped.database.engine, "commit", look)
    assert seen[: len(NAMES) + 1] == [before] * (len(NAMES) + 1)
    assert {*pair.grouped.names()} >= {*NAMES}
    pair.close()


def test_every_table_is_compared() -> None:
    assert {"nodes", "parts", "allocations", "assignments", "changes", "journal_head"} <= {*Base.metadata.tables}
