"""Plans that make room: they can be carried out one member after another, and the block is there at the end."""

from __future__ import annotations

import random

import pytest

from benchmarks.allocator.ledger_verbs import hold, rebuild_index
from matrixresource.scheduler.defragment import defragmentation
from matrixresource.scheduler.defragment.search import fragments_by_node
from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.metrics import capacity_metrics
from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.request import Placement, PlacementRequest


def scattered(seed: int, shape: ClusterShape) -> Ledger:
    """A machine of small tenants of which a third have left."""
    chance = random.Random(seed)
    ledger = Ledger(shape)
    for number in range(shape.all_nodes * 3):
        ledger.allocate(f"t{number}", PlacementRequest(1, chance.choice([1, 2, 2, 4, 8])), 0.0)
    for name in chance.sample(sorted(ledger.allocations), len(ledger.allocations) // 3):
        ledger.release(name)
    return ledger


@pytest.mark.parametrize("over", ["cabinet", "supernode"])
@pytest.mark.parametrize("seed", range(6))
def test_a_block_is_made_step_by_step(seed: int, over: str) -> None:
    ledger = scattered(seed, ClusterShape(1, 4, 4))
    request = PlacementRequest(capacity_metrics.largest_blocks(ledger.index)[over] + 1, required_domain=over)
    before = ledger.index.state(), list(ledger.index.dies)
    found = defragmentation.plan_defragmentation(ledger, request, 20_000)
    assert (ledger.index.state(), ledger.index.dies) == before
    if found is None:
        assert request.nodes > 4 or 2 * request.nodes * 8 > sum(dies.bit_count() for dies in ledger.index.dies)
        return
    assert found.npus == sum(move.npus for move in found.moves) == sum(step.npus for step in found.steps)
    dies = list(ledger.index.dies)
    where = {(piece.name, node): piece.dies for node, there in fragments_by_node(ledger).items() for piece in there}
    for step in found.steps:
        gone = where.pop((step.name, step.source))
        assert dies[step.target].bit_count() >= gone.bit_count()
        dies[step.source] |= gone
        taken = defragmentation.part_dies(dies[step.target], step.npus)
        dies[step.target] &= ~taken
        where[step.name, step.target] = taken
    for move in found.moves:
        ledger.remove_usage(move.name, move.old)
    for move in found.moves:
        ledger.add_usage(move.name, move.new)
        ledger.allocations[move.name].place = move.new
    assert ledger.index.state() == rebuild_index(ledger).state()
    assert capacity_metrics.largest_blocks(ledger.index)[over] == found.after >= request.nodes > found.before
    hold(ledger, "gang", request, found.place, 0.0)
    assert ledger.index.state() == rebuild_index(ledger).state()


def test_chain_of_moves() -> None:
    ledger = Ledger(ClusterShape(1, 2, 2))
    for name, node, dies in (("six", 0, 12), ("two", 1, 4), ("four", 2, 8), ("three", 3, 6)):
        hold(ledger, name, PlacementRequest(1, dies / 2), Placement(parts=[(node, (1 << dies) - 1)]), 0.0)
    assert defragmentation.plan_defragmentation(ledger, PlacementRequest(1)) is not None
    assert defragmentation.plan_defragmentation(ledger, PlacementRequest(5)) is None
    found = defragmentation.plan_defragmentation(ledger, PlacementRequest(2, required_domain="cabinet"))
    assert found is not None
    assert (found.before, found.after, found.npus) == (0, 2, 9)
    assert [step.name for step in found.steps] == ["four", "two", "three"]


def test_what_metrics_show() -> None:
    ledger = Ledger(ClusterShape(2, 2, 4))
    hold(ledger, "gang", PlacementRequest(3), Placement(whole=[(0, 0b0111)]), 0.0)
    hold(ledger, "part", PlacementRequest(1, 6.5), Placement(parts=[(4, 0b1111111111111)]), 0.0)
    hold(ledger, "safe", PlacementRequest(1, spares=1), Placement(whole=[(2, 1)], spares=[(2, 2)]), 0.0)
    ledger.set_up(15, False)
    shown = capacity_metrics.capacity_snapshot(ledger)
    assert (shown.nodes_up, shown.nodes_free, shown.spares) == (15, 9, 1)
    assert shown.npus_free == 73.5
    assert shown.largest == {"cabinet": 3, "supernode": 5, "": 9}
    assert shown.fragmentation == {"node": pytest.approx(3 / 147), "cabinet": 0.25, "supernode": 0.375}
    two = next(block for block in shown.blocks if (block.level, block.nodes) == ("cabinet", 2))
    assert (two.count, two.stranded) == (3, pytest.approx(1 / 3))


def test_moves_keep_cabinet_blocks_whole() -> None:
    for cell, request, place in (
        (2, PlacementRequest(2, required_domain="cabinet"), None),
        (1, PlacementRequest(2, cabinet_block=2), [(0, 0b11)]),
    ):
        ledger = Ledger(ClusterShape(1, 3, 2))
        hold(ledger, "gang", PlacementRequest(2, cabinet_block=cell), Placement(whole=[(0, 0b11)]), 0.0)
        ledger.set_up(2, False)
        ledger.set_up(4, False)
        found = defragmentation.plan_defragmentation(ledger, request)
        assert (found.place.whole if found else None) == place
