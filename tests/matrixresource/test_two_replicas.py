"""Two replicas over one database, asked by turns: each decides on what the other has done, whatever it did before."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from matrixcommon.model.errors import Conflict, InsufficientCapacity
from tests.matrixresource.machine import Machine

SPECS = [{"nodes": 1}, {"nodes": 6, "spares": 1}, {"npus": 0.5}, {"nodes": 5, "npusPerNode": 4}, {"nodes": 30}]


@pytest.fixture
def replicas(tmp_path):
    made = [Machine(tmp_path, shared=True), Machine(tmp_path, supernodes=0, shared=True)]
    yield made
    for machine in made:
        machine.check()


def test_refused_replica_sees_later_changes(replicas):
    one, other = replicas
    one.provision("leaving", nodes=1)
    with pytest.raises(InsufficientCapacity):
        one.reserve("refused", nodes=48)
    theirs = other.reserve("theirs", nodes=6)
    one.allocator.release("leaving")  # decides nothing on the ledger, and changes what is in them
    ours = one.reserve("ours", nodes=6)
    assert not {member.node for member in theirs.members} & {member.node for member in ours.members}


@pytest.mark.parametrize("seed", range(6))
def test_alternating_replicas_never_double_allocate(replicas, seed):
    chance, refused = Random(seed), 0
    for step in range(60):
        machine = chance.choice(replicas)
        current = machine.names()
        if current and chance.random() < 0.4:
            with suppress(Conflict):
                machine.allocator.release(chance.choice(current))
        else:
            try:
                machine.reserve(f"a{step}", **chance.choice(SPECS))
            except InsufficientCapacity:
                refused += 1
        if step % 20 == 19:  # no oftener: to look into the ledger is to open them
            machine.check()
    assert refused
