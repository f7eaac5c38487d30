"""A broken die takes nobody new, whoever asks and however; who holds it keeps it until it is given up."""

from __future__ import annotations

import pytest

from benchmarks.allocator.ledger_verbs import activate_due, claim, grow, hold, rebuild_index, reserve, shrink
from benchmarks.allocator.node_repair import repair
from matrixresource.scheduler.defragment import defragmentation
from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.metrics import capacity_metrics
from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.placement_arithmetic import members_of, nodes_in
from matrixresource.scheduler.model.request import Placement, PlacementRequest


def one_die_broken(place: Placement, nodes: int = 4) -> Ledger:
    """A machine whose first node is held by "it", with a die broken of every node held."""
    ledger = Ledger(ClusterShape(1, 2, nodes))
    hold(ledger, "it", PlacementRequest(len(members_of(ledger.index, place)), 8 if place.whole else 2), place, 0.0)
    for node in members_of(ledger.index, place) | nodes_in(ledger.index, place.spares):
        ledger.index.set_faulty_dies(node, 0b1)
    return ledger


@pytest.mark.parametrize("place", [Placement(whole=[(0, 0b11)]), Placement(parts=[(0, 0b1111), (1, 0b1111)])])
def test_holder_of_faulty_dies_can_resize_and_hand_over(place: Placement) -> None:
    ledger = one_die_broken(place)
    per = ledger.allocations["it"].request.npus_per_node
    grown = grow(ledger, "it", PlacementRequest(3, per))
    assert grown is not None
    assert {0, 1} < members_of(ledger.index, grown)
    assert members_of(ledger.index, shrink(ledger, "it", PlacementRequest(2, per), [1, 0, 2])) == {0, 1}
    smaller = shrink(ledger, "it", PlacementRequest(2, 1), [0, 1])
    assert smaller.parts == [(0, 0b1100), (1, 0b1100)]  # what is sound stays
    assert ledger.index.state() == rebuild_index(ledger).state()


def test_faulty_dies_are_claimed_whole() -> None:
    ledger = Ledger(ClusterShape(1, 1, 2))
    assert reserve(ledger, "later", PlacementRequest(2, lease_end=90.0), 10.0, 90.0) is not None
    activate_due(ledger, 10.0)
    ledger.index.set_faulty_dies(0, 0b1)
    assert claim(ledger, "later", "two", PlacementRequest(2), 11.0) is None
    part = claim(ledger, "later", "part", PlacementRequest(1, 8), 11.0)
    assert part is not None
    assert part.whole == [(0, 0b10)]
    rest = claim(ledger, "later", "rest", None, 12.0)
    assert rest is not None
    assert rest.whole == [(0, 0b01)]
    assert ledger.index.state() == rebuild_index(ledger).state()


def test_reservation_is_placed_again_after_a_fault() -> None:
    ledger = Ledger(ClusterShape(1, 1, 3))
    place = reserve(ledger, "later", PlacementRequest(2), 10.0, 90.0)
    assert place is not None
    ledger.index.set_faulty_dies(0, 0b1)
    assert activate_due(ledger, 10.0)[0]["later"].whole == [(0, 0b110)]


def test_spare_with_a_faulty_die_replaces_only_where_it_has_room() -> None:
    place = Placement(whole=[(0, 0b001)], spares=[(0, 0b010)])
    for lose in (lambda ledger: repair(ledger, 0)[0]["it"], lambda ledger: ledger.replace("it", 0)):
        ledger = Ledger(ClusterShape(1, 1, 3))
        hold(ledger, "it", PlacementRequest(1, spares=1), place, 0.0)
        ledger.index.set_faulty_dies(1, 0b1)
        assert lose(ledger).whole == [(0, 0b100)]
        parts = Ledger(ClusterShape(1, 1, 2))
        hold(parts, "it", PlacementRequest(1, 7, spares=1), Placement(parts=[(0, 0x3FFF)], spares=[(0, 0b10)]), 0.0)
        parts.index.set_faulty_dies(1, 0b1)
        assert lose(parts).parts == [(1, 0xFFFC)]


def test_no_move_makes_room_on_a_broken_die() -> None:
    ledger = Ledger(ClusterShape(1, 1, 3))
    for node, npus in ((0, 4), (1, 6), (2, 3)):
        hold(ledger, f"t{node}", PlacementRequest(1, npus), Placement(parts=[(node, (1 << 2 * npus) - 1)]), 0.0)
    assert [(s.source, s.target) for s in defragmentation.plan_defragmentation(ledger, PlacementRequest(1)).steps] == [
        (2, 0)
    ]  # type: ignore[union-attr]
    ledger.index.set_faulty_dies(2, 0b1)  # of what t2 has: its node can no longer be emptied for a whole node
    found = defragmentation.plan_defragmentation(ledger, PlacementRequest(1))
    assert found is not None
    assert [(step.source, step.target) for step in found.steps] == [(0, 2)]
    assert (found.before, found.after) == (0, 1)
    ledger.index.set_faulty_dies(0, 1 << 15)
    ledger.index.set_faulty_dies(1, 1 << 15)
    assert defragmentation.plan_defragmentation(ledger, PlacementRequest(1)) is None


def test_faulty_dies_make_no_room() -> None:
    """The gang needs a node; who leaves it fits only where another part makes room first."""
    for broken, moves in ((0, 2), (0b10101, None)):
        ledger = Ledger(ClusterShape(1, 1, 3))
        for name, node, npus in (("six", 0, 6), ("three", 1, 3), ("four", 2, 4), ("two", 2, 2)):
            first = 4 if name == "two" else 0
            hold(
                ledger,
                name,
                PlacementRequest(1, npus),
                Placement(parts=[(node, ((1 << 2 * npus) - 1) << 2 * first)]),
                0.0,
            )
        ledger.index.set_faulty_dies(2, 0b11 << 14)
        ledger.index.set_faulty_dies(1, broken)
        found = defragmentation.plan_defragmentation(ledger, PlacementRequest(1))
        assert (len(found.moves) if found else None) == moves


def test_idle_faulty_die_counts_in_no_total() -> None:
    ledger = one_die_broken(Placement(parts=[(0, 0b1111)]))
    ledger.index.set_faulty_dies(5, 0xFF)
    seen = capacity_metrics.capacity_snapshot(ledger)
    assert (seen.npus_free, seen.nodes_up) == (4 * 16 - 4 - 2, 8)
