"""Changes of what is held already: which of them touch the lease, and whom they preempted."""

from __future__ import annotations

import pytest

from matrixcommon.model.errors import Conflict, InsufficientCapacity
from matrixcommon.model.quantities import timestamp
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.defragmentations import RelocateRequest
from tests.matrixresource.machine import Machine

SPREAD = {"policy": "spread"}


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    yield made
    made.check()


@pytest.mark.parametrize("asked", [None, 50, 5000])
def test_move_keeps_the_lease(machine, asked):
    ends = timestamp(machine.clock.at + 1000)
    machine.provision("one", nodes=2, leaseS=1000)
    machine.clock.at += 300
    request = AllocationRequest.model_validate({"nodes": 2, "placement": SPREAD, "leaseS": asked})
    begun = machine.allocator.move("one", request)
    assert any(member.role == "successor" for member in begun.members)
    assert begun.expires_at == ends
    again = machine.allocator.move("one", request)
    assert [m.node for m in again.members] == [m.node for m in begun.members], "asked twice, it is one move"
    machine.allocator.bind("one")
    machine.report_all()
    assert machine.allocator.cut_over("one", request).expires_at == ends
    changed = machine.reserve("one", nodes=2, placement=SPREAD, leaseS=5000)
    assert changed.expires_at == timestamp(machine.clock.at + 5000), "a spec in place changes it"


def test_a_move_stays_in_its_project(machine):
    machine.provision("one", nodes=2)
    with pytest.raises(Conflict) as refused:
        machine.allocator.move("one", AllocationRequest.model_validate({"nodes": 2, "project": "other"}))
    assert refused.value.field == "project"


@pytest.mark.parametrize("level", ["cabinet", "supernode"])
def test_refusal_to_grow_suggests_a_move(tmp_path, level):
    machine = Machine(tmp_path, supernodes=2)
    placement = {"policy": "pack", "level": level, "required": True}
    size = 4 if level == "cabinet" else 48
    machine.provision("full", nodes=size, placement=placement)
    with pytest.raises(
        InsufficientCapacity, match="1 node does not fit: there is room, but its placement or reservations prevent"
    ):
        machine.reserve("full", nodes=size + 1, placement=placement)
    machine.check()


URGENT = {"priority": 5, "preemption": "LowerPriority"}


@pytest.mark.parametrize(
    ("guest", "grown"),
    [
        ({"nodes": 30}, {"nodes": 20}),
        ({"nodes": 30, "spares": 2}, {"nodes": 14, "spares": 5}),
        ({"nodes": 36, "npusPerNode": 4}, {"nodes": 20}),
    ],
)
def test_growing_may_preempt(machine, guest, grown):
    machine.provision("high", nodes=10, **URGENT)
    machine.provision("guest", **guest)
    machine.provision("equal", nodes=1, priority=5)
    with pytest.raises(InsufficientCapacity):
        machine.reserve("high", **grown, priority=5)
    before = machine.allocation("high")
    preview = machine.reserve("high", validate_only=True, **grown, **URGENT)
    assert preview.preempts == ["guest"]
    assert machine.allocation("high") == before
    assert machine.allocation("guest").state == "Bound"
    taken = machine.reserve("high", **grown, **URGENT)
    assert taken.members == preview.members
    assert {m.node for m in before.members} <= {m.node for m in taken.members}, "it stays where it was"
    assert taken.preempts == ["guest"]
    assert next(c for c in machine.allocation("guest").conditions if c.type == "Preempted").status == "True"
    machine.check()
    machine.report_all()
    assert machine.names() == ["equal", "high"]
    assert machine.allocation("high").state == "Bound"


def test_returned_allocation_is_no_longer_preempted(machine):
    machine.provision("guest", nodes=40)
    machine.reserve("high", nodes=20, **URGENT)
    machine.provision("higher", nodes=1, priority=9)
    machine.report_all()
    assert machine.allocation("high").preempts == ["guest"]
    machine.restart()
    with pytest.raises(InsufficientCapacity):
        machine.reserve("guest", nodes=40)
    machine.reserve("guest", validate_only=True, nodes=20)
    assert machine.allocation("high").preempts == ["guest"], "refused or only tried, it is not back"
    machine.reserve("guest", nodes=20)
    assert machine.allocation("high").preempts == []
    machine.allocator.release("guest")
    machine.report_all()
    assert machine.allocation("high").preempts == [], "lost again, it was not preempt"
    machine.provision("late", nodes=20)
    assert machine.reserve("high", validate_only=True, nodes=30, **URGENT).preempts == ["late"]


@pytest.mark.parametrize(
    ("victims", "pooled"),
    [({"low": 192}, "cpus"), ({"low": 100, "lower": 92}, "cpus"), ({"low": 48 * 2048}, "memoryGib")],
)
def test_unused_preempted_capacity_is_wiped_first(machine, victims, pooled):
    for name, amount in victims.items():
        machine.provision(name, **{pooled: amount})
    machine.reserve("high", **{pooled: 1}, **URGENT)
    gone = machine.allocation("high").preempts
    machine.check()
    with pytest.raises(InsufficientCapacity):
        machine.reserve("third", **{pooled: 3})
    machine.report_all()
    assert not set(gone) & set(machine.names())
    assert machine.reserve("third", **{pooled: 3}).state == "Reserved"


def test_the_same_request_again_leaves_a_relocation_alone(machine):
    before = [member.node for member in machine.provision("one", nodes=2, labels={"a": "1"}).members]
    free = next(f"sn0-c{cabinet:02d}-n0" for cabinet in range(12) if f"sn0-c{cabinet:02d}-n0" not in before)
    machine.allocator.relocate("one", RelocateRequest(node=before[0], to=free))
    again = machine.reserve("one", nodes=2, labels={"a": "2"})
    assert [member.node for member in again.members if member.role == "successor"] == [free]
    other = machine.reserve("one", nodes=3)
    assert "successor" not in {member.role for member in other.members}, "another one ends it"


def test_labels_of_the_last_request_and_of_the_system(machine):
    before = machine.provision("one", nodes=2, labels={"team": "a", "tier": "gold"})
    lost = before.members[0].node
    machine.allocator.replace("one", lost, "NodeLost")
    view = machine.reserve("one", nodes=2, labels={"team": "b"})
    assert view.labels == {"team": "b", "cloudmatrix.io/last-replacement": f"{lost}.NodeLost"}
    moved = machine.allocator.move("one", AllocationRequest.model_validate({"nodes": 2, "placement": SPREAD}))
    assert moved.labels["team"] == "b"
    machine.allocator.bind("one")
    machine.report_all()
    request = AllocationRequest.model_validate({"nodes": 2, "placement": SPREAD, "labels": {"tier": "tin"}})
    after = machine.allocator.cut_over("one", request)
    assert after.labels == {"tier": "tin", "cloudmatrix.io/last-replacement": f"{lost}.NodeLost"}


def test_excluded_nodes_leave_first_when_shrinking(machine):
    before = [member.node for member in machine.provision("one", nodes=6).members]
    named = [before[1], before[4]]
    after = machine.reserve("one", nodes=3, excludeNodes=named)
    stayed = [member.node for member in after.members if member.role == "member"]
    assert sorted(stayed) == sorted([before[0], before[2], before[3]]), "the named ones, and then the last rank"
    assert [member.rank for member in after.members] == [0, 1, 2], "and no rank is left open"
    assert machine.reserve("one", nodes=3, excludeNodes=named).members == after.members


def test_resizing_with_a_missing_spare(machine):
    machine.provision("one", nodes=4, spares=1)
    machine.provision("rest", nodes=43)
    spare = next(each.node for each in machine.allocation("one").members if each.role == "spare")
    machine.allocator.cordon(spare, True)
    machine.allocator.replace("one", spare, "Requested")
    assert not [each for each in machine.allocation("one").members if each.role == "spare"], "there is no other"
    assert machine.reserve("one", nodes=3, spares=1).nodes == 3
    machine.report_all()
    assert [each.role for each in machine.allocation("one").members] == ["member"] * 3 + ["spare"], "who left is one"
    with pytest.raises(InsufficientCapacity):
        machine.reserve("one", nodes=3, spares=3)


def roles(view):
    return {each.node: each.role for each in view.members}


def grown_from(view):
    return next(each for each in view.conditions if each.type == "Grown")


@pytest.mark.parametrize(
    ("nodes", "spares", "to", "promoted"), [(2, 2, 3, 1), (2, 2, 4, 2), (2, 2, 7, 2), (4, 1, 6, 1), (3, 0, 5, 0)]
)
def test_growing_promotes_ready_spares_first(machine, nodes, spares, to, promoted):
    before = roles(machine.provision("one", nodes=nodes, spares=spares))
    after = machine.reserve("one", nodes=to, spares=spares)
    now = roles(after)
    were = {node for node, role in before.items() if role == "spare"}
    assert sum(now[node] == "member" for node in were) == promoted
    assert all(now[node] == "member" for node, role in before.items() if role == "member"), "who was there stays"
    assert (list(now.values()).count("member"), list(now.values()).count("spare")) == (to, spares)
    assert grown_from(after).message == f"{promoted} of {to - nodes} new members were spares"
    assert machine.reserve("one", nodes=to, spares=spares).members == after.members, "asked twice, it is one growth"
    machine.check()
    machine.report_all()
    assert machine.allocation("one").state == "Bound"


def test_growing_out_of_spares_is_all_or_nothing(machine):
    before = machine.provision("one", nodes=4, spares=2)
    machine.provision("rest", nodes=41)
    with pytest.raises(InsufficientCapacity):
        machine.reserve("one", nodes=6, spares=2)
    assert machine.allocation("one") == before, "one node is left, and two spares are to be had anew"
    fewer = machine.reserve("one", nodes=6, spares=1)
    assert {each.role for each in fewer.members if roles(before).get(each.node) == "spare"} == {"member"}
    assert [each.role for each in fewer.members].count("spare") == 1, "who does with fewer spares has both"


def test_a_spare_that_is_not_ready_or_closed_stays_a_spare(machine):
    view = machine.provision("one", nodes=2, spares=2)
    first, second = (node for node, role in roles(view).items() if role == "spare")
    machine.allocator.cordon(first, True)
    after = machine.reserve("one", nodes=4, spares=2)
    assert (roles(after)[first], roles(after)[second]) == ("spare", "member")
    booting = machine.reserve("one", nodes=5, spares=2)
    assert grown_from(booting).message == "0 of 1 new members were spares", "the other has yet to boot"
    machine.report_all()
    assert grown_from(machine.reserve("one", nodes=6, spares=2)).reason == "FromSpares"


def test_spares_of_unbound_or_switched_off_allocations_stay_spares(machine):
    machine.reserve("new", nodes=2, spares=1)
    assert grown_from(machine.reserve("new", nodes=3, spares=1)).reason == "FromFreeNodes"


@pytest.mark.parametrize("required", [True, False])
def test_promotion_respects_constraints_and_preferences(machine, required):
    spread = {"policy": "spread", "level": "cabinet", "maxPerDomain": 1, "required": required}
    before = roles(machine.provision("one", nodes=3, spares=2, placement=spread))
    after = machine.reserve("one", nodes=6, spares=2, placement=spread)
    assert len({each.node.rsplit("-", 1)[0] for each in after.members if each.role == "member"}) == 6
    assert all(role == "member" for node, role in roles(after).items() if before.get(node) == "member")


def test_shrinking_after_promotion_keeps_the_spares(machine):
    machine.provision("one", nodes=2, spares=2)
    machine.reserve("one", nodes=4, spares=2)
    back = machine.reserve("one", nodes=2, spares=2)
    assert sorted(roles(back).values()) == ["member", "member", "spare", "spare"]
    machine.check()
    machine.report_all()
    machine.restart()
    machine.check()
