"""What a plan says is true: what it names helps, nothing smaller would, and the ledger is as it was."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.allocator.ledger_verbs import hold, rebuild_index
from benchmarks.allocator.node_repair import repair
from benchmarks.placement import request_of
from matrixresource.scheduler.changes.trial import trial
from matrixresource.scheduler.explain import explain
from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.request import DomainConstraint, Placement, PlacementRequest
from matrixresource.topology import Supernode
from tests.matrixresource.scheduler import exhaustive


@st.composite
def machines(draw: st.DrawFn) -> Ledger:
    """Six nodes in three cabinets, up to seven tenants some of whom have left, and perhaps a node that is down."""
    ledger = Ledger(ClusterShape(1, 3, 2))
    kinds = [{"npus": 0.5}, {"npus": 1}, {"npus": 2}, {"npus": 5}, {"npus": 8}, {"npus": 16}, {"npus": 8, "spares": 1}]
    for number, event in enumerate(draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=9))):
        ledger.allocate(f"t{number}", request_of(event, 0.0), 0.0)
        ledger.allocations.get(f"t{number}", next(iter(ledger.allocations.values()))).request.lease_end = draw(
            st.integers(5, 50)
        )
    for name in draw(st.sets(st.sampled_from(sorted(ledger.allocations)), max_size=3)):
        ledger.release(name)
    if draw(st.booleans()):
        ledger.set_up(draw(st.integers(0, 5)), False)
    for node in draw(st.sets(st.integers(0, 5), max_size=2)):
        ledger.index.set_faulty_dies(node, draw(st.sampled_from([0b1, 0b1100, 0xFFF0])))
    return ledger


@st.composite
def specs(draw: st.DrawFn, ledger: Ledger) -> PlacementRequest:
    asked: dict[str, Any] = {
        "nodes": draw(st.integers(1, 5)),
        "required_domain": draw(st.sampled_from(["", "cabinet"])),
    }
    asked["npus_per_node"] = draw(st.sampled_from([8, 8, 8, 4, 7, 0.5]))
    if draw(st.integers(0, 2)) == 0:
        asked["spread"] = DomainConstraint("cabinet", draw(st.integers(1, 2)))
    if draw(st.integers(0, 2)) == 0:
        asked["spares"] = draw(st.integers(1, 2))
    asked["cabinet_block"] = draw(st.sampled_from([1, 2])) if asked["nodes"] % 2 == 0 else 1
    if ledger.allocations and draw(st.integers(0, 3)) == 0:
        asked[draw(st.sampled_from(["anti_affinity", "affinity"]))] = DomainConstraint(
            "cabinet", 0, (draw(st.sampled_from([*ledger.allocations])),)
        )
    return PlacementRequest(**asked)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_suggestions_are_sufficient_and_minimal(data: st.DataObject) -> None:
    """Against every possibility, tried."""
    ledger = data.draw(machines())
    request = data.draw(specs(ledger))
    before = ledger.index.state(), list(ledger.index.dies), list(ledger.allocations)
    reported = explain.explain_placement(ledger, request, 1.0, explain.THOROUGH)
    assert (ledger.index.state(), ledger.index.dies, list(ledger.allocations)) == before
    assert (reported.place is not None) == exhaustive.fits(ledger, request)
    if reported.place is not None:
        return
    assert reported.diagnoses
    assert all(domain.short or domain.obstacles for domain in reported.diagnoses)
    found = {change.kind: change for change in reported.suggestions}
    assert (found["fewer"].nodes if "fewer" in found else 0) == exhaustive.most_nodes(ledger, request)
    relaxed: dict[str, str] = {}
    for rule, to, changed in exhaustive.weaker(request):
        if rule not in relaxed and exhaustive.fits(ledger, changed):
            relaxed[rule] = to
    assert {change.rule: change.to for change in reported.suggestions if change.kind == "relax"} == relaxed
    least = exhaustive.least_release(ledger, request)
    assert (found["release"].npus if "release" in found else None) == least
    if least is not None:
        assert found["release"].exact
        assert exhaustive.fits(ledger, request, found["release"].names)
    leaving = sorted({allocation.request.lease_end for allocation in ledger.allocations.values()})
    fitting = (
        t
        for t in leaving
        if exhaustive.fits(ledger, request, (n for n, h in ledger.allocations.items() if h.request.lease_end <= t))
    )
    assert reported.earliest_start == next(fitting, None)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([1, 2, 3, 4, 6])), min_size=2, max_size=6),
    st.integers(1, 3),
    st.sampled_from(["", "cabinet"]),
    st.sampled_from([1, 1, 2]),
)
def test_defragmentation_moves_are_minimal(tenants: list[tuple[int, int]], nodes: int, within: str, cell: int) -> None:
    ledger = Ledger(ClusterShape(1, 3, 2))
    for number, (node, npus) in enumerate(tenants):
        free = ledger.index.free[node]
        if npus <= free:
            mask = ((1 << 2 * npus) - 1) << 2 * (8 - free)
            hold(ledger, f"t{number}", PlacementRequest(1, npus), Placement(parts=[(node, mask)]), 0.0)
    request = PlacementRequest(nodes, required_domain=within, cabinet_block=cell)
    reported = explain.explain_placement(ledger, request, 0.0, explain.THOROUGH)
    if reported.place is None:
        moved = next((change for change in reported.suggestions if change.kind == "move"), None)
        if cell == 1 or within or (moved and moved.exact):
            assert (moved.npus if moved else None) == exhaustive.least_moved(ledger, request)
        elif moved:
            assert (found := exhaustive.least_moved(ledger, request)) is not None
            assert moved.npus >= found


def busy(seed: int, shape: ClusterShape) -> Ledger:
    """A machine full of random tenants, some of whom have left, and a node down."""
    chance = random.Random(seed)
    ledger = Ledger(shape)
    for number in range(shape.all_nodes):
        npus = chance.choice([1, 2, 4, 8, 8, 16, 24])
        ledger.allocate(f"t{number}", request_of({"npus": npus, "lease_s": chance.randint(10, 1000)}, 0.0), 0.0)
    for name in chance.sample(sorted(ledger.allocations), len(ledger.allocations) // 5):
        ledger.release(name)
    repair(ledger, chance.randrange(shape.all_nodes))
    return ledger


@pytest.mark.parametrize("shape", [ClusterShape(1, 12, 4), ClusterShape(2, 3, 4)])
@pytest.mark.parametrize("seed", range(8))
def test_quick_search_is_sufficient_and_minimal(seed: int, shape: ClusterShape) -> None:
    ledger = busy(seed, shape)
    spread = DomainConstraint("cabinet", 1) if seed % 4 == 0 else None
    request = PlacementRequest(2 + seed % 9, required_domain=("cabinet", "supernode", "")[seed % 3], spread=spread)
    reported = explain.explain_placement(ledger, request, 5.0)
    assert ledger.index.state() == rebuild_index(ledger).state()
    for change in reported.suggestions:
        with trial(ledger) as released:
            assert change.kind != "release" or released.fits_without(change.names, request)
            for one in change.names if change.kind == "release" else ():
                assert not released.fits_without((name for name in change.names if name != one), request)
    if reported.place is None and reported.earliest_start is not None:
        with trial(ledger) as released:
            left = [
                name
                for name, allocation in ledger.allocations.items()
                if allocation.request.lease_end <= reported.earliest_start
            ]
            sooner = [name for name in left if ledger.allocations[name].request.lease_end < reported.earliest_start]
            assert released.fits_without(left, request)
            assert not released.fits_without(sooner, request)


def test_plan_lists_preemption_victims() -> None:
    ledger = Ledger(ClusterShape(1, 1, 2))
    for name, npus, priority in (("low", 4, 1), ("lower", 3, 0), ("high", 8, 3)):
        ledger.allocate(name, request_of({"npus": npus, "prio": priority}, 0.0), 0.0)
    reported = explain.explain_placement(ledger, PlacementRequest(1, 5, priority=2), 0.0)
    assert [change.names for change in reported.suggestions if change.kind == "preempt"] == [("low",)]
    assert [change.names for change in reported.suggestions if change.kind == "release"] == [("low",)]
    assert sorted(ledger.allocations) == ["high", "low", "lower"]
    reported = explain.explain_placement(ledger, PlacementRequest(2, priority=2), 0.0)
    assert [change.kind for change in reported.suggestions] == ["release"]


def test_sockets_and_memory_are_reported_apart() -> None:
    ledger = Ledger(ClusterShape(1, 1, 2))
    ledger.allocate("pool", PlacementRequest(0, cpus=5, mem=1000), 0.0)
    reported = explain.explain_placement(ledger, PlacementRequest(0, cpus=4, mem=3000), 0.0)
    assert [domain.obstacles for domain in reported.diagnoses] == [{"cpus": 1, "mem": 928}]
    assert [(c.kind, c.cpus, c.mem) for c in reported.suggestions if c.kind == "fewer"] == [("fewer", 3, 2072)]
    assert [(c.names, c.exact) for c in reported.suggestions if c.kind == "release"] == [(("pool",), True)]


def test_placement_reports_its_blast_radius() -> None:
    drawn = [Supernode().topology]
    reported = explain.explain_placement(Ledger(ClusterShape(1, 3, 4)), PlacementRequest(6), 7.0, topologies=drawn)
    assert reported.earliest_start == 7.0
    assert [(loss.over, loss.members, round(loss.ub_share, 4)) for loss in reported.blast_radius] == [
        ("node", 1, 0.1667),
        ("cabinet", 4, 0.6667),
        ("supernode", 6, 1.0),
        ("l1", 0, 0.0238),  # one of seven sub-planes of one node of six
        ("l2", 0, 0.0089),  # one of 112 uplinks of every node
        ("communication-cabinet", 0, 0.25),
    ]


def test_a_cell_waits_for_nodes_of_one_cabinet() -> None:
    ledger = Ledger(ClusterShape(1, 3, 2))
    for number, end in enumerate((30.0, 10.0, 20.0)):
        hold(ledger, f"t{number}", PlacementRequest(1, lease_end=end), Placement(whole=[(number, 0b01)]), 0.0)
    reported = explain.explain_placement(ledger, PlacementRequest(2, cabinet_block=2), 1.0)
    assert (reported.earliest_start, reported.diagnoses[0].short, reported.diagnoses[0].obstacles) == (
        10.0,
        2,
        {"allocated": 3, "cell": 3},
    )
    assert {change.rule: change.to for change in reported.suggestions if change.kind == "relax"} == {"cell": "1"}
    assert [change.npus for change in reported.suggestions if change.kind == "release"] == [8]
