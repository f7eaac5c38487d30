"""Whatever verbs wait at the same moment, whoever of them is refused or fails, and whatever happens to the process and its
database meanwhile: what was acknowledged has happened as if those verbs had been done one by one.

A twin does them one by one. After every group the two databases are compared row by row, the journal with its numbers and
texts included, and the tables with what a watcher was told.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, select
from sqlalchemy.exc import SQLAlchemyError

from matrixresource.contract import AllocationRequest, QuotaRequest
from matrixresource.store import AllocationRow, AssignmentRow, Base, NodeRow
from matrixresource.vocabulary.errors import Conflict, MatrixError
from matrixresource.vocabulary.groups import Outcome, decide
from tests.matrixcontainer.kubeapi.postgres import a_postgres, needs_postgres
from tests.matrixresource.accounting import contents
from tests.matrixresource.machine import Machine

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

    deed: str
    name: str
    size: int
    fails: bool

    def on(self, machine: Machine) -> Callable[[], Any]:
        deed = self._on(machine)
        return partial(broken_off, machine, deed) if self.fails else deed

    def _on(self, machine: Machine) -> Callable[[], Any]:
        allocator = machine.allocator
        if self.deed == "reserve":
            request = AllocationRequest.model_validate(SIZES[self.size])
            return lambda: allocator.reserve(self.name, request)
        if self.deed == "bind":
            return lambda: allocator.bind(self.name)
        if self.deed == "change and refuse":
            return partial(changed_and_refused, machine, self.name)
        if self.deed == "renew":
            return lambda: allocator.renew(self.name, 50.0 + self.size)
        return lambda: allocator.release(self.name)


VERBS = st.builds(
    Verb,
    st.sampled_from(["reserve", "reserve", "reserve", "release", "release", "bind", "renew", "change and refuse"]),
    st.sampled_from(NAMES),
    st.integers(0, len(SIZES) - 1),
    st.sampled_from([False] * 9 + [True]),
)
MISHAPS = st.sampled_from(["none"] * 6 + ["writing", "before the commit", "after the commit", "obey", "restart"])
GROUPS = st.lists(st.tuples(st.lists(VERBS, min_size=1, max_size=8), MISHAPS), min_size=2, max_size=7)


class CutOff(SQLAlchemyError):
    """What is injected."""


class Pair:
    """A machine that decides in groups, and its twin."""

    def __init__(self, grouped: Machine, twin: Machine) -> None:
        self.grouped, self.twin = grouped, twin
        self.told = views(self.grouped)
        self.since = self.grouped.store.records.latest()

    def close(self) -> None:
        self.grouped.database.close()
        self.twin.database.close()

    def step(self, verbs: list[Verb], mishap: str) -> None:
        if mishap in ("obey", "restart"):
            for machine in (self.grouped, self.twin):
                getattr(machine, mishap)()
        with befalling(self.grouped, mishap):
            outcomes = decide(self.grouped.store.records, [verb.on(self.grouped) for verb in verbs])
        if mishap == "after the commit":
            self.grouped.restart()  # the process has died: who asked does not know, and all of it has happened
            for verb in verbs:
                alone(verb, self.twin)
        else:
            for verb, outcome in zip(verbs, outcomes, strict=True):
                if str(outcome.error) != mishap:  # who was not told so was answered
                    same(outcome, alone(verb, self.twin), verb)
        self.check()

    def check(self) -> None:
        self.grouped.check()
        with self.grouped.store.reading() as mine, self.twin.store.reading() as theirs:
            assert contents(mine) == contents(theirs)
        for change in self.changes():
            at = (change.kind, change.name)
            if change.type == "DELETED":
                del self.told[at]
            else:
                assert (change.type == "ADDED") == (at not in self.told), change
                self.told[at] = json.loads(change.body)
        assert self.told == views(self.grouped)

    def changes(self) -> list[Any]:
        kinds = ("node", "assignment", "allocation")
        records = self.grouped.store.records
        found = [each for kind in kinds for each in records.changes_since(kind, self.since, limit=100_000)]
        self.since = records.latest()
        return sorted(found, key=lambda change: change.rv)


def pair_of(folder: Path, begun: Path) -> Pair:
    """Two machines that begin with the same database."""
    for name in ("grouped", "twin"):
        (folder / name).mkdir()
        for file in begun.iterdir():
            shutil.copy(file, folder / name)
    return Pair(*(Machine(folder / name, supernodes=0, policy="tightest") for name in ("grouped", "twin")))


def views(machine: Machine) -> dict[tuple[str, str], dict[str, Any]]:
    """What the tables show, by kind and name."""
    with machine.store.reading() as session:
        rows = [row for kind in (NodeRow, AssignmentRow, AllocationRow) for row in session.scalars(select(kind))]
        return {(row.kind, row.name): json.loads(row.view().text()) for row in rows}


def alone(verb: Verb, machine: Machine) -> Outcome:
    return decide(machine.store.records, [verb.on(machine)])[0]


def same(one: Outcome, other: Outcome, verb: Verb) -> None:
    assert str(one.error) == str(other.error), verb
    assert type(one.error) is type(other.error), verb
    if one.value is not None or other.value is not None:
        assert one.value.wire() == other.value.wire(), verb


def changed_and_refused(machine: Machine, name: str) -> None:
    with machine.store.transaction() as session:
        held = machine.store.allocation(session, name)
        held.labels = {"half": "done"}
        for node in machine.store.held_by(session, name):
            node.cordoned = not node.cordoned
        raise Conflict("after it had changed something")


def broken_off(machine: Machine, deed: Callable[[], Any]) -> Any:
    """It breaks off once it has changed what it changes."""

    def fail(*_: Any) -> None:
        raise CutOff("halfway")

    followers = machine.store.records.before_commit
    followers.append(fail)
    try:
        return deed()
    finally:
        followers.remove(fail)


@contextmanager
def befalling(machine: Machine, mishap: str) -> Iterator[None]:
    """What happens to the database or to the process while a group is on its way there."""
    engine, records = machine.database.engine, machine.store.records

    def cut(*_: Any) -> None:
        raise CutOff(mishap)

    def cut_writing(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT INTO changes"):
            raise CutOff(mishap)

    if mishap == "writing":
        event.listen(engine, "before_cursor_execute", cut_writing)
    elif mishap == "before the commit":
        event.listen(engine, "commit", cut)
    elif mishap == "after the commit":
        records.after_commit.append(cut)
    try:
        yield
    finally:
        if mishap == "writing":
            event.remove(engine, "before_cursor_execute", cut_writing)
        elif mishap == "before the commit":
            event.remove(engine, "commit", cut)
        elif mishap == "after the commit":
            records.after_commit.remove(cut)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database in which somebody lives already and a project has a quota, made once and copied for every life."""
    folder = tmp_path_factory.mktemp("begun")
    begin(Machine(folder)).database.close()
    return folder


def begin(machine: Machine) -> Machine:
    machine.have("old", nodes=9)
    machine.ask("half", npus=0.5)
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


def test_groups_end_as_if_their_verbs_had_been_done_one_by_one(begun: Path) -> None:
    # The same lives every time, told as they are: new ones, made small, are what the soak is for.
    few = settings(
        max_examples=25,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    few(given(GROUPS)(lambda groups: live(begun, groups)))()


@needs_postgres
@pytest.mark.e2e
def test_groups_on_postgresql_end_as_their_verbs_do_on_sqlite_one_by_one(tmp_path: Path) -> None:
    chance = Random(7)
    with a_postgres() as url:
        grouped = begin(Machine(tmp_path, url=url.replace("postgresql://", "postgresql+psycopg://"), policy="tightest"))
        pair = Pair(grouped, begin(Machine(tmp_path, policy="tightest")))
        for step in range(30):
            deeds = ["reserve", "reserve", "reserve", "release", "bind", "change and refuse"]
            verbs = [
                Verb(chance.choice(deeds), chance.choice(NAMES), chance.randrange(len(SIZES)), chance.random() < 0.05)
                for _ in range(chance.randint(1, 8))
            ]
            pair.step(verbs, ["none", "obey", "none", "restart", "before the commit"][step % 5])
        pair.close()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_groups_end_as_if_their_verbs_had_been_done_one_by_one_in_many_lives(begun: Path) -> None:
    many = settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
    many(given(GROUPS)(lambda groups: live(begun, groups)))()


def test_a_refused_verb_leaves_its_group_alone(begun: Path, tmp_path: Path) -> None:
    """One transaction for all of them, whoever of them is refused."""
    pair = pair_of(tmp_path, begun)
    commits: list[int] = []
    pair.grouped.store.records.after_commit.append(commits.append)
    verbs = [Verb("reserve", "a0", 0, False), Verb("reserve", "a1", 6, False), Verb("release", "a5", 0, False)]
    verbs += [Verb("reserve", "a2", 2, False), Verb("reserve", "a3", 2, False), Verb("release", "a0", 0, False)]
    outcomes = decide(pair.grouped.store.records, [verb.on(pair.grouped) for verb in verbs])
    refused = [type(outcome.error).__name__ if outcome.error else "" for outcome in outcomes]
    assert refused == ["", "", "NotFound", "InsufficientCapacity", "InsufficientCapacity", ""]
    assert len(commits) == 1
    for verb, outcome in zip(verbs, outcomes, strict=True):
        assert outcome.error is None or isinstance(outcome.error, MatrixError)
        same(outcome, alone(verb, pair.twin), verb)
    pair.check()
    pair.close()


def test_nobody_sees_a_group_before_it_is_committed(begun: Path, tmp_path: Path) -> None:
    pair = pair_of(tmp_path, begun)
    records, seen = pair.grouped.store.records, []
    before = (records.latest(), pair.grouped.names())

    def look(*_: Any) -> None:
        seen.append((records.latest(), pair.grouped.names()))

    records.before_commit.append(look)
    event.listen(pair.grouped.database.engine, "commit", look)
    decide(records, [Verb("reserve", name, 0, False).on(pair.grouped) for name in NAMES])
    event.remove(pair.grouped.database.engine, "commit", look)
    assert seen[: len(NAMES) + 1] == [before] * (len(NAMES) + 1)
    assert {*pair.grouped.names()} >= {*NAMES}
    pair.close()


def test_every_table_of_the_service_is_compared() -> None:
    assert {"nodes", "parts", "allocations", "assignments", "changes", "journal_head"} <= {*Base.metadata.tables}
