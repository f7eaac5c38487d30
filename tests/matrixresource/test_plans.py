"""Plans: what they say would help, helps; and what they name could not be less."""

from __future__ import annotations

import random

import pytest

from matrixresource.inventory import NodeOffer, Snapshot
from matrixresource.placement import Wish
from matrixresource.plans import fits, free_blocks, largest_blocks, plan
from matrixresource.vocabulary.names import NodeName


def moment(seed: int, cabinets: int = 4) -> Snapshot:
    """Nodes held by a few, some lost while they are held, some cordoned."""
    chance = random.Random(seed)
    offers = []
    for cabinet in range(cabinets):
        for node in range(4):
            name = NodeName(f"sn0-c{cabinet:02d}-n{node}")
            holder = chance.choice([None, None, "a", "b", "c", "d", "e"])
            fault = chance.choice([None, None, None, None, "Cordoned", "AgentLost"])
            offers.append(NodeOffer(name, "Held" if holder else fault, holder, fault))
    return Snapshot(tuple(offers), "v1")


def without(snapshot: Snapshot, names: tuple[str, ...]) -> Snapshot:
    return Snapshot(
        tuple(NodeOffer(n.name, n.fault, None, n.fault) if n.holder in names else n for n in snapshot.nodes), "v1"
    )


@pytest.mark.parametrize("seed", range(30))
def test_a_plan_tells_the_truth(seed: int) -> None:
    snapshot = moment(seed)
    wish = Wish(1 + seed % 5, seed % 2, "spread" if seed % 7 == 0 else "pack", "cabinet", seed % 3 == 0)
    said = plan(snapshot, wish)
    assert (said.placed is not None) == fits(snapshot, wish)
    if said.placed is not None:
        assert said.radius()["node"] == 1
        assert said.radius()["supernode"] == wish.nodes
        return
    assert said.refusal
    assert sum(one.nodes for one in said.blocking) == 16
    for change in said.changes:
        if change.kind == "Fewer":
            assert change.nodes is not None
            smaller = Wish(change.nodes, wish.spares, wish.policy, wish.level, wish.required)
            larger = Wish(change.nodes + 1, wish.spares, wish.policy, wish.level, wish.required)
            assert fits(snapshot, smaller)
            assert change.nodes + 1 == wish.nodes or not fits(snapshot, larger)
        elif change.kind == "Preferred":
            assert fits(snapshot, Wish(wish.nodes, wish.spares, wish.policy, wish.level))
        else:
            assert fits(without(snapshot, change.allocations), wish)
            for one in change.allocations:
                kept = tuple(name for name in change.allocations if name != one)
                assert not fits(without(snapshot, kept), wish)


def test_how_the_free_nodes_lie() -> None:
    offers = [NodeOffer(NodeName(f"sn0-c0{c}-n{n}"), None if n < 4 - c else "Held") for c in range(3) for n in range(4)]
    snapshot = Snapshot(tuple(offers), "v1")
    assert free_blocks(snapshot) == {"1": 3, "2": 3, "3": 2, "4": 1}
    assert largest_blocks(snapshot) == {"cabinet": 4, "supernode": 9}
