"""MatrixResource's verbs: what is held, what is refused and why, and that nothing is ever held twice."""

from __future__ import annotations

from collections import Counter

import pytest

from matrixcommon.model.errors import (
    Conflict,
    ExceedsDomain,
    InsufficientCapacity,
    InvalidField,
    QuotaExceeded,
    StaleTopology,
)
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.quantities import timestamp
from matrixresource.contract.allocations import RESERVATION_LABEL
from matrixresource.contract.plans import PlanRequest
from matrixresource.contract.quotas import QuotaRequest
from matrixresource.contract.reservations import ReservationRequest
from tests.matrixresource.machine import Machine

CABINET = {"policy": "pack", "level": "cabinet", "required": True}


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    yield made
    made.check()


def cabinets(view):
    return Counter(member.cabinet for member in view.members if member.role == "member")


def test_parts_of_a_node_down_to_a_die(machine):
    first = machine.provision("one", npus=2)
    assert (first.state, first.npus, len(first.members[0].dies)) == ("Bound", 2, 4)
    die = machine.provision("die", npus=0.5)
    assert die.members[0].node == first.members[0].node, "a node in use is used up first"
    assert machine.provision("rest", npus=5).members[0].node == first.members[0].node
    assert machine.provision("more", npus=1).members[0].node != first.members[0].node, "half an NPU is left there"
    assert machine.provision("gang", nodes=3, npusPerNode=4, placement=CABINET).nodes == 3
    machine.allocator.release("one")
    assert machine.allocation("one").state == "Releasing", "dies are held until the agent has wiped them"
    machine.check()
    machine.report_all()
    assert "one" not in machine.names()
    assert machine.provision("again", npus=2).members[0].node == first.members[0].node


def test_sockets_and_memory_are_pooled_whoever_holds_the_npus(machine):
    machine.provision("npus", nodes=48)
    pool = machine.provision("pool", cpus=6, memoryGib=4000)
    assert pool.state == "Bound"
    assert {member.role for member in pool.members} == {"pool"}
    assert sum(member.cpus or 0 for member in pool.members) == 6
    assert sum(member.memory_gib or 0 for member in pool.members) == 4000
    with pytest.raises(InsufficientCapacity, match="186 CPU sockets are free"):
        machine.reserve("more", cpus=187)
    machine.allocator.release("pool")
    machine.report_all()
    machine.reserve("more", cpus=187)


def test_it_grows_and_shrinks_in_place_and_the_last_ranks_go(machine):
    before = machine.provision("one", nodes=6, spares=1)
    grown = machine.provision("one", nodes=9, spares=2)
    kept = {(m.node, m.rank) for m in before.members if m.role == "member"}
    assert kept <= {(m.node, m.rank) for m in grown.members}
    assert sorted(m.rank for m in grown.members if m.role == "member") == list(range(9))
    shrunk = machine.provision("one", nodes=2)
    assert {(m.node, m.rank) for m in shrunk.members} == {(n, r) for n, r in kept if r < 2}


@pytest.mark.parametrize("size", [{"nodes": 2}, {"npus": 3}])
def test_one_member_is_replaced_and_the_rest_stay(machine, size):
    before = machine.provision("one", **size)
    gone = before.members[0].node
    machine.allocator.cordon(NodeName(gone), True)
    after = machine.allocator.replace("one", NodeName(gone), "Test")
    assert gone not in {m.node for m in after.members if m.role == "member"}
    assert {m.rank for m in after.members if m.role == "member"} == {m.rank for m in before.members}
    machine.report_all()
    assert machine.allocation("one").state == "Bound"


def test_blocks_keep_their_ranks_together(machine):
    placement = {"level": "cabinet", "blocks": [{"nodes": 2, "level": "cabinet"}, {"nodes": 6}]}
    machine.provision("other", nodes=1)
    view = machine.provision("one", nodes=12, placement=placement)
    assert all(count % 2 == 0 for count in cabinets(view).values())
    at = {m.rank: m.cabinet for m in view.members}
    assert all(at[rank] == at[rank + 1] for rank in range(0, 12, 2))


def test_preemption_picks_the_least_work_lost(machine):
    machine.provision("old", nodes=24, priority=1)
    machine.clock.at += 3600
    machine.provision("young", nodes=24, priority=1)
    with pytest.raises(InsufficientCapacity):
        machine.reserve("urgent", nodes=20, priority=5)
    preview = machine.reserve("urgent", validate_only=True, nodes=20, priority=5, preemption="LowerPriority")
    assert preview.preempts == ["young"]
    assert "urgent" not in machine.names()
    assert machine.allocation("young").state == "Bound", "a preview changes nothing"
    taken = machine.reserve("urgent", nodes=20, priority=5, preemption="LowerPriority")
    assert [m.node for m in taken.members] == [m.node for m in preview.members]
    assert machine.allocation("young").state == "Releasing"
    assert next(c for c in machine.allocation("young").conditions if c.type == "Preempted").status == "True"
    machine.check()
    machine.report_all()
    assert machine.names() == ["old", "urgent"]
    with pytest.raises(InsufficientCapacity):
        machine.reserve("same", nodes=20, priority=1, preemption="LowerPriority")


def test_affinity_and_anti_affinity(machine):
    machine.provision("base", nodes=2)
    here = cabinets(machine.allocation("base"))
    near = machine.reserve("near", nodes=1, affinity={"allocations": ["base"]})
    assert set(cabinets(near)) == set(here)
    apart = machine.reserve("apart", npus=1, antiAffinity={"allocations": ["base"]})
    assert not set(cabinets(apart)) & set(here)
    with pytest.raises(InsufficientCapacity, match="affinity"):
        machine.reserve("crowd", nodes=3, affinity={"allocations": ["base"]})


def test_a_lease_ends_unless_it_is_renewed(machine):
    machine.provision("short", nodes=1, leaseS=100)
    machine.provision("kept", nodes=1, leaseS=100)
    machine.clock.at += 90
    machine.allocator.renew("kept", 100)
    machine.clock.at += 20
    assert machine.allocator.expire() == 1
    machine.report_all()
    assert machine.names() == ["kept"]


def test_quota_applies_to_every_request(machine):
    machine.quotas.put("team", QuotaRequest(npus=24, cpus=4))
    machine.provision("one", project="team", nodes=2)
    with pytest.raises(
        QuotaExceeded, match="has a quota of 24 NPUs, of which 16 are in use elsewhere, but needs 16 here"
    ):
        machine.reserve("two", project="team", nodes=2)
    with pytest.raises(QuotaExceeded):
        machine.reserve("one", project="team", nodes=4)
    machine.reserve("three", project="team", npus=8)
    assert machine.quotas.get("team").used_npus == 24
    machine.reserve("free", project="other", nodes=4)


def test_closed_cabinet_and_plan_version(machine):
    plan = machine.planner.plan(PlanRequest(nodes=48))
    assert plan.fits
    for number in range(11):
        machine.topology_manager.close(f"sn0-c{number:02d}", by="test", reason="cooling")
    assert machine.reserve("one", nodes=4).members[0].cabinet == "sn0-c11"
    with pytest.raises(StaleTopology):
        machine.reserve("two", nodes=1, topologyVersion=plan.topology_version)
    refused = machine.planner.plan(PlanRequest(nodes=1))
    assert not refused.fits
    assert refused.blocking[0].reasons["DomainClosed"] == 44
    machine.topology_manager.open("sn0-c00", by="test")
    assert machine.reserve("two", nodes=4).members[0].cabinet == "sn0-c00"


@pytest.mark.parametrize(
    ("sentence", "spec", "error", "field"),
    [
        ("a fraction that is no die", {"npus": 1.5}, InvalidField, "npus"),
        ("a part that is no die", {"nodes": 2, "npusPerNode": 2.5}, InvalidField, "npusPerNode"),
        ("no number of such nodes", {"npus": 10, "npusPerNode": 4}, InvalidField, "npusPerNode"),
        (
            "no whole blocks",
            {"nodes": 5, "placement": {"blocks": [{"nodes": 2}]}},
            InvalidField,
            "placement.blocks[0].nodes",
        ),
        (
            "affinity to itself",
            {"nodes": 1, "affinity": {"allocations": ["new"]}},
            InvalidField,
            "affinity.allocations",
        ),
        ("near to nobody", {"nodes": 1, "affinity": {"allocations": ["ghost"]}}, InvalidField, "affinity.allocations"),
        (
            "many members on one node",
            {"nodes": 2, "placement": {"level": "node", "required": True}},
            InvalidField,
            "placement.level",
        ),
        ("more than a supernode has", {"nodes": 49}, ExceedsDomain, "placement.level"),
        ("with spares more than a supernode has", {"nodes": 40, "spares": 9}, ExceedsDomain, "placement.level"),
        (
            "more than a cabinet has",
            {"nodes": 5, "placement": {"policy": "pack", "level": "cabinet", "required": True}},
            ExceedsDomain,
            "placement.level",
        ),
        (
            "over supernodes, of which there may be more",
            {"nodes": 49, "placement": {"policy": "spread", "level": "supernode"}},
            InsufficientCapacity,
            None,
        ),
        ("an unknown topology", {"nodes": 1, "topologyVersion": "v0-000000000000"}, StaleTopology, "topologyVersion"),
    ],
)
def test_invalid_requests_are_refused_with_their_field(machine, sentence, spec, error, field):
    with pytest.raises(error) as refused:
        machine.reserve("new", **spec)
    assert refused.value.field == field, sentence
    assert machine.names() == []


def test_oversized_block_is_refused_with_advice(machine):
    for nodes in (5, 3):  # more than a cabinet has, and more than is free in any
        if nodes == 3:
            machine.reserve("spread", nodes=24, placement={"policy": "spread", "level": "cabinet"})
        with pytest.raises(InsufficientCapacity, match="make the placement preferred"):
            machine.reserve("new", nodes=nodes, placement=CABINET)


def test_affinity_cycle_is_refused(machine):
    machine.provision("a", nodes=1)
    machine.provision("b", nodes=1, affinity={"allocations": ["a"]})
    machine.allocator.release("a")
    machine.report_all()
    with pytest.raises(InvalidField, match="affinity forms a cycle: a -> b -> a"):
        machine.reserve("a", nodes=1, affinity={"allocations": ["b"]})


def test_state_survives_a_restart(machine):
    machine.provision("whole", nodes=3, spares=1)
    machine.provision("part", npus=3)
    machine.provision("pool", cpus=5)
    before = [machine.allocation(name) for name in machine.names()]
    machine.restart()
    assert [machine.allocation(name) for name in machine.names()] == before
    machine.check()
    machine.report_all()
    with pytest.raises(Conflict):
        machine.reserve("part", npus=2)


def advance_clock(machine, seconds):
    return timestamp(machine.clock.at + seconds)


def put_reservation(machine, name, after_s, **desired):
    request = {"startsAt": advance_clock(machine, after_s), "durationS": 1000} | desired
    return machine.allocator.reservations.put(name, ReservationRequest.model_validate(request))


def test_reservation_is_protected_activated_and_claimed(machine):
    promised = put_reservation(machine, "tomorrow", 500, nodes=40)
    assert (promised.state, len(promised.nodes)) == ("Promised", 40)
    with pytest.raises(InsufficientCapacity):
        machine.reserve("forever", nodes=9)
    machine.reserve("small", nodes=8)
    machine.provision("guest", nodes=20, leaseS=400)
    machine.restart()
    with pytest.raises(InsufficientCapacity):
        machine.reserve("forever", nodes=9)
    machine.clock.at += 450
    machine.allocator.expire()
    machine.report_all()
    machine.clock.at += 100
    machine.allocator.reservations.reconcile()
    assert machine.reservation("tomorrow").state == "Active"
    assert machine.allocation("tomorrow").nodes == 40
    machine.check()
    taken = machine.provision("job", nodes=30, reservation="tomorrow")
    assert {m.node for m in taken.members} <= set(promised.nodes)
    assert machine.allocation("tomorrow").nodes == 10
    machine.check()
    machine.reserve("rest", nodes=10, reservation="tomorrow")
    assert machine.reservation("tomorrow").state == "Ended"


def test_reservation_labels_apply_to_its_allocation(machine):
    request = {"startsAt": advance_clock(machine, 100), "durationS": 1000, "nodes": 4}
    for labels in ({"team": "one"}, {"team": "two"}):
        machine.allocator.reservations.put("soon", ReservationRequest.model_validate(request | {"labels": labels}))
        machine.clock.at += 110
        machine.allocator.reservations.reconcile()
        assert machine.reservation("soon").labels == labels
        holding = machine.allocation("soon").labels
        assert holding == labels | {RESERVATION_LABEL: "soon"}
    machine.check()


def test_reservation_waits_for_overstaying_allocations_and_ends(machine):
    put_reservation(machine, "soon", 100, nodes=46)
    machine.provision("guest", nodes=4, leaseS=90)
    machine.clock.at += 110  # the guest overstays: nobody has looked at leases yet
    machine.allocator.reservations.reconcile()
    assert machine.reservation("soon").state == "Waiting"
    machine.allocator.expire()
    machine.report_all()
    machine.allocator.reservations.reconcile()
    assert machine.reservation("soon").state == "Active"
    machine.clock.at += 1000
    machine.allocator.reservations.reconcile()
    machine.allocator.expire()
    machine.report_all()
    assert machine.reservation("soon").state == "Ended"
    assert machine.names() == []


def test_released_reservation_reserves_nothing(machine):
    put_reservation(machine, "tomorrow", 100, nodes=40)
    machine.clock.at += 101
    machine.allocator.reservations.reconcile()
    machine.allocator.release("tomorrow")
    machine.report_all()
    machine.restart()
    machine.reserve("all", nodes=20)
    machine.allocator.reservations.reconcile()
    assert machine.reservation("tomorrow").state == "Ended"
    machine.reserve("all", nodes=48)
