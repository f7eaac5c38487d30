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
    first = machine.have("one", npus=2)
    assert (first.state, first.npus, len(first.members[0].dies)) == ("Bound", 2, 4)
    die = machine.have("die", npus=0.5)
    assert die.members[0].node == first.members[0].node, "a node in use is used up first"
    assert machine.have("rest", npus=5).members[0].node == first.members[0].node
    assert machine.have("more", npus=1).members[0].node != first.members[0].node, "half an NPU is left there"
    assert machine.have("gang", nodes=3, npusPerNode=4, placement=CABINET).nodes == 3
    machine.allocator.release("one")
    assert machine.allocation("one").state == "Releasing", "dies are held until the agent has wiped them"
    machine.check()
    machine.obey()
    assert "one" not in machine.names()
    assert machine.have("again", npus=2).members[0].node == first.members[0].node


def test_sockets_and_memory_are_pooled_whoever_holds_the_npus(machine):
    machine.have("npus", nodes=48)
    pool = machine.have("pool", cpus=6, memoryGib=4000)
    assert pool.state == "Bound"
    assert {member.role for member in pool.members} == {"pool"}
    assert sum(member.cpus or 0 for member in pool.members) == 6
    assert sum(member.memory_gib or 0 for member in pool.members) == 4000
    with pytest.raises(InsufficientCapacity, match="186 CPU sockets are free"):
        machine.ask("more", cpus=187)
    machine.allocator.release("pool")
    machine.obey()
    machine.ask("more", cpus=187)


def test_it_grows_and_shrinks_in_place_and_the_last_ranks_go(machine):
    before = machine.have("one", nodes=6, spares=1)
    grown = machine.have("one", nodes=9, spares=2)
    kept = {(m.node, m.rank) for m in before.members if m.role == "member"}
    assert kept <= {(m.node, m.rank) for m in grown.members}
    assert sorted(m.rank for m in grown.members if m.role == "member") == list(range(9))
    shrunk = machine.have("one", nodes=2)
    assert {(m.node, m.rank) for m in shrunk.members} == {(n, r) for n, r in kept if r < 2}


@pytest.mark.parametrize("size", [{"nodes": 2}, {"npus": 3}])
def test_one_member_is_replaced_and_the_rest_stay(machine, size):
    before = machine.have("one", **size)
    gone = before.members[0].node
    machine.allocator.cordon(NodeName(gone), True)
    after = machine.allocator.replace("one", NodeName(gone), "Test")
    assert gone not in {m.node for m in after.members if m.role == "member"}
    assert {m.rank for m in after.members if m.role == "member"} == {m.rank for m in before.members}
    machine.obey()
    assert machine.allocation("one").state == "Bound"


def test_blocks_keep_their_ranks_together(machine):
    placement = {"level": "cabinet", "blocks": [{"nodes": 2, "level": "cabinet"}, {"nodes": 6}]}
    machine.have("other", nodes=1)
    view = machine.have("one", nodes=12, placement=placement)
    assert all(count % 2 == 0 for count in cabinets(view).values())
    at = {m.rank: m.cabinet for m in view.members}
    assert all(at[rank] == at[rank + 1] for rank in range(0, 12, 2))


def test_higher_priority_preempts_who_has_least_to_lose(machine):
    machine.have("old", nodes=24, priority=1)
    machine.clock.at += 3600
    machine.have("young", nodes=24, priority=1)
    with pytest.raises(InsufficientCapacity):
        machine.ask("urgent", nodes=20, priority=5)
    preview = machine.ask("urgent", validate_only=True, nodes=20, priority=5, preemption="LowerPriority")
    assert preview.preempts == ["young"]
    assert "urgent" not in machine.names()
    assert machine.allocation("young").state == "Bound", "a preview changes nothing"
    taken = machine.ask("urgent", nodes=20, priority=5, preemption="LowerPriority")
    assert [m.node for m in taken.members] == [m.node for m in preview.members]
    assert machine.allocation("young").state == "Releasing"
    assert next(c for c in machine.allocation("young").conditions if c.type == "Preempted").status == "True"
    machine.check()
    machine.obey()
    assert machine.names() == ["old", "urgent"]
    with pytest.raises(InsufficientCapacity):
        machine.ask("same", nodes=20, priority=1, preemption="LowerPriority")


def test_affinity_and_its_opposite(machine):
    machine.have("base", nodes=2)
    here = cabinets(machine.allocation("base"))
    near = machine.ask("near", nodes=1, affinity={"allocations": ["base"]})
    assert set(cabinets(near)) == set(here)
    apart = machine.ask("apart", npus=1, antiAffinity={"allocations": ["base"]})
    assert not set(cabinets(apart)) & set(here)
    with pytest.raises(InsufficientCapacity, match="affinity"):
        machine.ask("crowd", nodes=3, affinity={"allocations": ["base"]})


def test_a_lease_ends_unless_it_is_renewed(machine):
    machine.have("short", nodes=1, leaseS=100)
    machine.have("kept", nodes=1, leaseS=100)
    machine.clock.at += 90
    machine.allocator.renew("kept", 100)
    machine.clock.at += 20
    assert machine.allocator.expire() == 1
    machine.obey()
    assert machine.names() == ["kept"]


def test_a_quota_holds_whatever_is_asked(machine):
    machine.quotas.put("team", QuotaRequest(npus=24, cpus=4))
    machine.have("one", project="team", nodes=2)
    with pytest.raises(
        QuotaExceeded, match="has a quota of 24 NPUs, of which 16 are in use elsewhere, but needs 16 here"
    ):
        machine.ask("two", project="team", nodes=2)
    with pytest.raises(QuotaExceeded):
        machine.ask("one", project="team", nodes=4)
    machine.ask("three", project="team", npus=8)
    assert machine.quotas.get("team").used_npus == 24
    machine.ask("free", project="other", nodes=4)


def test_a_closed_cabinet_takes_nobody_and_a_plan_knows_its_version(machine):
    plan = machine.planner.plan(PlanRequest(nodes=48))
    assert plan.fits
    for number in range(11):
        machine.topology_manager.close(f"sn0-c{number:02d}", by="test", reason="cooling")
    assert machine.ask("one", nodes=4).members[0].cabinet == "sn0-c11"
    with pytest.raises(StaleTopology):
        machine.ask("two", nodes=1, topologyVersion=plan.topology_version)
    refused = machine.planner.plan(PlanRequest(nodes=1))
    assert not refused.fits
    assert refused.blocking[0].reasons["DomainClosed"] == 44
    machine.topology_manager.open("sn0-c00", by="test")
    assert machine.ask("two", nodes=4).members[0].cabinet == "sn0-c00"


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
def test_what_cannot_be_is_refused_with_its_field(machine, sentence, spec, error, field):
    with pytest.raises(error) as refused:
        machine.ask("new", **spec)
    assert refused.value.field == field, sentence
    assert machine.names() == []


def test_a_block_that_no_cabinet_can_hold_is_refused_with_the_way_out(machine):
    for nodes in (5, 3):  # more than a cabinet has, and more than is free in any
        if nodes == 3:
            machine.ask("spread", nodes=24, placement={"policy": "spread", "level": "cabinet"})
        with pytest.raises(InsufficientCapacity, match="make the placement preferred"):
            machine.ask("new", nodes=nodes, placement=CABINET)


def test_affinity_that_goes_round_is_refused(machine):
    machine.have("a", nodes=1)
    machine.have("b", nodes=1, affinity={"allocations": ["a"]})
    machine.allocator.release("a")
    machine.obey()
    with pytest.raises(InvalidField, match="affinity forms a cycle: a -> b -> a"):
        machine.ask("a", nodes=1, affinity={"allocations": ["b"]})


def test_everything_is_found_again_by_the_next_life(machine):
    machine.have("whole", nodes=3, spares=1)
    machine.have("part", npus=3)
    machine.have("pool", cpus=5)
    before = [machine.allocation(name) for name in machine.names()]
    machine.restart()
    assert [machine.allocation(name) for name in machine.names()] == before
    machine.check()
    machine.obey()
    with pytest.raises(Conflict):
        machine.ask("part", npus=2)


def later(machine, seconds):
    return timestamp(machine.clock.at + seconds)


def promise(machine, name, after_s, **desired):
    request = {"startsAt": later(machine, after_s), "durationS": 1000} | desired
    return machine.allocator.reservations.put(name, ReservationRequest.model_validate(request))


def test_a_reservation_is_kept_from_who_would_still_be_there_then_held_and_taken(machine):
    promised = promise(machine, "tomorrow", 500, nodes=40)
    assert (promised.state, len(promised.nodes)) == ("Promised", 40)
    with pytest.raises(InsufficientCapacity):
        machine.ask("forever", nodes=9)
    machine.ask("small", nodes=8)
    machine.have("guest", nodes=20, leaseS=400)
    machine.restart()
    with pytest.raises(InsufficientCapacity):
        machine.ask("forever", nodes=9)
    machine.clock.at += 450
    machine.allocator.expire()
    machine.obey()
    machine.clock.at += 100
    machine.allocator.reservations.reconcile()
    assert machine.promise("tomorrow").state == "Active"
    assert machine.allocation("tomorrow").nodes == 40
    machine.check()
    taken = machine.have("job", nodes=30, reservation="tomorrow")
    assert {m.node for m in taken.members} <= set(promised.nodes)
    assert machine.allocation("tomorrow").nodes == 10
    machine.check()
    machine.ask("rest", nodes=10, reservation="tomorrow")
    assert machine.promise("tomorrow").state == "Ended"


def test_other_labels_of_a_reservation_are_those_of_what_it_holds_as_well(machine):
    request = {"startsAt": later(machine, 100), "durationS": 1000, "nodes": 4}
    for labels in ({"team": "one"}, {"team": "two"}):
        machine.allocator.reservations.put("soon", ReservationRequest.model_validate(request | {"labels": labels}))
        machine.clock.at += 110
        machine.allocator.reservations.reconcile()
        assert machine.promise("soon").labels == labels
        holding = machine.allocation("soon").labels
        assert holding == labels | {RESERVATION_LABEL: "soon"}
    machine.check()


def test_a_reservation_whose_place_is_not_left_waits_and_ends(machine):
    promise(machine, "soon", 100, nodes=46)
    machine.have("guest", nodes=4, leaseS=90)
    machine.clock.at += 110  # the guest overstays: nobody has looked at leases yet
    machine.allocator.reservations.reconcile()
    assert machine.promise("soon").state == "Waiting"
    machine.allocator.expire()
    machine.obey()
    machine.allocator.reservations.reconcile()
    assert machine.promise("soon").state == "Active"
    machine.clock.at += 1000
    machine.allocator.reservations.reconcile()
    machine.allocator.expire()
    machine.obey()
    assert machine.promise("soon").state == "Ended"
    assert machine.names() == []


def test_a_reservation_that_was_held_and_released_promises_nothing(machine):
    promise(machine, "tomorrow", 100, nodes=40)
    machine.clock.at += 101
    machine.allocator.reservations.reconcile()
    machine.allocator.release("tomorrow")
    machine.obey()
    machine.restart()
    machine.ask("all", nodes=20)
    machine.allocator.reservations.reconcile()
    assert machine.promise("tomorrow").state == "Ended"
    machine.ask("all", nodes=48)
