"""Preferences are kept where they fit; what must be avoided is avoided; nothing can be held twice."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from benchmarks.allocator.ledger_verbs import hold, rebuild_index
from benchmarks.allocator.node_repair import repair
from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.request import DomainConstraint, Placement, PlacementRequest

NEAR = DomainConstraint("cabinet", 0, ("first",), required=False)
AVOIDED = frozenset(range(6))


def nodes_of(ledger: Ledger, place: Placement) -> set[int]:
    """Every node on which it holds anything."""
    masks = place.whole + place.spares
    found = {c * ledger.shape.nodes + o for c, mask in masks for o in ledger.index.offsets(mask)}
    return found | {node for node, _ in [*place.parts, *place.cpus, *place.mem]}


@pytest.mark.parametrize(
    ("sentence", "spec", "counts"),
    [
        (
            "a preferred spread is even where there is room",
            PlacementRequest(6, spread=DomainConstraint(required=False)),
            [2, 2, 2],
        ),
        (
            "and as even as it can be where there is not",
            PlacementRequest(6, excluded_nodes=frozenset({8, 9, 10}), spread=DomainConstraint(required=False)),
            [3, 3],
        ),
        (
            "a preferred level is kept",
            PlacementRequest(3, required_domain="supernode", preferred_domain="cabinet"),
            [3],
        ),
        (
            "a preferred level is given up",
            PlacementRequest(5, required_domain="supernode", preferred_domain="cabinet"),
            [1, 4],
        ),
        ("a required level is not", PlacementRequest(5, required_domain="cabinet", preferred_domain="supernode"), None),
        (
            "what is not there counts for nothing",
            PlacementRequest(2, affinity=DomainConstraint("cabinet", 0, ("ghost",))),
            [2],
        ),
    ],
)
def test_preferences(sentence: str, spec: PlacementRequest, counts: list[int] | None) -> None:
    ledger = Ledger(ClusterShape(1, 3, 4))
    place, _ = ledger.allocate("new", spec, 0.0)
    found = sorted(mask.bit_count() for _, mask in place.whole) if place else None
    assert found == counts, sentence


def test_preferred_affinity_is_relaxed_only_when_necessary() -> None:
    ledger = Ledger(ClusterShape(1, 2, 4))
    first, _ = ledger.allocate("first", PlacementRequest(3), 0.0)
    beside, _ = ledger.allocate("beside", PlacementRequest(1, affinity=NEAR), 0.0)
    assert first is not None
    assert beside is not None
    assert beside.cabinets(4) == first.cabinets(4)
    elsewhere, _ = ledger.allocate("elsewhere", PlacementRequest(2, affinity=NEAR), 0.0)
    assert elsewhere
    assert ledger.choose(PlacementRequest(1, affinity=DomainConstraint("cabinet", 0, ("first",)))) is None


@pytest.mark.parametrize(
    "spec",
    [
        PlacementRequest(2),
        PlacementRequest(1, 4),
        PlacementRequest(1, 0.5),
        PlacementRequest(2, spares=1),
        PlacementRequest(3, 2, spares=1),
        PlacementRequest(0, cpus=9, mem=2000),
        PlacementRequest(2, spread=DomainConstraint("cabinet", 1)),
        PlacementRequest(2, preferred_domain="cabinet"),
    ],
)
def test_excluded_nodes_are_not_used(spec: PlacementRequest) -> None:
    ledger = Ledger(ClusterShape(1, 3, 4))
    before = ledger.index.state()
    place, _ = ledger.allocate("new", replace(spec, excluded_nodes=AVOIDED), 0.0)
    assert place is not None
    assert nodes_of(ledger, place)
    assert not nodes_of(ledger, place) & AVOIDED
    ledger.release("new")
    assert ledger.index.state() == before


def test_replacement_respects_excluded_nodes() -> None:
    ledger = Ledger(ClusterShape(1, 2, 2))
    ledger.allocate("gang", PlacementRequest(2, excluded_nodes=frozenset({2})), 0.0)
    moved, lost = repair(ledger, 0)
    assert lost == []
    assert nodes_of(ledger, moved["gang"]) == {1, 3}


@pytest.mark.parametrize(
    "place",
    [
        Placement(whole=[(0, 0b11)]),
        Placement(parts=[(0, 1)]),
        Placement(spares=[(0, 1)]),
        Placement(cpus=[(1, 4)]),
        Placement(mem=[(1, 1000)]),
    ],
)
def test_no_double_allocation(place: Placement) -> None:
    ledger = Ledger(ClusterShape(1, 1, 4))
    hold(ledger, "one", PlacementRequest(1), Placement(whole=[(0, 1)], cpus=[(1, 1)], mem=[(1, 600)]), 0.0)
    before: Any = ledger.index.state(), list(ledger.index.cpus), list(ledger.index.mem)
    with pytest.raises(ValueError, match="not free"):
        hold(ledger, "two", PlacementRequest(1), place, 0.0)
    with pytest.raises(ValueError, match="not free"):
        hold(ledger, "one", PlacementRequest(1), Placement(whole=[(0, 8)]), 0.0)
    assert before == (ledger.index.state(), list(ledger.index.cpus), list(ledger.index.mem))


def test_holder_keeps_a_closed_node_through_trials() -> None:
    ledger = Ledger(ClusterShape(1, 1, 4))
    ledger.allocate("gang", PlacementRequest(2), 0.0)
    ledger.set_up(0, False)
    place = ledger.allocations["gang"].place
    ledger.remove_usage("gang", place)
    ledger.add_usage("gang", place)
    assert ledger.index.state() == rebuild_index(ledger).state()


def test_another_number_of_nodes_changes_nothing_else() -> None:
    rule = DomainConstraint("node", 1, ("other",), required=False)
    request = PlacementRequest(
        4, 2, "cabinet", 2, rule, rule, rule, 1, 2, 3, 4, True, 5.0, 6.0, frozenset({7}), "cabinet", cabinet_block=2,
            mem_by_node=((1, 3),),
    )  # fmt: skip
    plain = PlacementRequest(1)
    kept = {
        field.name for field in fields(PlacementRequest) if getattr(request, field.name) == getattr(plain, field.name)
    }
    assert not kept, "every field differs from what it is by default"
    assert request.with_nodes(6) == replace(request, nodes=6)
