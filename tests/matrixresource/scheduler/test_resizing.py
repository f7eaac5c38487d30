"""Changes in place: what can stay stays, ranks go from the end, a spare steps in, and a refusal leaves no trace."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

import pytest

from benchmarks.allocator.ledger_verbs import grow, move, rebuild_index, resize_allocation, shrink
from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.placement_arithmetic import members_of, nodes_in
from matrixresource.scheduler.model.request import DomainConstraint, Placement, PlacementRequest


def crowded(seed: int) -> tuple[Ledger, random.Random]:
    """A machine of two supernodes, six cabinets and 18 nodes, with a gang "it" among others."""
    chance = random.Random(seed)
    ledger = Ledger(ClusterShape(2, 3, 3))
    for number in range(chance.randint(3, 9)):
        ledger.allocate(f"t{number}", PlacementRequest(chance.choice([1, 1, 2]), chance.choice([2, 8, 8])), 0.0)
    assert ledger.allocate("it", PlacementRequest(chance.randint(2, 4), required_domain="supernode"), 0.0)[0]
    for name in chance.sample([name for name in sorted(ledger.allocations) if name != "it"], 2):
        ledger.release(name)
    ledger.set_up(chance.randrange(18), False)
    return ledger, chance


def may_have(ledger: Ledger, request: PlacementRequest, own: set[int], nodes: tuple[int, ...]) -> bool:
    """Written out again, for whole nodes: free or its own, and in keeping with the rules."""
    free = {node for node in range(18) if ledger.index.whole[node // 3] >> node % 3 & 1}
    if not set(nodes) <= free | own:
        return False
    if (
        request.required_domain
        and len({node // (3 if request.required_domain == "cabinet" else 9) for node in nodes}) > 1
    ):
        return False
    if request.spread:
        each = 3 if request.spread.over == "cabinet" else 9
        if max(Counter(node // each for node in nodes).values()) > request.spread.most:
            return False
    if any(count % request.cabinet_block for count in Counter(node // 3 for node in nodes).values()):
        return False
    if any(count % request.supernode_block for count in Counter(node // 9 for node in nodes).values()):
        return False
    size = 3 if request.required_domain == "cabinet" else 9
    return sum(node // size in {other // size for other in nodes} for node in free - set(nodes)) >= request.spares


def another(chance: random.Random, nodes: int, spares: int = 0) -> PlacementRequest:
    block = 2 if nodes % 2 == 0 and chance.random() < 0.4 else 1
    cell = chance.choice([size for size in (1, 2, 3) if nodes % size == 0])
    within = chance.choice(["", "", "supernode", "cabinet"])
    spread = DomainConstraint(chance.choice(["cabinet", "cabinet", "supernode"]), chance.choice([1, 2, 3]))
    return PlacementRequest(
        nodes, 8, within, block, spread if chance.random() < 0.4 else None, spares=spares, cabinet_block=cell
    )


@pytest.mark.parametrize("seed", range(150))
def test_a_move_keeps_as_many_nodes_as_any_could(seed: int) -> None:
    ledger, chance = crowded(seed)
    own = members_of(ledger.index, ledger.allocations["it"].place)
    up = {node for node in own if ledger.index.up[node]}
    request = another(chance, chance.randint(1, 6))
    most = max(
        (
            len(own & set(nodes))
            for nodes in combinations(range(18), request.nodes)
            if may_have(ledger, request, up, nodes)
        ),
        default=None,
    )
    place = move(ledger, "it", request)
    assert (len(own & members_of(ledger.index, place)) if place else None) == most
    assert ledger.index.state() == rebuild_index(ledger).state()


@pytest.mark.parametrize("seed", range(150))
def test_grows_whenever_possible(seed: int) -> None:
    ledger, chance = crowded(seed)
    own = members_of(ledger.index, ledger.allocations["it"].place)
    request = another(chance, len(own) + chance.randint(1, 3), chance.choice([0, 0, 1, 3, 6]))
    others = [node for node in range(18) if node not in own]
    can = any(may_have(ledger, request, own, (*own, *more)) for more in combinations(others, request.nodes - len(own)))
    before = ledger.index.state(), ledger.allocations["it"].request
    place = grow(ledger, "it", request)
    assert (place is not None) == can
    if place is None:
        assert (ledger.index.state(), ledger.allocations["it"].request) == before
    else:
        assert own <= members_of(ledger.index, place)


def test_added_members_stay_in_the_same_domain() -> None:
    ledger = Ledger(ClusterShape(2, 3, 4))
    ledger.allocate("it", PlacementRequest(3), 0.0)
    ledger.allocate("there", PlacementRequest(4, required_domain="cabinet"), 0.0)
    place = grow(ledger, "it", PlacementRequest(5, spares=1))
    assert place is not None
    assert place.whole == [(0, 0b1111), (2, 0b0001)]
    assert place.spares == [(2, 0b0010)]


def test_a_part_grows_on_its_node_and_to_all_of_it() -> None:
    ledger = Ledger(ClusterShape(1, 1, 2))
    ledger.allocate("it", PlacementRequest(1, 0.5), 0.0)
    ledger.allocate("beside", PlacementRequest(1, 2), 0.0)
    place = grow(ledger, "it", PlacementRequest(1, 3))
    assert place is not None
    assert [(node, dies.bit_count()) for node, dies in place.parts] == [(0, 6)]
    assert grow(ledger, "it", PlacementRequest(1, 8)) is None
    ledger.release("beside")
    whole = grow(ledger, "it", PlacementRequest(1, 8))
    assert whole is not None
    assert whole.whole == [(0, 1)]


def test_shrinking_removes_the_highest_ranks() -> None:
    ledger = Ledger(ClusterShape(1, 2, 4))
    ledger.allocate("it", PlacementRequest(5, spares=2, cpus=6, mem=100), 0.0)
    place = shrink(ledger, "it", PlacementRequest(2, spares=1, cpus=5), [4, 2, 0, 1, 3])
    assert members_of(ledger.index, place) == {2, 4}
    assert len(nodes_in(ledger.index, place.spares)) == 1
    assert (sum(n for _, n in place.cpus), place.mem) == (5, [])
    with pytest.raises(ValueError, match="names 1 of 2"):
        shrink(ledger, "it", PlacementRequest(2, spares=1, cpus=5), [4])
    with pytest.raises(ValueError, match="must stay, but"):
        shrink(ledger, "it", PlacementRequest(1, spares=1, cpus=5), [7])
    with pytest.raises(ValueError, match="not shrinking"):
        shrink(ledger, "it", PlacementRequest(1, spares=1, cpus=6), [2])
    assert ledger.allocations["it"].place is place


def test_more_of_one_thing_and_less_of_another() -> None:
    ledger = Ledger(ClusterShape(1, 2, 4))
    ledger.allocate("it", PlacementRequest(4, spares=2), 0.0)
    place = resize_allocation(ledger, "it", PlacementRequest(2, spares=1, cpus=8), [3, 2, 1, 0])
    assert place is not None
    assert members_of(ledger.index, place) == {2, 3}
    assert sum(n for _, n in place.cpus) == 8
    wider = resize_allocation(ledger, "it", PlacementRequest(6, cpus=2), [3, 2])
    assert wider is not None
    assert {2, 3} < members_of(ledger.index, wider)
    assert (wider.spares, sum(n for _, n in wider.cpus)) == ([], 2)


def test_replacement_by_spare_then_free_node_then_none() -> None:
    ledger = Ledger(ClusterShape(1, 2, 3))
    ledger.allocate("it", PlacementRequest(2, required_domain="cabinet", spares=1), 0.0)
    place = ledger.replace("it", 0)
    assert place == Placement(whole=[(0, 0b110)])
    again = ledger.replace("it", 1)
    assert again == Placement(whole=[(0, 0b101)])
    assert ledger.replace("it", 0, excluded_nodes=frozenset({1})) is None
    assert ledger.allocations["it"].place == again
    assert ledger.refill("it").spares == [(0, 0b010)]
    with pytest.raises(ValueError, match="has nothing on node"):
        ledger.replace("it", 5)


def test_released_spare_is_replaced() -> None:
    ledger = Ledger(ClusterShape(1, 1, 4))
    ledger.allocate("it", PlacementRequest(2, spares=1), 0.0)
    place = ledger.replace("it", 2)
    assert place == Placement(whole=[(0, 0b0011)], spares=[(0, 0b1000)])
