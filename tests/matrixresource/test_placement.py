"""Where nodes are placed, as tables on the real layout, and what holds of every placement."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixresource.inventory import NodeOffer, Snapshot
from matrixresource.placement import Wish, place
from matrixresource.vocabulary.errors import InsufficientCapacity
from matrixresource.vocabulary.names import NodeName

NODES = [NodeName.of(0, cabinet, node) for cabinet in range(12) for node in range(4)]


def supernode(*taken: str) -> Snapshot:
    """All 48 nodes, those whose names start with one of `taken` held."""
    return Snapshot(
        tuple(NodeOffer(name, "Held" if any(name.startswith(prefix) for prefix in taken) else None) for name in NODES)
    )


def cabinets(nodes) -> dict[str, int]:
    return dict(sorted(Counter(node.cabinet for node in nodes).items()))


def one_each(count: int) -> dict[str, int]:
    return {f"sn0-c{cabinet:02d}": 1 for cabinet in range(count)}


@pytest.mark.parametrize(
    ("sentence", "snapshot", "wish", "expected"),
    [
        ("one cabinet when it fits", supernode(), Wish(4), {"sn0-c00": 4}),
        ("whole cabinets, then the rest", supernode(), Wish(6), {"sn0-c00": 4, "sn0-c01": 2}),
        ("the smallest cabinet that holds all of it", supernode("sn0-c05-n0", "sn0-c05-n1"), Wish(2), {"sn0-c05": 2}),
        ("the remainder goes where it leaves least", supernode("sn0-c07-n3"), Wish(7), {"sn0-c00": 4, "sn0-c07": 3}),
        ("one cabinet if it must be", supernode("sn0-c00-n0"), Wish(4, required=True), {"sn0-c01": 4}),
        ("spread deals one to a cabinet", supernode(), Wish(3, policy="spread"), one_each(3)),
        ("spread is even", supernode(), Wish(13, policy="spread", required=True), one_each(12) | {"sn0-c00": 2}),
        ("near what is already held", supernode("sn0-c04-n0"), Wish(1, near=(NodeName("sn0-c04-n0"),)), {"sn0-c04": 1}),
    ],
)  # fmt: skip
def test_members_lie_where_the_policy_says(sentence, snapshot, wish, expected):
    assert cabinets(place(snapshot, wish).members) == expected, sentence


def test_spares_come_from_cabinets_already_touched():
    placed = place(supernode(), Wish(6, spares=2))
    assert cabinets(placed.spares) == {"sn0-c01": 2}


@pytest.mark.parametrize(
    ("snapshot", "wish", "message"),
    [
        (supernode("sn0-c0"), Wish(9), "the most one supernode has free is 8"),
        (supernode(), Wish(44, spares=5), "the most one supernode has free is 48"),
        (supernode(), Wish(5, required=True), "the largest has 4"),
        (supernode("sn0-c00-n0"), Wish(48), "has free is 47"),
        (supernode("sn0-c03"), Wish(12, policy="spread", required=True), "spread evenly"),
    ],
)
def test_a_refusal_says_what_stands_in_the_way_per_cabinet(snapshot, wish, message):
    with pytest.raises(InsufficientCapacity, match=message) as refused:
        place(snapshot, wish)
    assert len(refused.value.blocking) == 12
    assert sum(entry["free"] for entry in refused.value.blocking) == len(snapshot.free())


def test_members_never_leave_one_supernode():
    two = Snapshot(tuple(NodeOffer(NodeName.of(s, c, n)) for s in (0, 1) for c in range(12) for n in range(4)))
    assert len({node.supernode for node in place(two, Wish(30)).members}) == 1
    with pytest.raises(InsufficientCapacity):
        place(two, Wish(50))


@settings(max_examples=150, deadline=None)
@given(
    taken=st.sets(st.sampled_from(NODES)),
    nodes=st.integers(1, 48),
    spares=st.integers(0, 4),
    policy=st.sampled_from(["pack", "spread"]),
    required=st.booleans(),
)
def test_a_placement_takes_free_nodes_once_and_never_more_cabinets_than_packing_needs(
    taken, nodes, spares, policy, required
):
    snapshot = Snapshot(tuple(NodeOffer(name, "Held" if name in taken else None) for name in NODES))
    try:
        placed = place(snapshot, Wish(nodes, spares, policy, "cabinet", required))
    except InsufficientCapacity:
        assert required or len(NODES) - len(taken) < nodes + spares
        return
    chosen = [*placed.members, *placed.spares]
    assert len(placed.members) == nodes
    assert len(placed.spares) == spares
    assert len(set(chosen)) == len(chosen)
    assert not set(chosen) & taken
    if policy == "pack":
        free = sorted(Counter(n.cabinet for n in NODES if n not in taken).values(), reverse=True)
        fewest = next(count for count in range(1, 13) if sum(free[:count]) >= nodes)
        assert len(cabinets(placed.members)) == fewest
