"""The graph is the oracle: after every step the index is the one made from it, and fits what the graph says fits."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import networkx as nx
import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from benchmarks.allocator.capacity_graph import (
    DoubleAllocation,
    Share,
    annotate,
    graph_of,
    hold,
    holders_of,
    index_of,
    nodes_of,
    remove,
    shape_of,
)
from benchmarks.allocator.ledger_verbs import rebuild_index
from benchmarks.allocator.node_repair import repair
from matrixresource.scheduler.changes import minimal_move_layout
from matrixresource.scheduler.explain import explain
from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.placement_arithmetic import nodes_in
from matrixresource.scheduler.model.request import DomainConstraint, Placement, PlacementRequest
from tests.matrixresource.scheduler.graph_search import Search

SMALL = ClusterShape(2, 2, 2)
LEVELS = st.sampled_from(["node", "cabinet", "supernode"])


@st.composite
def specs(draw: st.DrawFn) -> PlacementRequest:
    nodes = draw(st.integers(1, 5))
    per = draw(st.sampled_from([8, 8, 0.5, 1, 3, 4]))
    return PlacementRequest(
        nodes,
        per,
        required_domain=draw(st.sampled_from(["", "", "cabinet", "supernode"])),
        supernode_block=draw(st.sampled_from([1, 1, 1, 2])),
        cabinet_block=draw(st.sampled_from([1, 1, 1, 2])),
        spread=draw(st.none() | st.builds(DomainConstraint, LEVELS, st.integers(1, 2))),
        spares=draw(st.sampled_from([0, 0, 1, 2])),
        cpus=draw(st.sampled_from([0, 0, 5, 12])),
        mem=draw(st.sampled_from([0, 0, 2000])),
        priority=draw(st.integers(0, 2)),
        preempts=draw(st.booleans()),
    )


class LedgerAgainstGraph(RuleBasedStateMachine):
    """A ledger, and a graph that is only informed what the ledger answered."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(SMALL)
        self.graph = graph_of(SMALL)
        self.count = 0

    @rule(
        spec=specs(), other=st.integers(0, 9), level=LEVELS, key=st.sampled_from(["", "", "affinity", "anti_affinity"])
    )
    def allocate(self, spec: PlacementRequest, other: int, level: str, key: str) -> None:
        living = sorted(self.ledger.allocations)
        if key and living:
            setattr(spec, key, DomainConstraint(level, others=(living[other % len(living)],)))
            spec.unconstrained = False
        self.count += 1
        expected = Search(self.graph).fits(spec)
        place, evicted = self.ledger.allocate(f"j{self.count}", spec, float(self.count))
        for name in evicted:
            remove(self.graph, name)
        if place is not None:
            hold(self.graph, f"j{self.count}", place)
        event("fits" if expected else "does not fit")
        assert (place is not None and not evicted) is expected, spec

    @rule(which=st.integers(0, 50))
    def release(self, which: int) -> None:
        if living := sorted(self.ledger.allocations):
            name = living[which % len(living)]
            self.ledger.release(name)
            remove(self.graph, name)

    @rule(node=st.integers(0, SMALL.all_nodes - 1))
    def fail(self, node: int) -> None:
        requests = {name: allocation.request for name, allocation in self.ledger.allocations.items()}
        moved, lost = repair(self.ledger, node)
        self.graph.nodes[node]["up"] = False
        for name in [*moved, *lost]:
            remove(self.graph, name)
        for name, place in moved.items():
            hold(self.graph, name, place)
        if lost and not moved:
            assert not Search(self.graph).fits(replace(requests[lost[-1]], spares=0))

    @rule(node=st.integers(0, SMALL.all_nodes - 1))
    def close_or_open(self, node: int) -> None:
        up = not self.graph.nodes[node]["up"]
        self.ledger.set_up(node, up)
        self.graph.nodes[node]["up"] = up

    @rule(node=st.integers(0, SMALL.all_nodes - 1), dies=st.sampled_from([0, 1, 0b110, 0xFF, 0xFFFF]))
    def break_or_repair(self, node: int, dies: int) -> None:
        """Whoever holds broken dies keeps them; nobody new comes."""
        self.ledger.index.set_faulty_dies(node, dies)
        self.graph.nodes[node]["broken"] = dies

    @rule(spec=specs())
    def ask(self, spec: PlacementRequest) -> None:
        """Trials take allocations from broken dies and bring them back."""
        before = self.ledger.index.state(), list(self.ledger.index.dies), dict(self.ledger.index.idle_faulty)
        explain.explain_placement(self.ledger, spec, float(self.count))
        assert (self.ledger.index.state(), self.ledger.index.dies, self.ledger.index.idle_faulty) == before

    @invariant()
    def the_index_is_the_one_made_from_the_graph(self) -> None:
        index, made = self.ledger.index, index_of(self.graph)
        assert index.state() == made.state()
        assert (index.dies, index.cpus, index.mem, index.up) == (made.dies, made.cpus, made.mem, made.up)
        assert (index.faulty_dies, index.idle_faulty) == (made.faulty_dies, made.idle_faulty)

    @invariant()
    def the_graph_made_from_the_ledger_is_the_one_that_followed(self) -> None:
        anew = graph_of(SMALL)
        annotate(anew, self.ledger)
        assert dict(anew.nodes(data=True)) == dict(self.graph.nodes(data=True))


@pytest.mark.parametrize(
    "spec",
    [
        PlacementRequest(46, spares=4),
        PlacementRequest(46, spares=4, cpus=1),
        PlacementRequest(46, 4, spares=4),
        PlacementRequest(46, spares=4, spread=DomainConstraint("cabinet", 4)),
        PlacementRequest(48, spares=1, mem=1),
        PlacementRequest(44, spares=6, cabinet_block=4, supernode_block=4),
        PlacementRequest(90, 3, spares=6),
    ],
)
def test_spares_may_need_a_second_supernode(spec: PlacementRequest) -> None:
    ledger = Ledger(ClusterShape(2, 12, 4))
    place, _ = ledger.allocate("gang", spec, 0.0)
    assert place is not None
    assert minimal_move_layout.satisfies(ledger, spec, place)
    assert len(nodes_in(ledger.index, place.spares)) == spec.spares
    assert ledger.index.state() == rebuild_index(ledger).state()


TestFollowed = LedgerAgainstGraph.TestCase
TestFollowed.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


def test_the_graph_says_who_holds_each_npu() -> None:
    graph = graph_of(ClusterShape(1, 2, 2), ["sn7"])
    hold(graph, "a", Placement(parts=[(1, 0b1101)]))
    hold(graph, "b", Placement(whole=[(1, 0b01)], parts=[(1, 0b0010)], spares=[(1, 0b10)], cpus=[(0, 3)]))
    npus = [npu for npu in graph.adj[1] if graph.nodes[npu]["kind"] == "npu"]
    assert [holders_of(graph, npu) for npu in npus[:3]] == [["a", "b"], ["a"], []]
    assert graph.nodes[3] == {
        "kind": "node", "name": "sn7-c01-n1", "up": True, "broken": 0, "cpus": 4, "mem_gib": 1536, "allocated": {"b": Share(65535, 0, 0, True)}
    }  # fmt: skip
    before = {node: dict(graph.nodes[node]["allocated"]) for node in nodes_of(graph)}
    for place in (Placement(parts=[(0, 1), (1, 0b0100)]), Placement(cpus=[(0, 2)]), Placement(whole=[(1, 0b10)])):
        with pytest.raises(DoubleAllocation):
            hold(graph, "c", place)
    assert {node: graph.nodes[node]["allocated"] for node in nodes_of(graph)} == before
    graph.remove_node(3)
    with pytest.raises(ValueError, match="has 1 nodes"):
        index_of(graph)


def test_more_parts_than_a_supernode_has_nodes() -> None:
    place = Ledger(SMALL).choose(PlacementRequest(6, 3, cpus=1))
    assert place is not None
    assert len({node // SMALL.nodes_per_supernode for node, _ in place.parts}) == 2
    assert Ledger(SMALL).choose(PlacementRequest(9, 3, cpus=1)) is None


def test_a_large_machine_comes_back_from_its_graph() -> None:
    shape = ClusterShape(20, 12, 4)
    ledger = Ledger(shape)
    for number, nodes in enumerate([1, 4, 48, 60, 3, 7] * 8):
        ledger.allocate(f"j{number}", PlacementRequest(nodes, 8 if nodes > 1 else 0.5), 0.0)
    ledger.set_up(17, False)
    graph = graph_of(shape)
    annotate(graph, ledger)
    assert shape_of(graph) == shape
    assert index_of(graph).state() == ledger.index.state()
    assert nx.is_forest(graph)
    assert nx.number_connected_components(graph) == shape.supernodes


class Touched(AssertionError):
    """Somebody read a graph."""


def test_no_decision_reads_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way into every graph raises, and so does importing the library; the ledger does not notice."""
    graph = graph_of(SMALL)
    ledger = Ledger(SMALL)

    def poison(*_: Any, **__: Any) -> Any:
        raise Touched

    for kind in [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph]:
        monkeypatch.setattr(kind, "__getattribute__", poison)
        for name in ("__iter__", "__len__", "__contains__", "__getitem__", "__init__"):
            monkeypatch.setattr(kind, name, poison)
    monkeypatch.setattr(nx.Graph, "__bool__", poison, raising=False)
    monkeypatch.setitem(sys.modules, "networkx", None)
    for touch in (
        len,
        list,
        lambda g: g.nodes,
        lambda g: g.adj,
        lambda g: 0 in g,
        index_of,
        nodes_of,
        lambda _: nx.Graph(),
    ):
        with pytest.raises(Touched):
            touch(graph)
    with pytest.raises(ImportError):
        __import__("networkx")
    gang = PlacementRequest(3, spares=1, spread=DomainConstraint("cabinet", 1), priority=2, preempts=True)
    for number, request in enumerate(
        [
            PlacementRequest(1, 0.5),
            PlacementRequest(1, 3),
            PlacementRequest(2, 4, cpus=2),
            PlacementRequest(4),
            PlacementRequest(2, 1, mem=99),
            gang,
        ]
    ):
        ledger.allocate(f"j{number}", request, float(number))
    assert ledger.allocations
    for node in range(3):
        repair(ledger, node)
    for node in range(3):
        ledger.set_up(node, True)
    for name in list(ledger.allocations):
        ledger.release(name)
    assert ledger.index.whole_counts == [4, 4]
