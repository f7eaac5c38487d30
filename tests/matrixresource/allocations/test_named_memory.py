"""Memory of nodes that are named: so much of each and of no other, never more than there is, whoever holds the NPUs."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from matrixcommon.model.errors import InsufficientCapacity, InvalidField, QuotaExceeded
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.quantities import timestamp
from matrixresource.contract.plans import PlanRequest
from matrixresource.contract.quotas import QuotaRequest
from matrixresource.contract.reservations import ReservationRequest
from tests.matrixresource.machine import Machine

DRAM_GIB = 2048
FIRST, SECOND, THIRD = "sn0-c00-n0", "sn0-c00-n1", "sn0-c05-n2"


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    yield made
    made.check()


def memory(view):
    return {member.node: member.memory_gib for member in view.members}


def test_memory_is_allocated_on_each_named_node(machine):
    machine.provision("npus", nodes=48)
    view = machine.reserve("cache", memoryGibByNode={FIRST: 512, THIRD: 100})
    assert memory(view) == {FIRST: 512, THIRD: 100}
    assert (view.memory_gib, {member.role for member in view.members}) == (612, {"pool"})
    assert machine.reserve("cache", memoryGibByNode={THIRD: 100, FIRST: 512}).generation == view.generation, "no news"


def test_node_memory_is_not_overcommitted(machine):
    machine.reserve("first", memoryGibByNode={FIRST: 1500, SECOND: 100})
    with pytest.raises(
        InsufficientCapacity, match=f"{FIRST} has 548 GiB of memory to give, but 549 GiB are requested"
    ) as refused:
        machine.reserve("second", memoryGibByNode={FIRST: 549, SECOND: 1})
    assert refused.value.field == f"memoryGibByNode.{FIRST}"
    assert refused.value.blocking == [{"domain": FIRST, "needsGib": 549, "hasGib": 548}]
    assert machine.names() == ["first"]
    machine.reserve("second", memoryGibByNode={FIRST: 548})
    with pytest.raises(InsufficientCapacity, match="has 1500 GiB of memory to give, but 1501 GiB are requested"):
        machine.reserve("first", memoryGibByNode={FIRST: 1501, SECOND: 100})
    assert memory(machine.allocation("first")) == {FIRST: 1500, SECOND: 100}, "it stays as it was"


def test_named_memory_resizes_in_place(machine):
    machine.reserve("cache", memoryGibByNode={FIRST: 100, SECOND: 100})
    assert memory(machine.reserve("cache", memoryGibByNode={FIRST: 2048, THIRD: 5})) == {FIRST: 2048, THIRD: 5}
    machine.check()
    assert memory(machine.reserve("cache", memoryGibByNode={SECOND: 7})) == {SECOND: 7}, "none of its nodes stays"
    machine.reserve("other", memoryGibByNode={FIRST: DRAM_GIB})


def test_out_of_service_node_grants_no_more_memory(machine):
    machine.reserve("cache", memoryGibByNode={FIRST: 100, SECOND: 100})
    machine.allocator.cordon(NodeName(FIRST), True)
    with pytest.raises(InsufficientCapacity, match="closed to new work"):
        machine.reserve("cache", memoryGibByNode={FIRST: 101, SECOND: 100})
    machine.reserve("cache", memoryGibByNode={FIRST: 50, SECOND: 200})
    machine.reserve("cache", memoryGibByNode={SECOND: 200})
    assert memory(machine.allocation("cache")) == {SECOND: 200}


def test_named_memory_survives_a_restart_and_is_released(machine):
    machine.reserve("cache", memoryGibByNode={FIRST: DRAM_GIB})
    machine.restart()
    machine.check()
    with pytest.raises(InsufficientCapacity):
        machine.reserve("other", memoryGibByNode={FIRST: 1})
    assert machine.allocator.release("cache") is None, "nobody has prepared it, so it goes at once"
    machine.reserve("other", memoryGibByNode={FIRST: DRAM_GIB})


def test_pooled_memory_beside_named_memory(machine):
    machine.reserve("cache", memoryGibByNode={FIRST: DRAM_GIB})
    pool = machine.provision("pool", memoryGib=47 * DRAM_GIB)
    assert FIRST not in memory(pool)


def test_quota_counts_named_memory(machine):
    machine.quotas.put("default", QuotaRequest(memory_gib=600))
    machine.reserve("cache", memoryGibByNode={FIRST: 500})
    with pytest.raises(QuotaExceeded):
        machine.reserve("cache", memoryGibByNode={FIRST: 500, SECOND: 101})


def test_plan_reports_available_memory(machine):
    machine.reserve("cache", memoryGibByNode={FIRST: 2000})
    plan = machine.planner.plan(PlanRequest.model_validate({"memoryGibByNode": {FIRST: 100, SECOND: 10}}))
    assert not plan.fits
    assert any("58 GiB" in change.message for change in plan.changes), "48 of the first and 10 of the second"


def test_reservation_of_named_memory(machine):
    request = {"memoryGibByNode": {FIRST: 2000}}
    start = machine.clock.now() + 100
    asked = ReservationRequest.model_validate({**request, "startsAt": timestamp(start), "durationS": 1000})
    machine.allocator.reservations.put("later", asked)
    with pytest.raises(InsufficientCapacity):
        machine.reserve("cache", memoryGibByNode={FIRST: 49})
    machine.reserve("cache", memoryGibByNode={FIRST: 48})


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"nodes": 1}, "cannot be combined with nodes"),
        ({"cpus": 1}, "cannot be combined with cpus"),
        ({"memoryGib": 5}, "must be the sum of memoryGibByNode, 1"),
        ({"preemption": "LowerPriority"}, "cannot preempt"),
        ({"affinity": {"allocations": ["a"]}}, "names its nodes"),
    ],
)
def test_invalid_combinations_with_named_memory_are_refused(machine, more, sentence):
    with pytest.raises(ValidationError, match=sentence):
        machine.reserve("cache", memoryGibByNode={FIRST: 1}, **more)


def test_unknown_node_is_named_in_the_error(machine):
    with pytest.raises(InvalidField, match="there is no node 'sn7-c00-n0'") as refused:
        machine.reserve("cache", memoryGibByNode={"sn7-c00-n0": 1})
    assert refused.value.field == "memoryGibByNode.sn7-c00-n0"
