"""Where requests come to lie, whom they preempted, and what a loss does."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from benchmarks.allocator.ledger_verbs import allocations_on, hold, rebuild_index
from benchmarks.allocator.node_repair import repair
from benchmarks.placement import request_of
from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.request import Placement, PlacementRequest


def allocation(*npus: float, shape: ClusterShape | None = None) -> Ledger:
    ledger = Ledger(shape or ClusterShape(1, 3, 4))
    for number, wanted in enumerate(npus):
        ledger.allocate(f"h{number}", request_of({"npus": wanted}, 0.0), 0.0)
    return ledger


@pytest.mark.parametrize(
    ("sentence", "before", "event", "cabinets", "nodes"),
    [
        ("a part joins the node where it fits best", (6, 4), {"npus": 2}, 1, [0]),
        ("a die joins a broken NPU", (0.5, 3), {"npus": 0.5}, 1, [0]),
        ("a gang takes the smallest cabinet that holds it", (8, 8), {"npus": 16}, 1, [2, 3]),
        ("a large gang takes full cabinets and ends in the tightest", (8, 8), {"npus": 48}, 2, None),
        ("spares come from beside the gang", (), {"npus": 16, "spares": 1}, 1, [0, 1]),
        ("spread deals nodes out", (), {"npus": 24, "spread": {"over": "cabinet", "max": 1}}, 3, None),
    ],
)
def test_placement(sentence: str, before: tuple[float, ...], event: Any, cabinets: int, nodes: Any) -> None:
    ledger = allocation(*before)
    place, _ = ledger.allocate("new", request_of(event, 0.0), 0.0)
    assert place is not None, sentence
    assert len(place.cabinets(4)) == cabinets, sentence
    found = [c * 4 + o for c, mask in place.whole for o in ledger.index.offsets(mask)] + [n for n, _ in place.parts]
    assert nodes is None or found == nodes, sentence


def test_preemption_takes_only_the_cheapest_victims() -> None:
    ledger = Ledger(ClusterShape(1, 2, 2))
    for name, npus, priority, since in (("old", 16, 0, 0.0), ("young", 8, 0, 90.0), ("high", 8, 5, 95.0)):
        ledger.allocate(name, request_of({"npus": npus, "prio": priority}, since), since)
    place, evicted = ledger.allocate("vip", request_of({"npus": 8, "prio": 3, "preempt": True}, 100.0), 100.0)
    assert place is not None
    assert evicted == ["young"]
    assert ledger.allocate("low", request_of({"npus": 8, "prio": 0, "preempt": True}, 100.0), 100.0) == (None, [])


def test_spare_replaces_a_lost_member() -> None:
    ledger = Ledger(ClusterShape(1, 2, 4))
    place, _ = ledger.allocate("gang", request_of({"npus": 24, "spares": 1}, 0.0), 0.0)
    assert place is not None
    moved, lost = repair(ledger, 1)
    assert (lost, list(moved)) == ([], ["gang"])
    assert moved["gang"].whole == [(0, 0b1101)]
    assert moved["gang"].spares == []


def test_a_trial_leaves_no_trace() -> None:
    ledger = allocation(6, 4, 8, 16)
    before = ledger.index.state() | {"dies": list(ledger.index.dies)}
    for event in ({"npus": 16, "spares": 1}, {"npus": 0.5}, {"npus": 96}, {"npus": 4, "cpus": 3}):
        ledger.choose(request_of(event, 0.0))
    assert ledger.index.state() | {"dies": list(ledger.index.dies)} == before


def test_a_cabinet_of_many_nodes() -> None:
    """More nodes than the table of masks reaches."""
    ledger = Ledger(ClusterShape(1, 2, 16))
    place, _ = ledger.allocate("a", PlacementRequest(13), 0.0)
    assert place is not None
    assert place.whole == [(0, (1 << 13) - 1)]
    assert ledger.index.state() == rebuild_index(ledger).state()
    assert isinstance(rebuild_index(ledger), FreeCapacityIndex)


def test_a_lost_node_takes_its_cell_along_only_when_its_cabinet_is_full() -> None:
    ledger = Ledger(ClusterShape(1, 4, 4))
    hold(ledger, "gang", PlacementRequest(4, cabinet_block=2), Placement(whole=[(0, 0b0011), (1, 0b0011)]), 0.0)
    hold(ledger, "beside", PlacementRequest(1), Placement(whole=[(1, 0b1000)]), 0.0)
    moved, _ = repair(ledger, 4)
    assert moved["gang"].whole == [(0, 0b0011), (1, 0b0110)]
    moved, _ = repair(ledger, 5)
    assert moved["gang"].whole == [(0, 0b1111)]  # though all of it would have fitted elsewhere
    moved, _ = repair(ledger, 0)
    assert [mask.bit_count() for cabinet, mask in sorted(moved["gang"].whole)] == [2, 2]
    assert moved["gang"].cabinets(4) == {0, 2}


def test_a_spare_in_another_cabinet_cuts_no_cell() -> None:
    ledger = Ledger(ClusterShape(1, 2, 2))
    hold(
        ledger,
        "gang",
        PlacementRequest(2, cabinet_block=2, spares=1),
        Placement(whole=[(0, 0b11)], spares=[(1, 0b01)]),
        0.0,
    )
    moved, lost = repair(ledger, 0)
    assert (moved["gang"].whole, moved["gang"].spares, lost) == ([(1, 0b11)], [(0, 0b10)], [])


def test_a_shape_goes_to_another_process_and_back() -> None:
    shape = ClusterShape(3, 2, 4, npus=4, cpus=2, mem_gib=64)
    assert pickle.loads(pickle.dumps(shape)) == shape


def test_a_lost_member_is_replaced_under_its_rules_else_with_them_as_preferences() -> None:
    ledger = Ledger(ClusterShape(1, 2, 2))
    ledger.allocate("gang", PlacementRequest(2, required_domain="cabinet"), 0.0)
    lost = next(node for node in range(4) if "gang" in allocations_on(ledger, node))
    ledger.set_up(lost, False)
    assert allocations_on(ledger, lost) == ["gang"]
    place = ledger.fail_over("gang", lost)
    assert place is not None, "the cabinet has no other node: the next best is another cabinet"
    assert ledger.allocations["gang"].request.preferred_domain == "cabinet"
    assert allocations_on(ledger, lost) == []
    for node in range(4):
        ledger.set_up(node, False)
    before = ledger.allocations["gang"].request
    lost = next(node for node in range(4) if "gang" in allocations_on(ledger, node))
    assert ledger.fail_over("gang", lost) is None
    assert ledger.allocations["gang"].request == before


INDEXED = (
    "cabinets_by_whole", "cpus", "dies", "faulty_dies", "free", "idle_faulty", "mem", "node_bits", "nodes_by_free_npus",
    "nodes_with_free_die", "present_counts", "shape", "supernodes_by_cabinet", "supernodes_by_whole", "up", "whole",
    "whole_counts",
)  # fmt: skip


def everything(ledger: Ledger) -> list[Any]:
    """All that a ledger knows."""
    index, chooser = ledger.index, ledger.chooser
    known: list[Any] = [getattr(index, name) for name in INDEXED]
    known += [chooser.node_ends, chooser.cabinet_ends, chooser.size_counts, chooser.orders]
    known += [ledger.allocations, ledger.reservations, ledger.reserved_capacity.waiting, ledger.tenants]
    return known


def a_used_ledger() -> Ledger:
    ledger = allocation(16, 0.5, 3, 24)
    ledger.allocate("spared", request_of({"npus": 16, "spares": 1}, 0.0), 0.0)
    ledger.allocate("pooled", request_of({"npus": 4, "cpus": 3}, 0.0), 0.0)
    ledger.set_up(11, False)
    return ledger


def test_a_copy_is_the_same_and_chooses_the_same() -> None:
    ledger = a_used_ledger()
    copy = ledger.copy()
    assert everything(copy) == everything(ledger)
    for npus in (0.5, 1, 4, 8, 16, 64):
        request = request_of({"npus": npus}, 0.0)
        assert copy.choose(request) == ledger.choose(request)


def test_what_is_done_to_a_copy_is_not_done_to_its_ledger() -> None:
    ledger = a_used_ledger()
    before, copy = ledger.copy(), ledger.copy()
    for name in list(copy.allocations):
        copy.release(name)
    copy.set_up(11, True)
    assert copy.allocate("all", request_of({"npus": 96}, 0.0), 0.0)[0] is not None
    assert everything(ledger) == everything(before) != everything(copy)
    for each in ledger.allocations.values():
        each.place.whole.clear()
    assert before.allocations != ledger.allocations, "places are not shared"
