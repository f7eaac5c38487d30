"""The spec refuses what does not add up; Supernode answers by name; exports round-trip; the README is printed."""

import json

import networkx as nx
import pytest
import yaml

from matrixcommon.model.hardware_names import CabinetName, DieName, NodeName, SwitchName
from matrixresource.machines import DEFAULT_FILE
from matrixresource.topology import InvalidSpec, Supernode, UnknownPart
from matrixresource.topology.cross_checks import cross_checks
from matrixresource.topology.loading import EVIDENCE_MARKS, load_spec, parse_spec
from matrixresource.topology.observed_graph import graphml, node_link


@pytest.fixture
def document():
    return yaml.safe_load(DEFAULT_FILE.read_text())


def test_every_figure_has_a_source_and_a_mark():
    spec = load_spec()
    assert len(spec.figures) == sum(len(type(getattr(spec, s)).model_fields) for s in spec.sections())
    for figure in spec.figures:
        assert figure.mark in EVIDENCE_MARKS
        assert figure.sources or (figure.mark == "ASSUMED" and figure.note)


def test_every_cross_check_holds():
    for check in cross_checks(load_spec()):
        assert check.holds, check


def change(document, path, value):
    section, _, key = path.partition(".")
    cell = {"value": value, "source": ["P"], "mark": "C1"}
    document.setdefault(section, {})[key] = cell


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("node.npus", 9, "node.dies"),
        ("ub.l2_ports", 47, "ub.l2_ports"),
        ("die.ub_link_gbps", 29.0, "die.ub_gbps"),
        ("rdma.leaf_spine_gbps", 50.0, "rdma.leaf_spine_gbps"),
        ("node.colour", 3, "node.colour"),
        ("node.cpus", "four", "node.cpus"),
        ("node.cpus", 4.5, "node.cpus"),
        ("node.cpus", -4, "node.cpus"),
        ("node.cpus", float("nan"), "node.cpus"),
        ("node.cpus", True, "node.cpus"),
        ("engine.rooms", 1, "engine"),
    ],
)
def test_a_spec_that_is_wrong_is_refused_with_its_field(document, path, value, field):
    change(document, path, value)
    with pytest.raises(InvalidSpec) as refused:
        parse_spec(document)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("cell", "field"),
    [
        ({"value": 4, "source": ["XYZ"], "mark": "C1"}, "node.cpus.source"),
        ({"value": 4, "source": [], "mark": "C1"}, "node.cpus.source"),
        ({"value": 4, "source": ["P"], "mark": "sure"}, "node.cpus.mark"),
        ({"value": 4, "source": ["P"], "mark": "C1", "page": 3}, "node.cpus.page"),
        (4, "node.cpus"),
    ],
)
def test_a_figure_without_its_source_is_refused(document, cell, field):
    document["node"]["cpus"] = cell
    with pytest.raises(InvalidSpec) as refused:
        parse_spec(document)
    assert refused.value.field == field


def test_a_missing_figure_or_section_is_refused(document):
    del document["cpu"]
    with pytest.raises(InvalidSpec, match="cpu"):
        parse_spec(document)
    with pytest.raises(InvalidSpec):
        parse_spec([])


def test_topology_version_changes_with_a_number(document):
    change(document, "node.dram_gib", 1024)
    changed = parse_spec(document)
    assert Supernode("sn0", changed).topology_version != Supernode("sn0").topology_version
    assert Supernode("sn0").topology_version == Supernode("sn0").topology_version != Supernode("sn1").topology_version


def test_questions_by_name():
    sn = Supernode()
    assert sn.nodes("sn0-c03") == [f"sn0-c03-n{n}" for n in range(4)]
    assert sn.nodes("sn0-c13") == []
    assert (len(sn.cabinets()), len(sn.nodes()), len(sn.switches())) == (16, 48, 336 + 112 + 24 + 8)
    assert sn.cabinet_of("sn0-c03-n2") == "sn0-c03"
    assert sn.dies("sn0-c03-n2")[11] == "sn0-c03-n2-npu5-die1"
    assert len(sn.l1_switches(3)) == 48
    assert sn.l1_switches(node="sn0-c03-n2")[4] == "sn0-c03-n2-l1p4"
    assert sn.l2_switches(4)[11] == "sn0-l2p4-k11"
    assert [len(sn.links("sn0-c03-n2", plane)) for plane in ("ub", "rdma", "vpc")] == [7 * (16 + 4 + 16) + 8, 16, 1]


def test_links_agree_with_the_graph():
    sn = Supernode()
    drawn = {data["name"]: data["capacity_gbps"] for _, _, data in sn.graph().edges(data=True)}
    assert drawn == {link.name: link.capacity_gbps for link in sn.links()}
    assert len(drawn) == 12_480 + 768 + 192 + 48
    for name in ("sn0-c03-n2.ub-p3-k11", "sn0-c03-n2.rdma-npu5-die0", "sn0-c03-n2.vpc", "sn0-c03-leaf1.spine4"):
        assert sn.link(name).name == name


@pytest.mark.parametrize(
    "name", ["sn0-c03-n2.ub-p7-k00", "sn1-c03-n2.vpc", "sn0-c13-leaf0.spine0", "", ".", "sn0-c03-n2"]
)
def test_unknown_links_are_refused(name):
    with pytest.raises(UnknownPart):
        Supernode().link(name)


def test_unknown_parts_are_refused():
    sn = Supernode()
    with pytest.raises(UnknownPart):
        sn.nodes("sn0-c16")
    with pytest.raises(UnknownPart):
        sn.links("sn0-c03-n9")


def test_exports_round_trip():
    sn = Supernode()
    graph = sn.graph("package")
    document = json.loads(json.dumps(node_link(graph)))
    assert nx.utils.graphs_equal(nx.node_link_graph(document, edges="edges"), graph)
    drawn = nx.parse_graphml(graphml(graph))
    assert (drawn.number_of_nodes(), drawn.number_of_edges()) == (len(document["nodes"]), len(document["edges"]))


def test_names_are_the_vocabularys():
    sn = Supernode()
    assert [NodeName(n) for n in sn.nodes()] == sn.nodes()
    assert [DieName(d) for d in sn.dies("sn0-c03-n2")] == sn.dies("sn0-c03-n2")
    switches = [*sn.l1_switches(), *sn.l2_switches()]
    assert [SwitchName(s) for s in switches] == switches
    assert [CabinetName(c) for c in sn.cabinets()] == sn.cabinets()
