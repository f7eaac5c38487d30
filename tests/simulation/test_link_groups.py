"""Whatever verbs and reports wait at the same moment, whoever of them is refused or fails, and whatever happens to the
process and its database meanwhile: what was acknowledged has happened as if it had been done one by one.

A twin does them one by one. After every group the two databases are compared row by row, the journal with its numbers and
texts included; the tables with what a watcher was reported; and what the service has in memory (floors, terms, conditions of
links, peerings) with that of one which is started anew on the same tables.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from matrixcommon.model.errors import Conflict
from matrixcommon.persistence.group_commit import Outcome, run_group
from matrixlink.contract.drains import DrainRequest
from matrixlink.contract.peerings import PeeringRequest
from matrixlink.contract.slices import SliceRequest
from matrixlink.store.tables import DrainRow, LinkRow, PeeringRow, ProgramRow, SliceRow
from tests.matrixcontainer.kubeapi.postgres import a_database, needs_postgres
from tests.matrixlink.fleet import NODES
from tests.matrixlink.machine import LinkMachine, ObedientAgent, contents, ledgers_equal
from tests.simulation.grouping import Watcher, befalling, broken_off, few, same

NAMES = ["red/a-ub", "blue/b-ub", "red/c-ub", "d-rdma", "e-vpc", "f-ub"]
FLOORS = {"ub": 392.0, "rdma": 50.0, "vpc": 6.25}
PARTS = [0.1, 0.2, 0.45, 0.8, 1.0, 0.05]
"""Of a whole NPU's rate: some of them stand in one another's way."""
LEVELS = {"ub": ["none", "anyL2Chip", "anySubPlane"], "rdma": ["none", "disjointPath", "none"], "vpc": ["none"] * 3}
LOST: list[dict[str, float]] = [
    {}, {"ub-p3-k11": 0.0}, {"ub-p3-k11": 14.0, "rdma-npu5-die0": 0.0}, {"npu5-die1-p2": 0.0}, {}, {"vpc": 0.0},
]  # fmt: skip
ELEMENTS = ["sn0-l2p3-k11", f"{NODES[0]}.ub-p0", "sn0-c00-leaf0"]
KINDS = (SliceRow, ProgramRow, LinkRow, PeeringRow, DrainRow)


@dataclass(frozen=True)
class Verb:
    """One request. `fails`: something breaks when what it did is about to be followed."""

    action: str
    name: str
    size: int
    fails: bool

    @property
    def node(self) -> str:
        return NODES[self.size % len(NODES)]


ACTIONS = (
    ["admit"] * 5 + ["program"] * 3 + ["withdraw"] * 2 + ["report"] * 4 + ["everybody reports", "change and refuse"]
)
ACTIONS += ["drain", "put back", "peer", "accept", "part"]
VERBS = st.builds(
    Verb,
    st.sampled_from(ACTIONS), st.sampled_from(NAMES), st.integers(0, 5), st.sampled_from([False] * 9 + [True]),
)  # fmt: skip
MISHAPS = ["none"] * 4 + ["writing", "before the commit", "after the commit", "restart", "time"]
GROUPS = st.lists(st.tuples(st.lists(VERBS, min_size=1, max_size=8), st.sampled_from(MISHAPS)), min_size=2, max_size=9)


class Pair:
    """A machine that decides in groups, and its twin; agents that speak to both."""

    def __init__(self, grouped: LinkMachine, twin: LinkMachine) -> None:
        self.grouped, self.twin = grouped, twin
        self.agents = {node: ObedientAgent(node) for node in NODES}
        self.watcher = Watcher(lambda: self.grouped.records, KINDS)

    def close(self) -> None:
        self.grouped.close()
        self.twin.close()

    def step(self, verbs: list[Verb], mishap: str) -> None:
        self.before(mishap)
        actions = [self.action(verb) for verb in verbs]
        assert self.grouped.database is not None
        with befalling(self.grouped.database.engine, self.grouped.records, mishap):
            outcomes = run_group(self.grouped.records, [partial(action, self.grouped) for action in actions])
        if mishap == "after the commit":
            for action in actions:
                alone(action, self.twin)
            for machine in (self.grouped, self.twin):
                machine.restart()  # it has died: who asked does not know, and all of it has happened
        else:
            for verb, action, outcome in zip(verbs, actions, outcomes, strict=True):
                if str(outcome.error) != mishap:  # who was not informed so was answered
                    same(outcome, alone(action, self.twin), verb)
                    self.obey(outcome.value)
            assert self.grouped.leases._leases == self.twin.leases._leases
        self.check()

    def before(self, mishap: str) -> None:
        """The watcher comes round before every group: who reads memory back grants floors anew over lost links, which is
        otherwise the watcher's to do, and a group that breaks has memory read back again than its verbs would."""
        for machine in (self.grouped, self.twin):
            if mishap == "restart":
                machine.restart()
            if mishap == "time":
                machine.clock.at += 25.0
            machine.watch()

    def action(self, verb: Verb) -> Callable[[LinkMachine], Any]:
        """The same request, to be made of either; an agent says once what it says."""
        reports = []
        if verb.action == "report":
            self.agents[verb.node].ports = LOST[verb.size]
            reports = [self.agents[verb.node].report()]
        if verb.action == "everybody reports":
            reports = [agent.report() for agent in self.agents.values()]

        def done(machine: LinkMachine) -> Any:
            act = partial(machine.reports.take, reports) if reports else partial(asked, verb, machine)
            return broken_off(machine.records, act) if verb.fails else act()

        return done

    def obey(self, answers: Any) -> None:
        for answer in answers if isinstance(answers, list) else ():
            if answer.accepted:
                self.agents[answer.node].obey(answer.desired)

    def settle(self) -> None:
        """Everybody repairs, reports and obeys until nothing changes any more."""
        for agent in self.agents.values():
            agent.ports = {}
        for _ in range(4):
            self.step([Verb("everybody reports", "", 0, False)], "none")

    def check(self) -> None:
        with self.grouped.store.reading() as mine, self.twin.store.reading() as theirs:
            for (name, rows), others in zip(contents(mine).items(), contents(theirs).values(), strict=True):
                assert rows == others, name
        self.watcher.check()
        as_if_started_anew(self.grouped)


def asked(verb: Verb, machine: LinkMachine) -> Any:
    """What is no report."""
    board, name, size = machine.board, verb.name, verb.size
    match verb.action:
        case "admit":
            return board.admit(name, a_spec(name, size))
        case "program":
            return board.program(name)
        case "withdraw":
            return board.withdraw(name)
        case "drain":
            request = DrainRequest(elements=[ELEMENTS[size % 3]], even_if_floors_break=size > 2)
            return machine.drains.ensure(f"d{size % 2}", request)
        case "put back":
            return machine.drains.restore(f"d{size % 2}")
        case "peer":
            request = PeeringRequest(slices=[NAMES[size % 3], NAMES[(size + 1) % 3]], project=["red", "blue"][size % 2])
            return machine.peerings.ensure(f"p{size % 2}", request)
        case "accept":
            return machine.peerings.accept(f"p{size % 2}", ["blue", "red"][size // 3])
        case "part":
            return machine.peerings.delete(f"p{size % 2}")
    return changed_and_refused(machine, name)


def a_spec(name: str, size: int) -> SliceRequest:
    plane = name.partition("-")[2]
    members = NODES[size % 3 : size % 3 + 2] if size < 4 else NODES
    desired = {
        "allocation": name, "instance": name, "plane": plane, "members": members, "project": ["red", "blue"][size % 2],
        "qosClass": ["Guaranteed", "Burstable"][size // 3], "floorGbpsPerNpu": FLOORS[plane] * PARTS[size],
        "protection": LEVELS[plane][size % 3],
    }  # fmt: skip
    return SliceRequest.model_validate(desired)


def changed_and_refused(machine: LinkMachine, name: str) -> None:
    """Tables and memory both."""
    with machine.promises.transaction() as session:
        row = machine.store.slice(session, name)
        row.labels = {"half": "done"}
        machine.promises.release(name)
        machine.fabric.set_ports(NODES[0], {"vpc": 0.0})
        raise Conflict("after it had changed something")


def as_if_started_anew(machine: LinkMachine) -> None:
    """What is in memory is what whoever starts on these tables has, but for floors that nobody has looked at yet: those
    it would grant otherwise wait for the watcher."""
    anew = LinkMachine(Path(), url=machine.url, clock=machine.clock)
    try:
        mine, theirs = machine.memory(), anew.memory()
        waiting = anew.promises.unsettled | machine.promises.unsettled
        # Who is leaving keeps the routes it had, and who starts anew does not know those.
        waiting |= {
            terms.name for terms in machine.promises.slices if machine.promises.impaired_ports_of(terms) != terms.seen
        }
        for memory in (mine, theirs):
            memory["terms"] = {
                name: replace(terms, kept=1.0, unprotected="") if name in waiting else terms
                for name, terms in memory["terms"].items()
            }
            memory["trimmed"] -= waiting
        for what, current in mine.items():
            assert current == theirs[what], what
        ledgers_equal(machine.promises.healthy_ledger, anew.promises.healthy_ledger)
        if not waiting:
            ledgers_equal(machine.promises.ledger, anew.promises.ledger)
        assert machine.promises.fenced or not anew.promises.fenced
    finally:
        anew.close()


def alone(action: Callable[[LinkMachine], Any], machine: LinkMachine) -> Outcome:
    return run_group(machine.records, [partial(action, machine)])[0]


def live(groups: list[tuple[list[Verb], str]]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="groups-"))
    machines = []
    for name in ("grouped", "twin"):
        (folder / name).mkdir()
        machines.append(LinkMachine(folder / name))
    pair = Pair(*machines)
    try:
        for verbs, mishap in groups:
            pair.step(verbs, mishap)
        pair.settle()
    finally:
        pair.close()
        shutil.rmtree(folder)


def test_group_commits_equal_serial_execution() -> None:
    few(20)(given(GROUPS)(live))()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_group_commits_equal_serial_execution_in_many_runs() -> None:
    settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))(given(GROUPS)(live))()


@needs_postgres
@pytest.mark.e2e
def test_group_commits_on_postgresql_equal_serial_execution_on_sqlite(tmp_path: Path) -> None:
    chance = Random(7)
    with a_database() as url:
        grouped = LinkMachine(tmp_path, url=url)
        pair = Pair(grouped, LinkMachine(tmp_path))
        for step in range(20):
            verbs = [
                Verb(chance.choice(ACTIONS), chance.choice(NAMES), chance.randrange(6), chance.random() < 0.05)
                for _ in range(chance.randint(1, 8))
            ]
            pair.step(verbs, ["none", "none", "time", "restart", "before the commit"][step % 5])
        pair.settle()
        pair.close()


def test_waiting_verbs_and_reports_share_a_commit(tmp_path: Path) -> None:
    """Whoever of them is refused."""
    for name in ("grouped", "twin"):
        (tmp_path / name).mkdir()
    pair = Pair(LinkMachine(tmp_path / "grouped"), LinkMachine(tmp_path / "twin"))
    pair.step([Verb("admit", "a-ub", 0, False), Verb("program", "a-ub", 0, False)], "none")
    commits: list[int] = []
    pair.grouped.records.after_commit.append(commits.append)
    actions = ["admit", "everybody reports", "admit", "withdraw", "report", "program"]
    names = ["b-ub", "", "c-ub", "e-vpc", "", "b-ub"]
    pair.step([Verb(*each, False) for each in zip(actions, names, [1, 0, 4, 0, 1, 0], strict=True)], "none")
    assert len(commits) == 1
    terms = {each.name for each in pair.grouped.promises.slices}
    assert terms == {"a-ub", "b-ub"}, "c-ub did not fit, e-vpc was never there"
    pair.close()
