"""What is counted from sets of nodes is what looking at every node gives."""

from __future__ import annotations

import random

import pytest

from benchmarks.allocator.ledger_verbs import has_room
from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.best_fit import CANDIDATES
from matrixresource.scheduler.model.bitmasks import low_bits
from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.free_capacity_index import WORD_BITS
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.placement import candidate_domains
from matrixresource.scheduler.placement.affinity import AffinityFilter
from matrixresource.scheduler.placement.constrained import choose_in_scope


def used(seed: int, shape: ClusterShape) -> Ledger:
    """A machine with parts and gangs on it, nodes down and dies broken."""
    chance = random.Random(seed)
    ledger = Ledger(shape)
    for number in range(shape.all_nodes):
        request = chance.choice(
            [
                PlacementRequest(1, chance.choice([0.5, 1, 2, 4])),
                PlacementRequest(chance.randint(1, 4)),
                PlacementRequest(2, 2),
            ]
        )
        ledger.allocate(f"j{number}", request, 0.0)
        if chance.random() < 0.45:
            ledger.release(chance.choice(sorted(ledger.allocations)))
    for node in chance.sample(range(shape.all_nodes), shape.all_nodes // 10):
        ledger.set_up(node, False)
    for node in chance.sample(range(shape.all_nodes), shape.all_nodes // 10):
        ledger.index.set_faulty_dies(node, 1 << chance.randrange(16))
    return ledger


def naive_bits(mask: int, most: int) -> list[int]:
    return [place for place in range(mask.bit_length()) if mask >> place & 1][:most]


def test_the_lowest_bits_of_masks_of_any_width() -> None:
    chance = random.Random(3)
    for width in (1, 61, WORD_BITS, WORD_BITS + 1, 5 * WORD_BITS):
        for share in (1, 20):
            mask = sum(1 << place for place in range(width) if not chance.randrange(share))
            for most in (0, 1, 7, width):
                assert low_bits(mask, most) == naive_bits(mask, most)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("per", [0.5, 1, 3])
def test_nodes_in_use_with_room(seed: int, per: float) -> None:
    index = used(seed, ClusterShape(12, 3, 4)).index
    roomy = {node for node in range(index.shape.all_nodes) if has_room(index, node, per)}
    whole = {c * index.nodes + o for c, mask in enumerate(index.whole) for o in index.offsets(mask)}
    assert roomy - whole
    assert set(low_bits(index.partly_used_nodes(per), index.shape.all_nodes)) == roomy - whole


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("within", ["", "cabinet", "supernode"])
def test_a_gang_of_parts_lies_where_trying_every_scope_puts_it(seed: int, within: str) -> None:
    """By the fewest cabinets, then the fewest whole nodes, of the first few scopes that hold it."""
    ledger = used(seed, ClusterShape(12, 3, 4))
    index, chance, found = ledger.index, random.Random(seed), 0
    for _ in range(60):
        request = PlacementRequest(
            chance.randint(2, 4 if within == "cabinet" else 9), chance.choice([0.5, 1, 2, 4, 6]), within
        )
        places: list[tuple[int, int, int, Placement]] = []
        for number, scope in enumerate(candidate_domains.partly_used_scopes(index, request)):
            place = choose_in_scope(ledger, request, scope, AffinityFilter(ledger, request))
            if place is not None:
                whole = sum(index.whole[cabinet].bit_count() for cabinet in scope)
                places.append((len(place.cabinets(index.nodes)), whole, number, place))
            if len(places) == CANDIDATES:
                break
        if places:
            found += 1
            assert ledger.choose(request) == min(places, key=lambda entry: entry[:3])[3]
        elif within:
            assert ledger.choose(request) is None
    assert found
