"""What a plan says is true: what it names helps, nothing smaller would, and the ledger is as it was."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from benchmarks.placement import wish_of
from matrixresource.capacity import planning
from matrixresource.capacity.ledger import Ledger
from matrixresource.capacity.shape import Shape
from matrixresource.capacity.wishes import Rule, Wish


def busy(seed: int, shape: Shape) -> Ledger:
    """A machine full of random tenants, some of whom have left, and a node or two down."""
    chance = random.Random(seed)
    ledger = Ledger(shape)
    for number in range(40):
        npus = chance.choice([1, 2, 4, 8, 8, 16, 24])
        event = {"npus": npus, "lease_s": chance.randint(10, 1000)}
        ledger.allocate(f"t{number}", wish_of(event, 0.0), 0.0)
    for name in chance.sample(sorted(ledger.held), len(ledger.held) // 5):
        ledger.release(name)
    ledger.fail(chance.randrange(shape.all_nodes))
    return ledger


def fits_without(ledger: Ledger, names: tuple[str, ...], wish: Wish) -> bool:
    with planning.trial(ledger) as released:
        for name in names:
            released(name)
        return ledger.choose(wish) is not None


@pytest.mark.parametrize("seed", range(12))
def test_what_a_refusal_names_is_true(seed: int) -> None:
    ledger = busy(seed, Shape(1, 4, 4))
    before = ledger.index.state()
    wish = Wish(
        2 + seed % 3, within="cabinet" if seed % 2 else "", spread=Rule("cabinet", 1) if seed % 5 == 0 else None
    )
    said = planning.answer(ledger, wish, 5.0)
    assert ledger.index.state() == before
    if said.place is not None:
        return
    assert said.why
    assert all(domain.short > 0 or domain.obstacles for domain in said.why)
    for change in said.changes:
        if change.kind == "fewer":
            assert ledger.choose(Wish(change.nodes, within=wish.within, spread=wish.spread)) is not None
        if change.kind == "release":
            assert fits_without(ledger, change.names, wish)
            for one in change.names:
                assert not fits_without(ledger, tuple(name for name in change.names if name != one), wish)
    if said.earliest is not None:
        gone = tuple(name for name, held in ledger.held.items() if held.wish.end <= said.earliest)
        assert fits_without(ledger, gone, wish)
        sooner = tuple(name for name, held in ledger.held.items() if held.wish.end < said.earliest)
        assert not fits_without(ledger, sooner, wish)


@pytest.mark.parametrize("seed", range(16))
def test_no_smaller_release_would_do(seed: int) -> None:
    """At a size where every set of tenants can be tried."""
    ledger = busy(seed + 100, Shape(1, 2, 3))
    wish = Wish(2, within="cabinet")
    said = planning.answer(ledger, wish, 0.0)
    release = next((change for change in said.changes if change.kind == "release"), None)
    if said.place is not None or release is None:
        return
    for count in range(1, len(ledger.held) + 1):
        for names in combinations(sorted(ledger.held), count):
            if planning.npus_of(ledger, list(names)) < release.npus:
                assert not fits_without(ledger, names, wish), names


def test_the_rule_in_the_way_is_named() -> None:
    ledger = Ledger(Shape(1, 2, 4))
    said = planning.answer(ledger, Wish(3, spread=Rule("cabinet", 1)), 0.0)
    assert said.place is None
    assert [change.rule for change in said.changes if change.kind == "relax"] == ["spread"]
    assert [change.nodes for change in said.changes if change.kind == "fewer"] == [2]


def test_a_place_comes_with_what_a_loss_would_take() -> None:
    said = planning.answer(Ledger(Shape(1, 3, 4)), Wish(6), 7.0)
    assert said.earliest == 7.0
    assert said.radius == (("node", 1), ("cabinet", 4), ("supernode", 6))
