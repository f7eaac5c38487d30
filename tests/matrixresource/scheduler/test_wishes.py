"""Preferences are kept where they fit; what must be avoided is avoided; nothing can be held twice."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.cluster_shape import Shape
from matrixresource.scheduler.model.request import Place, Rule, Wish

NEAR = Rule("cabinet", 0, ("first",), required=False)
AVOIDED = frozenset(range(6))


def nodes_of(ledger: Ledger, place: Place) -> set[int]:
    """Every node on which it holds anything."""
    masks = place.whole + place.spares
    found = {c * ledger.shape.nodes + o for c, mask in masks for o in ledger.index.offsets(mask)}
    return found | {node for node, _ in [*place.parts, *place.cpus, *place.mem]}


@pytest.mark.parametrize(
    ("sentence", "wish", "counts"),
    [
        ("a preferred spread is even where there is room", Wish(6, spread=Rule(required=False)), [2, 2, 2]),
        (
            "and as even as it can be where there is not",
            Wish(6, avoid=frozenset({8, 9, 10}), spread=Rule(required=False)),
            [3, 3],
        ),
        ("a preferred level is kept", Wish(3, within="supernode", prefers="cabinet"), [3]),
        ("a preferred level is given up", Wish(5, within="supernode", prefers="cabinet"), [1, 4]),
        ("a required level is not", Wish(5, within="cabinet", prefers="supernode"), None),
        ("what is not there counts for nothing", Wish(2, near=Rule("cabinet", 0, ("ghost",))), [2]),
    ],
)
def test_preferences(sentence: str, wish: Wish, counts: list[int] | None) -> None:
    ledger = Ledger(Shape(1, 3, 4))
    place, _ = ledger.allocate("new", wish, 0.0)
    found = sorted(mask.bit_count() for _, mask in place.whole) if place else None
    assert found == counts, sentence


def test_preferred_neighbours_are_given_up_only_when_they_must_be() -> None:
    ledger = Ledger(Shape(1, 2, 4))
    first, _ = ledger.allocate("first", Wish(3), 0.0)
    beside, _ = ledger.allocate("beside", Wish(1, near=NEAR), 0.0)
    assert first is not None
    assert beside is not None
    assert beside.cabinets(4) == first.cabinets(4)
    elsewhere, _ = ledger.allocate("elsewhere", Wish(2, near=NEAR), 0.0)
    assert elsewhere
    assert ledger.choose(Wish(1, near=Rule("cabinet", 0, ("first",)))) is None


@pytest.mark.parametrize(
    "wish",
    [
        Wish(2),
        Wish(1, 4),
        Wish(1, 0.5),
        Wish(2, spares=1),
        Wish(3, 2, spares=1),
        Wish(0, cpus=9, mem=2000),
        Wish(2, spread=Rule("cabinet", 1)),
        Wish(2, prefers="cabinet"),
    ],
)
def test_what_is_avoided_is_not_taken(wish: Wish) -> None:
    ledger = Ledger(Shape(1, 3, 4))
    before = ledger.index.state()
    place, _ = ledger.allocate("new", replace(wish, avoid=AVOIDED), 0.0)
    assert place is not None
    assert nodes_of(ledger, place)
    assert not nodes_of(ledger, place) & AVOIDED
    ledger.release("new")
    assert ledger.index.state() == before


def test_a_repair_avoids_what_the_request_avoided() -> None:
    ledger = Ledger(Shape(1, 2, 2))
    ledger.allocate("gang", Wish(2, avoid=frozenset({2})), 0.0)
    moved, lost = ledger.fail(0)
    assert lost == []
    assert nodes_of(ledger, moved["gang"]) == {1, 3}


@pytest.mark.parametrize(
    "place",
    [
        Place(whole=[(0, 0b11)]),
        Place(parts=[(0, 1)]),
        Place(spares=[(0, 1)]),
        Place(cpus=[(1, 4)]),
        Place(mem=[(1, 1000)]),
    ],
)
def test_nothing_is_held_twice(place: Place) -> None:
    ledger = Ledger(Shape(1, 1, 4))
    ledger.hold("one", Wish(1), Place(whole=[(0, 1)], cpus=[(1, 1)], mem=[(1, 600)]), 0.0)
    before: Any = ledger.index.state(), list(ledger.index.cpus), list(ledger.index.mem)
    with pytest.raises(ValueError, match="held already"):
        ledger.hold("two", Wish(1), place, 0.0)
    with pytest.raises(ValueError, match="held already"):
        ledger.hold("one", Wish(1), Place(whole=[(0, 8)]), 0.0)
    assert before == (ledger.index.state(), list(ledger.index.cpus), list(ledger.index.mem))


def test_who_holds_a_closed_node_keeps_it_through_trials() -> None:
    ledger = Ledger(Shape(1, 1, 4))
    ledger.allocate("gang", Wish(2), 0.0)
    ledger.set_up(0, False)
    place = ledger.held["gang"].place
    ledger.give("gang", place)
    ledger.take("gang", place)
    assert ledger.index.state() == ledger.rebuilt().state()


def test_another_number_of_nodes_changes_nothing_else() -> None:
    rule = Rule("node", 1, ("other",), required=False)
    wish = Wish(
        4, 2, "cabinet", 2, rule, rule, rule, 1, 2, 3, 4, True, 5.0, 6.0, frozenset({7}), "cabinet", cell=2
    )  # fmt: skip
    plain = Wish(1)
    kept = {field.name for field in fields(Wish) if getattr(wish, field.name) == getattr(plain, field.name)}
    assert not kept, "every field differs from what it is by default"
    assert wish.with_nodes(6) == replace(wish, nodes=6)
