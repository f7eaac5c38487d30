"""README shows what the code prints; planes and their sources."""

from pathlib import Path

import networkx as nx
import pytest

import matrixlink
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.planes import calibration, plane_models, used_value
from matrixlink.model.slice_states import ACTIVE, FAILED, PROGRAMMING, REROUTING, SLICE_STATES, next_state
from matrixresource.topology.graph import supernode_graph
from matrixresource.topology.graph_queries import LATENCY, simple_graph
from matrixresource.topology.loading import load_spec
from tests.upkeep.link_tables import BEGIN, END, printed


def test_readme_shows_the_generated_states():
    page = (Path(matrixlink.__file__).parent / "README.md").read_text(encoding="utf-8")
    assert page.partition(BEGIN)[2].partition(END)[0].strip() == printed().strip()


def test_only_withdrawn_is_a_final_state():
    assert [state for state, after in SLICE_STATES.moves.items() if not after] == ["Withdrawn"]


@pytest.mark.parametrize(
    ("state", "programmed", "failed", "whole", "after"),
    [
        (PROGRAMMING, 3, 0, True, PROGRAMMING),
        (PROGRAMMING, 4, 0, True, ACTIVE),
        (REROUTING, 3, 0, False, REROUTING),
        (REROUTING, 4, 0, False, "Degraded"),
        (ACTIVE, 3, 0, True, PROGRAMMING),
        (ACTIVE, 3, 1, True, FAILED),
        ("Degraded", 4, 0, True, ACTIVE),
    ],
)
def test_next_state(state, programmed, failed, whole, after):
    assert next_state(state, programmed, 4, failed, whole) == after
    assert after in (state, *SLICE_STATES.moves[state])


def test_planes_are_those_of_the_spec():
    ub, rdma, vpc = (plane_models()[plane] for plane in Plane)
    assert (ub.sub_planes, ub.uplink_gbps, ub.endpoint_gbps, ub.npu_gbps) == (7, 448.0, 28.0, 392.0)
    assert (rdma.sub_planes, rdma.uplink_gbps, rdma.endpoint_gbps, rdma.npu_gbps) == (1, 400.0, 25.0, 50.0)
    assert (vpc.sub_planes, vpc.uplink_gbps, vpc.endpoint_gbps, vpc.npu_gbps) == (1, 50.0, 50.0, 6.25)
    assert 0.8 < ub.payload_gbps / 196 < 0.9


def test_link_latencies_of_a_path_add_up_to_the_measurement():
    """On the graph, by NetworkX: the entries of the calibration that are used, and the plane's own figure."""
    graph, here, measured = supernode_graph(load_spec()), "sn0-c00-n0", calibration()
    ends = {
        ("ub", "die-die"): (f"{here}-npu0-die0", f"{here}-npu0-die1"),
        ("ub", "intra-node"): (f"{here}-npu0-die0", f"{here}-npu1-die0"),
        ("ub", "inter-node"): (f"{here}-npu0-die0", "sn0-c07-n3-npu5-die1"),
        ("rdma", "inter-node"): (f"{here}-npu0-die0", "sn0-c07-n3-npu5-die0"),
        ("vpc", "inter-node"): (f"{here}-qingtian", "sn0-c07-n3-qingtian"),
    }
    for (plane, path), (a, b) in ends.items():
        links = simple_graph(graph, plane)
        assert nx.shortest_path_length(links, a, b, weight=LATENCY) == pytest.approx(
            used_value(measured, plane, "latency_us", path)
        ), (plane, path)
    for plane, model in plane_models().items():
        assert model.latency_us == used_value(measured, str(plane), "latency_us", "inter-node")


def test_calibration_names_listed_sources_and_one_used_entry(tmp_path):
    document = calibration()
    for plane in Plane:
        for entry in document[plane]["latency_us"] + document[plane]["payload_gbps"]:
            assert entry["source"] or entry["mark"] == "ASSUMED"
    with pytest.raises(InvalidField):
        used_value(document, "ub", "latency_us", "through-the-wall")
