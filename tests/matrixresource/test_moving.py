"""Who stays and who comes when an allocation is to lie elsewhere, as tables, and what holds of every move."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixresource.inventory import NodeOffer, Snapshot
from matrixresource.moving import Held, Move, begun, plan_move
from matrixresource.placement import Wish
from matrixresource.vocabulary.errors import InsufficientCapacity
from matrixresource.vocabulary.names import NodeName

NODES = [NodeName.of(0, cabinet, node) for cabinet in range(12) for node in range(4)]


def at(*places: str) -> list[NodeName]:
    """ "3/1" is node 1 of cabinet 3."""
    return [NodeName.of(0, int(place.split("/")[0]), int(place.split("/")[1])) for place in places]


def world(ours: list[NodeName], others: list[NodeName] = []) -> Snapshot:  # noqa: B006
    held = {*ours, *others}
    return Snapshot(tuple(NodeOffer(name, "Held" if name in held else None) for name in NODES))


def held(members: list[NodeName], successors: dict[NodeName, int] | None = None, unfit: list[NodeName] = []) -> Held:  # noqa: B006
    coming = successors or {}
    return Held({node: rank for rank, node in enumerate(members)}, coming, frozenset({*members, *coming} - {*unfit}))


CABINET = at("5/0", "5/1", "5/2", "5/3")
APART = at("0/0", "1/0", "2/0", "3/0")


@pytest.mark.parametrize(
    ("sentence", "members", "wish", "coming"),
    [
        ("packed already, nobody moves", CABINET, Wish(4), 0),
        ("apart already, nobody moves", APART, Wish(4, policy="spread"), 0),
        ("a cabinet spreads: one stays", CABINET, Wish(4, policy="spread"), 3),
        ("those apart are packed: one stays", APART, Wish(4), 3),
        ("a required cabinet that is kept already", CABINET, Wish(4, required=True), 0),
        ("two of one cabinet stay, two come", at("0/0", "0/1", "2/0", "3/0"), Wish(4, required=True), 2),
        ("inside the supernode everything is as good", APART, Wish(4, level="supernode"), 0),
        ("grown on the way", CABINET[:2], Wish(4), 2),
        ("shrunk on the way", CABINET, Wish(2), 0),
    ],
)
def test_a_move_takes_as_many_nodes_as_it_must(sentence, members, wish, coming):
    members = members[: wish.nodes]
    move = plan_move(world(members), held(members), wish)
    assert len(move.coming) == coming, sentence
    for node, rank in enumerate(members):
        if rank in move.ranks:
            assert move.ranks[rank] == node, "who stays keeps its rank"


def test_a_move_begun_is_found_again_and_one_that_broke_is_planned_anew():
    move = plan_move(world(CABINET), held(CABINET), Wish(4, policy="spread"))
    taken = held(CABINET, dict(move.coming))
    assert plan_move(world([*CABINET, *move.coming]), taken, Wish(4, policy="spread")) == move
    assert begun(taken) == dict(move.ranks)
    lost = next(iter(move.coming))
    broken = held(CABINET, dict(move.coming), unfit=[lost])
    again = plan_move(world([*CABINET, *move.coming]), broken, Wish(4, policy="spread"))
    assert lost not in again.ranks
    assert set(move.coming) - {lost} <= set(again.coming), "the others are still wanted"


def test_what_cannot_be_had_is_refused():
    others = [NodeName.of(0, cabinet, 3) for cabinet in range(12)]
    with pytest.raises(InsufficientCapacity, match="no single cabinet has 4 free nodes"):
        plan_move(world(APART, others), held(APART), Wish(4, required=True))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(NODES), min_size=1, max_size=12, unique=True),
    st.lists(st.sampled_from(NODES), max_size=30, unique=True),
    st.sampled_from(["pack", "spread"]),
    st.sampled_from(["cabinet", "supernode"]),
    st.booleans(),
    st.integers(0, 4),
)
def test_every_move_is_whole_stable_and_no_worse(members, others, policy, level, required, more):
    others = [node for node in others if node not in members]
    wish = Wish(len(members) + more, policy=policy, level=level, required=required)
    try:
        move: Move = plan_move(world(members, others), held(members), wish)
    except InsufficientCapacity:
        return
    assert sorted(move.ranks.values()) == list(range(wish.nodes))
    assert not set(move.ranks) & set(others)
    assert set(move.coming) == set(move.ranks) - set(members)
    taken = held(members, dict(move.coming))
    assert plan_move(world([*members, *move.coming], others), taken, wish) == move, "asked again, it is the same"
    if level == "cabinet" and not more:
        before, after = (Counter(node.cabinet for node in nodes) for nodes in (members, move.ranks))
        if policy == "pack":
            assert len(after) <= len(before)
        else:
            assert max(after.values()) <= max(before.values())
