"""What is wired otherwise, reported from reported ports: as tables, on the real layout, and in the graph as found."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixresource.topology.deviations import Deviation, as_built, find_deviations
from matrixresource.topology.observed_graph import graphml, node_link, observed_graph
from matrixresource.topology.supernode import Supernode
from matrixresource.topology.versions import Topology, is_valid_on, list_changes

SN = Supernode("sn0")
NODES = SN.nodes()
HERE, THERE = "sn0-c00-n0", "sn0-c07-n2"


def dark(*ports: str) -> dict[str, str | None]:
    return dict.fromkeys(ports)


UPLINKS = [f"ub-p3-k{k:02d}" for k in range(16)]
LEAF = [f"rdma-npu{k}-die1" for k in range(8)]

CASES = [
    ("all as built", {}, NODES, set()),
    ("one dark port is a cable", {HERE: dark("ub-p3-k11")}, NODES, {Deviation("CableDark", f"{HERE}.ub-p3-k11")}),
    (
        "another answers",
        {HERE: {"ub-p3-k11": "sn0-l2p3-k12"}},
        NODES,
        {Deviation("CableMoved", f"{HERE}.ub-p3-k11", "sn0-l2p3-k12")},
    ),
    ("every uplink of a sub-plane", {HERE: dark(*UPLINKS)}, NODES, {Deviation("SwitchFailed", f"{HERE}-l1p3")}),
    (
        "its dies miss it too",
        {HERE: dark(*UPLINKS, "npu5-die1-p3", "cpu0-p3")},
        NODES,
        {Deviation("SwitchFailed", f"{HERE}-l1p3")},
    ),
    (
        "every uplink but one",
        {HERE: dark(*UPLINKS[1:])},
        NODES,
        {Deviation("CableDark", f"{HERE}.{port}") for port in UPLINKS[1:]},
    ),
    ("everybody misses it", {n: dark("ub-p3-k11") for n in NODES}, NODES, {Deviation("SwitchFailed", "sn0-l2p3-k11")}),
    (
        "everybody who is heard misses it",
        {n: dark("ub-p3-k11") for n in NODES if n != HERE},
        [n for n in NODES if n != HERE],
        {Deviation("SwitchFailed", "sn0-l2p3-k11")},
    ),
    (
        "one who is heard still sees it",
        {n: dark("ub-p3-k11") for n in NODES if n != HERE},
        NODES,
        {Deviation("CableDark", f"{n}.ub-p3-k11") for n in NODES if n != HERE},
    ),
    (
        "a whole sub-plane is sixteen switches, not forty-eight",
        {n: dark(*UPLINKS) for n in NODES},
        NODES,
        {Deviation("SwitchFailed", f"sn0-l2p3-k{k:02d}") for k in range(16)},
    ),
    (
        "a leaf is missed by its cabinet alone",
        {n: dark(*LEAF) for n in SN.nodes("sn0-c07")},
        NODES,
        {Deviation("SwitchFailed", "sn0-c07-leaf1")},
    ),
    (
        "an L1 and an L2 switch at once",
        {n: dark("ub-p3-k11") for n in NODES} | {HERE: dark(*UPLINKS)},
        NODES,
        {Deviation("SwitchFailed", "sn0-l2p3-k11"), Deviation("SwitchFailed", f"{HERE}-l1p3")},
    ),
]


@pytest.mark.parametrize(("sentence", "found", "heard", "expected"), CASES, ids=[case[0] for case in CASES])
def test_minimal_explanations(sentence, found, heard, expected):
    everybody = {node: found.get(node, {}) for node in NODES}
    assert find_deviations(SN, everybody, heard) == expected, sentence


def test_single_witness_does_not_fail_a_switch():
    found = find_deviations(SN, {HERE: dark("ub-p3-k11")}, [HERE])
    assert found == {Deviation("CableDark", f"{HERE}.ub-p3-k11")}


@settings(max_examples=8, deadline=None)
@given(
    switches=st.sets(st.sampled_from(SN.l2_switches()), max_size=3),
    l1=st.sets(st.sampled_from(SN.l1_switches()), max_size=2),
    cables=st.sets(st.tuples(st.sampled_from(NODES), st.sampled_from(sorted(as_built(SN.links(HERE))))), max_size=4),
)
def test_injected_faults_are_found_exactly(switches, l1, cables):
    """Break switches and cables in the graph; what each node then sees of it leads back to them."""
    graph = SN.graph("die")
    graph.remove_nodes_from([*switches, *l1])
    unplugged = {f"{node}.{port}" for node, port in cables}
    reports: dict[str, dict[str, str | None]] = {node: {} for node in NODES}
    intact = {data["name"] for _, _, data in graph.edges(data=True)} - unplugged
    for node in NODES:
        for port in as_built(SN.links(node)):
            if f"{node}.{port}" not in intact:
                reports[node][port] = None
    found = find_deviations(SN, reports, NODES)
    assert {each.part for each in found if each.kind == "SwitchFailed"} == switches | l1
    rebuilt = observed_graph(SN, Topology({"sn0": "x"}, frozenset(), found), "v1", "die")
    assert {data["name"] for _, _, data in rebuilt.edges(data=True)} == {
        data["name"] for _, _, data in graph.edges(data=True) if data["name"] in intact or "leaf" in data["name"]
    }


def test_exchanged_cables_keep_their_new_ends():
    found = frozenset(
        {
            Deviation("CableMoved", f"{HERE}.ub-p3-k11", "sn0-l2p3-k12"),
            Deviation("CableMoved", f"{HERE}.ub-p3-k12", "sn0-l2p3-k11"),
            Deviation("CableDark", f"{THERE}.npu5-die1-p2"),
            Deviation("SwitchFailed", "sn0-l2p0-k00"),
        }
    )
    for level, of_npu in (("package", 28.0), ("die", None)):
        graph = observed_graph(SN, Topology({"sn0": "x"}, frozenset({"sn0-c03"}), found), "v4-abc", level)
        assert graph.edges[f"{HERE}-l1p3", "sn0-l2p3-k12"]["name"] == f"{HERE}.ub-p3-k11"
        assert graph.edges[f"{HERE}-l1p3", "sn0-l2p3-k11"]["name"] == f"{HERE}.ub-p3-k12"
        assert "sn0-l2p0-k00" not in graph
        if of_npu is not None:
            assert graph.edges[f"{THERE}-npu5", f"{THERE}-l1p2"]["capacity_gbps"] == of_npu
        else:
            assert not graph.has_edge(f"{THERE}-npu5-die1", f"{THERE}-l1p2")
        assert {graph.nodes[name]["cabinet"] for name in graph if graph.nodes[name].get("closed")} == {"sn0-c03"}
        assert node_link(graph)["graph"]["topologyVersion"] == "v4-abc"
        assert len(nx.parse_graphml(graphml(graph))) == len(graph)


def test_versions_are_reported_apart_by_what_they_hold():
    built = Topology({"sn0": "f", "sn1": "f"})
    closed = Topology({"sn0": "f", "sn1": "f"}, frozenset({"sn1-c02"}))
    moved = Topology({"sn0": "f"}, frozenset(), frozenset({Deviation("CableMoved", "sn0-c00-n0.ub-p3-k11", "x")}))
    again = Topology({"sn0": "f"}, frozenset(), frozenset({Deviation("CableDark", "sn0-c00-n0.ub-p3-k11")}))
    assert list_changes(built, closed) == [{"kind": "DomainClosed", "part": "sn1-c02"}]
    assert list_changes(closed, moved) == [
        {"kind": "SupernodeRemoved", "part": "sn1"},
        {"kind": "DomainOpened", "part": "sn1-c02"},
        {"kind": "CableMoved", "part": "sn0-c00-n0.ub-p3-k11", "peer": "x"},
    ]
    assert list_changes(moved, again) == [{"kind": "CableDark", "part": "sn0-c00-n0.ub-p3-k11"}]
    assert list_changes(again, Topology({"sn0": "f"})) == [{"kind": "CableRepaired", "part": "sn0-c00-n0.ub-p3-k11"}]
    assert Topology.parse(moved.wire()) == moved
    assert is_valid_on(built.version_name(1), built.version_name(3))
    assert is_valid_on("", built.version_name(3))
    assert not is_valid_on(built.version_name(1), closed.version_name(2))
    assert not is_valid_on("old", built.version_name(3))
