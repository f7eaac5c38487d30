"""A move under way beside the other verbs: what ends it, and whom else it is asked of."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixcommon.model.errors import Conflict
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.defragmentations import RelocateRequest
from matrixresource.topology.loading import load_spec
from tests.matrixresource.machine import Machine
from tests.matrixresource.topology.three_cabinets import three_cabinets

APART = {"policy": "spread", "level": "cabinet", "required": True, "maxPerDomain": 1}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, spec=load_spec(three_cabinets()))


@pytest.mark.parametrize("moving", [False, True])
def test_cut_over_is_refused_while_releasing(machine: Machine, moving: bool) -> None:
    member = machine.provision("one", nodes=2).members[0].node
    if moving:
        machine.allocator.relocate("one", RelocateRequest.model_validate({"node": member, "to": "sn0-c02-n3"}))
        machine.report_all()
    machine.allocator.release("one")
    with pytest.raises(Conflict, match="being released"):
        machine.allocator.cut_over("one", AllocationRequest(nodes=2))
    machine.check()
    machine.report_all()
    assert machine.names() == []
    machine.check()


@pytest.mark.parametrize("other", [{"nodes": 1}, {"nodes": 2, "placement": APART}, {"nodes": 2, "priority": 9}])
def test_cut_over_must_match_the_requested_move(machine: Machine, other: dict[str, object]) -> None:
    machine.provision("one", nodes=2)
    request = AllocationRequest.model_validate({"nodes": 3})
    with pytest.raises(Conflict, match="has no move to this spec under way"):
        machine.allocator.cut_over("one", AllocationRequest.model_validate(other))
    machine.allocator.move("one", request)
    machine.report_all()
    with pytest.raises(Conflict, match="has no move to this spec under way"):
        machine.allocator.cut_over("one", AllocationRequest.model_validate(other))
    assert len(machine.allocator.cut_over("one", request).members) == 3
    generation = machine.allocation("one").generation
    assert machine.allocator.cut_over("one", request).generation == generation, "asked again, it finds what it did"
    machine.check()


@pytest.mark.parametrize("asked", [{"nodes": 3}, {"nodes": 3, "placement": APART}])
def test_a_member_lost_while_another_moves_is_replaced(machine: Machine, asked: dict[str, object]) -> None:
    before = [member.node for member in machine.provision("one", **asked).members]
    cabinet = before[0].rpartition("-")[0]
    free = next(name for name in (f"{cabinet}-n{number}" for number in range(4)) if name not in before)
    machine.allocator.relocate("one", RelocateRequest.model_validate({"node": before[0], "to": free}))
    machine.allocator.replace("one", machine.allocation("one").members[1].node, "its fan is loud")
    machine.check()
    machine.report_all()
    present = {(member.role, member.rank): member.node for member in machine.allocation("one").members}
    assert present["successor", 0] == free
    assert present["member", 1] not in before
    moved = machine.allocator.cut_over("one", AllocationRequest.model_validate(asked))
    assert [member.node for member in moved.members] == [free, present["member", 1], before[2]]
    machine.check()
