"""What is promised is there when its time comes; who leaves before may use it until then."""

from __future__ import annotations

import random

import pytest

from benchmarks.allocator.ledger_verbs import activate_due, claim, expire, extend, rebuild_index, reserve
from matrixresource.scheduler.changes import advance_reservation, preemption
from matrixresource.scheduler.explain import earliest_start
from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.placement_arithmetic import members_of, used_nodes
from matrixresource.scheduler.model.request import DomainConstraint, PlacementRequest


def nodes(ledger: Ledger, name: str) -> set[int]:
    return members_of(ledger.index, ledger.allocations[name].place)


def test_only_expiring_allocations_use_reserved_capacity() -> None:
    ledger = Ledger(ClusterShape(1, 2, 4))
    ledger.allocate("tenant", PlacementRequest(8, lease_end=50.0), 0.0)
    assert reserve(ledger, "soon", PlacementRequest(1), 40.0, 60.0) is None
    assert reserve(ledger, "later", PlacementRequest(6), 50.0, 90.0) is not None
    assert reserve(ledger, "beside", PlacementRequest(3), 60.0, 70.0) is None
    assert reserve(ledger, "after", PlacementRequest(8), 90.0, 95.0) is not None
    ledger.release("tenant")
    assert ledger.choose(PlacementRequest(3)) is None
    assert ledger.choose(PlacementRequest(2, lease_end=90.0)) is not None
    assert ledger.choose(PlacementRequest(2, lease_end=91.0)) is None
    assert ledger.allocate("quick", PlacementRequest(8, lease_end=50.0), 0.0)[0] is not None
    assert extend(ledger, "quick", 51.0) is False
    assert ledger.index.state() == rebuild_index(ledger).state()


def test_reservation_is_activated_and_claimed_in_parts() -> None:
    ledger = Ledger(ClusterShape(1, 2, 4))
    reserve(ledger, "mine", PlacementRequest(3, required_domain="cabinet", cpus=4), 10.0, 100.0)
    with pytest.raises(ValueError, match="not held yet"):
        claim(ledger, "mine", "early", None, 5.0)
    assert activate_due(ledger, 9.0) == ({}, [])
    current, failed = activate_due(ledger, 10.0)
    assert (list(current), failed) == (["mine"], [])
    promised = nodes(ledger, "mine")
    assert claim(ledger, "mine", "first", PlacementRequest(2, cpus=1), 11.0) is not None
    assert claim(ledger, "mine", "part", PlacementRequest(1, 2), 12.0) is not None
    assert nodes(ledger, "first") | nodes(ledger, "part") == promised
    assert claim(ledger, "mine", "large", PlacementRequest(1, 8), 12.0) is None
    assert ledger.choose(PlacementRequest(6)) is None
    rest = claim(ledger, "mine", "rest", None, 13.0)
    assert rest is not None
    assert sum(dies.bit_count() for _, dies in rest.parts) == 12
    assert sum(n for _, n in rest.cpus) == 3
    assert "mine" not in ledger.reservations


def test_activation_replaces_lost_nodes_or_reports_waiting() -> None:
    ledger = Ledger(ClusterShape(1, 3, 2))
    ledger.allocate("one", PlacementRequest(2, required_domain="cabinet", lease_end=10.0), 0.0)
    ledger.allocate("two", PlacementRequest(2, required_domain="cabinet", lease_end=10.0), 0.0)
    ledger.allocate("stays", PlacementRequest(1), 0.0)
    place = reserve(ledger, "gang", PlacementRequest(2, required_domain="cabinet"), 10.0, 20.0)
    assert place is not None
    assert reserve(ledger, "pool", PlacementRequest(1, 4), 10.0, 20.0) is not None
    ledger.set_up(min(members_of(ledger.index, place)), False)
    current, failed = activate_due(ledger, 10.0)
    assert (list(current), failed) == (["pool"], ["gang"])
    ledger.release("two")
    ledger.release("one")
    current, failed = activate_due(ledger, 11.0)
    assert (list(current), failed) == (["gang"], [])
    assert all(ledger.index.up[node] for node in nodes(ledger, "gang"))
    assert expire(ledger, 20.0) == (["gang", "pool"], [])
    assert list(ledger.allocations) == ["stays"]


def test_leases_past_their_end_are_listed_and_stay() -> None:
    ledger = Ledger(ClusterShape(1, 1, 4))
    ledger.allocate("short", PlacementRequest(1, lease_end=5.0), 0.0)
    ledger.allocate("long", PlacementRequest(1), 0.0)
    assert expire(ledger, 4.9) == ([], [])
    assert expire(ledger, 5.0) == ([], ["short"])
    assert set(ledger.allocations) == {"short", "long"}


@pytest.mark.parametrize("seed", range(25))
def test_the_earliest_start_is_the_first_at_which_it_fits(seed: int) -> None:
    chance = random.Random(seed)
    ledger = Ledger(ClusterShape(1, 3, 3))
    for number in range(6):
        ledger.allocate(f"t{number}", PlacementRequest(chance.randint(1, 2), lease_end=chance.randint(2, 20)), 0.0)
    for number in range(4):
        start = chance.randint(1, 25)
        reserve(ledger, f"r{number}", PlacementRequest(chance.randint(1, 5)), start, start + chance.randint(1, 15))
    request = PlacementRequest(
        chance.randint(2, 8),
        spread=DomainConstraint("cabinet", 2) if seed % 3 == 0 else None,
        lease_end=chance.randint(1, 12),
    )
    before = ledger.index.state(), ledger.chooser.node_ends, ledger.chooser.cabinet_ends
    first = earliest_start.earliest_start(ledger, request, 0.0)
    assert (ledger.index.state(), ledger.chooser.node_ends, ledger.chooser.cabinet_ends) == before

    def fits(start: int) -> bool:
        later = PlacementRequest(request.nodes, spread=request.spread, lease_end=start + request.lease_end)
        return advance_reservation.place_between(ledger, later, start) is not None

    assert first == next((start for start in range(60) if fits(start)), None)


def test_reserved_capacity_causes_no_preemption() -> None:
    ledger = Ledger(ClusterShape(1, 2, 2))
    ledger.allocate("low", PlacementRequest(2, required_domain="cabinet", lease_end=10.0), 0.0)
    ledger.allocate("other", PlacementRequest(1, required_domain="cabinet"), 5.0)
    place = reserve(ledger, "promised", PlacementRequest(2, required_domain="cabinet"), 10.0, 20.0)
    assert place is not None
    request = PlacementRequest(2, required_domain="cabinet", priority=5, preempts=True)
    before = ledger.index.state(), list(ledger.chooser.cabinet_ends)
    assert preemption.victims(ledger, request, 6.0) == ["other"]
    assert (ledger.index.state(), ledger.chooser.cabinet_ends) == before
    taken, evicted = ledger.allocate("vip", request, 6.0)
    assert taken is not None
    assert evicted == ["other"]
    assert not used_nodes(ledger.index, taken) & used_nodes(ledger.index, place)
