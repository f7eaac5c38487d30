"""Two replicas of MatrixLink on one PostgreSQL never promise more of a link than it has.

Owners ask both at once for floors on the same nodes, whatever the other replica is doing: what was acknowledged is
there, no link is promised beyond what it has, no two slices share a key; and what one replica hears of a link the other
decides on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from matrixcommon.model.errors import Conflict, InsufficientBandwidth
from matrixlink.contract.link_reports import LinkReport
from matrixlink.contract.slices import SliceRequest
from tests.e2e.owners import Owner, run_all
from tests.matrixcontainer.kubeapi.postgres import a_database, needs_postgres
from tests.matrixlink.fleet import NODES, slice_request
from tests.matrixlink.machine import LinkMachine, ledgers_equal

pytestmark = [pytest.mark.e2e, needs_postgres]

STEPS = 40
REFUSED = (InsufficientBandwidth, Conflict)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[list[LinkMachine]]:
    with a_database() as url:
        machines = [LinkMachine(tmp_path, url=url) for _ in range(2)]
        yield machines
        for machine in machines:
            machine.close()


def a_spec(floor: float, nodes: list[str], protection: str = "none") -> SliceRequest:
    return slice_request(members=nodes, floor_gbps_per_npu=floor, protection=protection)


class Tenant(Owner):
    """Asks one replica again and again; `reported` is what it was reported last of each slice it has: its floor and its key."""

    def __init__(self, number: int, machine: LinkMachine) -> None:
        super().__init__(number, STEPS)
        self.machine = machine
        self.reported: dict[str, tuple[float, int]] = {}

    def ask(self, name: str) -> None:
        mine, chance = sorted(self.reported), self.random.random()
        board = self.machine.board
        if mine and chance < 0.3:
            name = self.random.choice(mine)
            self.reported.pop(name)
            board.withdraw(name)
            return
        if mine and chance < 0.45:
            name = self.random.choice(mine)
        request = a_spec(
            self.random.choice([40.0, 110.0, 200.0, 300.0]), self.random.sample(NODES, 2),
            self.random.choice(["none", "anyL2Chip"]),
        )  # fmt: skip
        try:
            view = board.admit(name, request)
        except REFUSED:
            self.refused += 1
            return
        self.answers += 1
        self.reported[name] = (view.floor_gbps_per_npu, view.isolation_key)


@pytest.mark.timeout(180)
def test_two_replicas_never_break_a_floor(replicas: list[LinkMachine]) -> None:
    owners = [Tenant(number, machine) for number, machine in enumerate(replicas)]
    run_all(owners)
    for machine in replicas:
        machine.watch()  # takes in what the other did last, and finds no link promised beyond what it has
    one, other = (machine.promises for machine in replicas)
    ledgers_equal(one.ledger, other.ledger)
    ledgers_equal(one.healthy_ledger, other.healthy_ledger)
    current = {terms.name: (terms.floor_gbps, terms.isolation_key) for terms in one.slices}
    assert current == {name: reported for owner in owners for name, reported in owner.reported.items()}
    assert len({key for _, key in current.values()}) == len(current)
    assert all(terms.kept == 1.0 and not terms.unprotected for terms in one.slices)
    assert any(owner.refused for owner in owners), "they stood in one another's way"
    assert all(owner.answers >= 8 for owner in owners)


def test_the_same_last_floor_is_given_to_one_of_them(replicas: list[LinkMachine]) -> None:
    answers: list[str] = []

    def ask(machine: LinkMachine, name: str) -> None:
        try:
            machine.board.admit(name, a_spec(300.0, NODES))
            answers.append("admitted")
        except InsufficientBandwidth:
            answers.append("refused")

    for attempt in range(8):
        names = [f"last-{attempt}-{number}" for number in range(2)]
        threads = [
            threading.Thread(target=ask, args=each) for each in zip(replicas, names, strict=True)
        ]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(answers) == ["admitted", "refused"]
        answers.clear()
        (current,) = [name for name in names if _is_there(replicas[0], name)]
        replicas[attempt % 2].board.withdraw(current)


def _is_there(machine: LinkMachine, name: str) -> bool:
    with machine.store.reading() as session:
        return bool(machine.store.slices_named(session, [name]))


def test_what_one_hears_of_a_link_the_other_decides_on(replicas: list[LinkMachine]) -> None:
    hears, hears_nobody = replicas
    whole = a_spec(392.0, NODES[:2])
    assert hears_nobody.board.admit("first", whole, validate_only=True).state == "Admitted"
    reported = {
        "node": NODES[0], "epoch": 1, "sequence": 1, "leaseSeconds": 30.0,
        "ports": [{"port": "ub-p3-k11", "gbps": 0.0}],
    }  # fmt: skip
    assert hears.reports.take([LinkReport.model_validate(reported)])[0].accepted
    with pytest.raises(InsufficientBandwidth):
        hears_nobody.board.admit("first", whole)
    assert hears_nobody.fabric.capacity(f"{NODES[0]}.ub-p3-k11") == 0.0
