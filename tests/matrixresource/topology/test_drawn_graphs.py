"""Drawn supernodes: every fault has its sentence, both forms read the same, and what is compiled follows the graph."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings

from matrixcommon.model.errors import InvalidField
from matrixresource.allocations.cluster_index import cluster_shape, node_numbers
from matrixresource.scheduler.metrics.blast_radius import switch_losses
from matrixresource.topology import Supernode, compiled
from matrixresource.topology.compiled import compile_graph, compile_with_deviations, rename_supernode
from matrixresource.topology.deviations import Deviation
from matrixresource.topology.graph_document import InvalidGraph, compile_document, pack, read_drawing
from matrixresource.topology.observed_graph import graphml, node_link
from matrixresource.topology.rewiring import apply_deviations
from tests.matrixresource.topology.drawn import SN, changes

DRAWN = node_link(SN.model_graph())
NODE, CABLE = "sn0-c02-n2", "sn0-c02-n2.ub-p3-k11"


class DrawingEditor:
    """A drawing to spoil."""

    def __init__(self):
        self.document = copy.deepcopy(DRAWN)

    def vertex(self, name):
        return next(each for each in self.document["nodes"] if each["id"] == name)

    def link(self, name):
        return next(each for each in self.document["edges"] if each.get("name") == name)

    def leave_out(self, *names):
        self.document["nodes"] = [each for each in self.document["nodes"] if each["id"] not in names]
        self.document["edges"] = [
            each for each in self.document["edges"]
            if each.get("name") not in names and not {each["source"], each["target"]} & set(names)
        ]  # fmt: skip

    def without(self, wanted):
        self.document["edges"] = [each for each in self.document["edges"] if not wanted(each)]


def dangling(pen):
    pen.link(CABLE)["target"] = "sn0-l2p3-k99"


def doubled_vertex(pen):
    pen.document["nodes"].append(dict(pen.vertex("sn0-l2p3-k11")))


def doubled_link(pen):
    pen.document["edges"].append(dict(pen.link(CABLE)))


def wrong_rate(pen):
    pen.link("sn0-c02-n2.rdma-npu5-die0")["capacity_gbps"] = 28.0


def missing_rate(pen):
    del pen.link(CABLE)["capacity_gbps"]


def wrong_latency(pen):
    pen.link(CABLE)["latency_us"] = "fast"


def missing_latency(pen):
    del pen.link(CABLE)["latency_us"]


def two_parts(pen):
    pen.without(lambda edge: edge.get("plane") == "ub" and edge.get("kind") == "l1-l2" and edge.get("node") == NODE)


def no_fabric_link(pen):
    pen.leave_out(f"{NODE}.vpc")


def unknown_kind(pen):
    pen.vertex("sn0-l2p3-k11")["kind"] = "router"


def no_kind(pen):
    del pen.vertex("sn0-l2p3-k11")["kind"]


def missing_attribute(pen):
    del pen.vertex("sn0-l2p3-k11")["sub_plane"]


def wrong_attribute(pen):
    pen.vertex("sn0-c02-n2-l1p4")["node"] = "sn0-c02-n1"


def no_place(pen):
    pen.document["nodes"].append({"id": "sn0-l2p7-k00", "kind": "l2", "plane": "ub", "sub_plane": 7})


def other_supernode(pen):
    pen.document["nodes"].append({"id": "sn7-l2p3-k11", "kind": "l2", "plane": "ub", "sub_plane": 3})


def half_a_node(pen):
    pen.leave_out("sn0-c02-n2-npu5-die1")


def no_port(pen):
    pen.link(CABLE)["name"] = f"{NODE}.ub-p3-k16"


def wrong_near_end(pen):
    pen.link(CABLE)["source"] = "sn0-c02-n2-l1p4"


def wrong_sub_plane(pen):
    pen.link(CABLE)["target"] = "sn0-l2p4-k11"


def crossed_cabinets(pen):
    pen.link("sn0-c02-n2.rdma-npu5-die0")["target"] = "sn0-c01-leaf0"


def no_name(pen):
    del pen.link(CABLE)["name"]


def packages(pen):
    pen.document["nodes"] = [{"id": "sn0-c02-n2-npu5", "kind": "npu"}]


def nothing(pen):
    pen.document["nodes"], pen.document["edges"] = [], []


BAD = [
    (dangling, CABLE, f"{CABLE} dangles: it leads from {NODE}-l1p3 to sn0-l2p3-k99, which is not drawn"),
    (doubled_vertex, "sn0-l2p3-k11", "sn0-l2p3-k11 is drawn twice"),
    (doubled_link, CABLE, f"{CABLE} names two links"),
    (wrong_rate, f"{NODE}.rdma-npu5-die0",
     f"{NODE}.rdma-npu5-die0 is drawn at 28.0 GB/s; die-leaf of the rdma plane has 25"),
    (missing_rate, CABLE, f"{CABLE} has no capacity_gbps; l1-l2 has 28"),
    (wrong_latency, CABLE, f"{CABLE} is drawn at fast us; l1-l2 of the ub plane has 0.6"),
    (missing_latency, CABLE, f"{CABLE} has no latency_us; l1-l2 has 0.6"),
    (two_parts, f"{NODE}-cpu0",
     f"the ub plane is in 2 pieces: {NODE}-cpu0 and 26 more not connected to sn0-c00-n0-cpu0"),
    (no_fabric_link, f"{NODE}-qingtian",
     f"the vpc plane is in 2 pieces: {NODE}-qingtian not connected to sn0-c00-n0-qingtian"),
    (unknown_kind, "sn0-l2p3-k11", "sn0-l2p3-k11 has kind 'router'; use one of cabinet, node, die, cpu, l1, l2, leaf, "
     "spine, qingtian, fabric"),
    (no_kind, "sn0-l2p3-k11", "sn0-l2p3-k11 has no kind; it must be one of cabinet, node, die, cpu, l1, l2, "
     "leaf, spine, qingtian, fabric"),
    (missing_attribute, "sn0-l2p3-k11", "sn0-l2p3-k11 has no sub_plane; it must be 3"),
    (wrong_attribute, "sn0-c02-n2-l1p4",
     "sn0-c02-n2-l1p4 is drawn with node 'sn0-c02-n1', but its name says sn0-c02-n2"),
    (no_place, "sn0-l2p7-k00", "sn0-l2p7-k00 does not belong: the spec has no l2 of that name"),
    (other_supernode, "sn7-l2p3-k11", "sn7-l2p3-k11 is not a part of sn0, the supernode drawn here"),
    (half_a_node, NODE, f"{NODE} is drawn without {NODE}-npu5-die1"),
    (no_port, f"{NODE}.ub-p3-k16", f"{NODE}.ub-p3-k16 is not the name of any port in the spec"),
    (wrong_near_end, CABLE,
     f"{CABLE} is a port of {NODE}-l1p3, but is drawn between {NODE}-l1p4 and sn0-l2p3-k11"),
    (wrong_sub_plane, CABLE, f"{CABLE} leads to sn0-l2p4-k11, which is not an L2 switch of sub-plane 3"),
    (crossed_cabinets, f"{NODE}.rdma-npu5-die0", f"{NODE}.rdma-npu5-die0 leads to sn0-c01-leaf0; only uplinks may "
     "be moved, so it must lead to sn0-c02-leaf0"),
    (no_name, f"{NODE}-l1p3 - sn0-l2p3-k11", f"the link between {NODE}-l1p3 and sn0-l2p3-k11 has no name"),
    (packages, "sn0-c02-n2-npu5", "sn0-c02-n2-npu5 is an NPU: draw its dies"),
    (nothing, "", "the drawing is empty"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "where", "sentence"), BAD, ids=[case[0].__name__ for case in BAD])
def test_a_bad_graph_is_refused_with_the_sentence_that_says_where(spoil, where, sentence):
    pen = DrawingEditor()
    spoil(pen)
    with pytest.raises(InvalidGraph) as refused:
        compile_document(pen.document, SN.spec)
    assert (refused.value.faults[0].where, refused.value.faults[0].sentence) == (where, sentence)
    assert refused.value.field == "graph"


@pytest.mark.parametrize(
    "text", ["", "{", "<graphml>", "<!DOCTYPE x><graphml/>", "no base64!", '{"nodes": 3}', "[]", 7]
)
def test_what_cannot_be_read_is_refused(text):
    with pytest.raises(InvalidField) as refused:
        compile_document(text, SN.spec)
    assert refused.value.field == "graph"


def test_every_form_and_level_is_read_as_the_same_machine():
    other = Supernode(
        "sn7", SN.spec
    )  # made here: only the last few machines are kept, and tests before this one draw many
    for document in (
        DRAWN,
        {"topologyVersion": "v1", "graph": DRAWN},
        node_link(SN.graph("die")),
        graphml(SN.model_graph()),
        pack(read_drawing(DRAWN)),
        node_link(other.model_graph()),
    ):
        assert compile_document(document, SN.spec) is other.topology


def test_a_drawing_with_one_cabinet_and_fewer_switches():
    pen = DrawingEditor()
    keep = {f"sn0-c00-n{n}" for n in range(4)}
    gone = [
        each["id"] for each in DRAWN["nodes"]
        if each.get("node", each["id"] if each["kind"] == "node" else None) not in {None, *keep}
        or (each["kind"] in ("leaf", "cabinet") and each.get("cabinet", each["id"]) in SN.compute_cabinets()[1:])
        or each["id"] == "sn0-l2p3-k11"
    ]  # fmt: skip
    pen.leave_out(*gone)
    small = Supernode("sn4", topology=compile_document(pen.document, SN.spec))
    assert small.nodes() == [f"sn4-c00-n{n}" for n in range(4)]
    assert (small.compute_cabinets(), len(small.l2_switches()), len(small.switches("rdma"))) == (["sn4-c00"], 111, 10)
    assert set(small.topology.uplink_gbps(["l2p3-k12"])) == {f"c00-n{n}" for n in range(4)}
    assert small.topology.node_uplink_gbps["c00-n0"] == 3136 - 28
    shape = cluster_shape({"sn4": small})
    assert (shape.cabinets, shape.nodes) == (3, 4)
    assert node_numbers({"sn4": small}, shape) == {f"sn4-c00-n{n}": n for n in range(4)}


# ---- what is compiled is what the graph says ------------------------------------------------------------------------


def tables(topology):
    return (
        topology.nodes, topology.switches, topology.links, topology.rewired, topology.deviations, topology.endpoints,
        topology.cabinet_of, topology.bus_devices, topology.compute_cabinets, topology.fingerprint,
    )  # fmt: skip


@settings(max_examples=8, deadline=None)
@given(changes(), changes())
def test_a_graph_changed_step_by_step_compiles_as_the_graph_drawn_at_once(first, second):
    second = frozenset(each for each in second if each.part not in {other.part for other in first})
    step = Supernode("sn0", topology=compile_with_deviations(SN.spec, first))
    stepped = step.with_deviations(each.qualified("sn0") for each in second)
    graph = apply_deviations(SN.model_graph(), [each.qualified("sn0") for each in first | second])
    assert tables(stepped.topology) == tables(compile_graph(graph, SN.spec))
    assert tables(compile_graph(rename_supernode(graph, "sn9"), SN.spec)) == tables(stepped.topology)


def test_what_agents_find_is_compiled_without_drawing_the_graph(monkeypatch):
    """Drawing takes half a second and tens of megabytes, in the services that have to react."""
    found = [Deviation("CableDark", "c01-n1.ub-p5-k04"), Deviation("SwitchFailed", "l2p2-k08")]

    def draw(*_):
        raise AssertionError("the graph was drawn")

    monkeypatch.setattr(compiled, "supernode_graph", draw)
    assert compile_with_deviations(SN.spec, found).deviations == frozenset(found)


@settings(max_examples=8, deadline=None)
@given(changes())
def test_the_index_and_the_blast_radius_are_what_the_graph_says(found):
    supernode = Supernode("sn0", topology=compile_with_deviations(SN.spec, found))
    graph = supernode.model_graph()
    drawn = {vertex for vertex, kind in graph.nodes(data="kind") if kind == "node"}
    machines = {"sn0": supernode, "sn1": Supernode("sn1", SN.spec)}
    shape = cluster_shape(machines)
    numbers = node_numbers(machines, shape)
    assert {node for node in numbers if node.startswith("sn0-")} == drawn
    assert all(number == SN.slots[node] for node, number in numbers.items() if node.startswith("sn0-"))
    for node in drawn:
        uplinks = [
            (about["capacity_gbps"], peer)
            for p in range(7)
            for _, peer, about in graph.edges(f"{node}-l1p{p}", data=True)
            if about["kind"] == "l1-l2" and graph.nodes[peer].get("sub_plane") == p
        ]
        whole = sum(rate for rate, _ in uplinks)
        assert supernode.topology.node_uplink_gbps[supernode._local(node)] == pytest.approx(whole)
        for switch in {peer for _, peer in uplinks}:
            lost = supernode.topology.uplink_gbps([supernode._local(switch)])[supernode._local(node)]
            assert lost == pytest.approx(sum(rate for rate, peer in uplinks if peer == switch))
    losses = switch_losses(supernode.topology, 4)
    assert set(losses.l1) == {SN.slots[node] for node in drawn}
    assert len(losses.others["l2"]) == len(supernode.l2_switches())
