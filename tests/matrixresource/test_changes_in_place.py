"""Changes of what is held already: which of them touch the lease, and whom they put out."""

from __future__ import annotations

import pytest

from matrixresource.contract import AllocationRequest
from matrixresource.vocabulary.errors import Conflict
from matrixresource.vocabulary.quantities import timestamp
from tests.matrixresource.machine import Machine

SPREAD = {"policy": "spread"}


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    yield made
    made.check()


@pytest.mark.parametrize("asked", [None, 50, 5000])
def test_a_move_leaves_the_lease_as_it_is(machine, asked):
    ends = timestamp(machine.clock.at + 1000)
    machine.have("one", nodes=2, leaseS=1000)
    machine.clock.at += 300
    wish = AllocationRequest.model_validate({"nodes": 2, "placement": SPREAD, "leaseS": asked})
    begun = machine.allocator.move("one", wish)
    assert any(member.role == "successor" for member in begun.members)
    assert begun.expires_at == ends
    again = machine.allocator.move("one", wish)
    assert [m.node for m in again.members] == [m.node for m in begun.members], "asked twice, it is one move"
    machine.allocator.bind("one")
    machine.obey()
    assert machine.allocator.change_over("one", wish).expires_at == ends
    changed = machine.ask("one", nodes=2, placement=SPREAD, leaseS=5000)
    assert changed.expires_at == timestamp(machine.clock.at + 5000), "a wish in place changes it"


def test_a_move_stays_in_its_project(machine):
    machine.have("one", nodes=2)
    with pytest.raises(Conflict) as refused:
        machine.allocator.move("one", AllocationRequest.model_validate({"nodes": 2, "project": "other"}))
    assert refused.value.field == "project"
