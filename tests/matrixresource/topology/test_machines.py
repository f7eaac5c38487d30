"""The machines that are built in: their numbers add up, their parts can be named, and what is compiled of a regular one
is what its graph says."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from infer_workload.layout.machines import machine_of
from infer_workload.timing.calibration import load_calibration
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.hardware_names import NodeName, SwitchName
from matrixresource.agent.hardware import EmulatedNode
from matrixresource.machines import built_in_specs
from matrixresource.topology.compiled import compile_graph, compile_spec, compile_stored
from matrixresource.topology.graph import supernode_graph
from matrixresource.topology.layout import Layout
from matrixresource.topology.loading import load_spec

MACHINES = sorted(built_in_specs())


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_has_the_name_by_which_its_serving_is_timed(name):
    spec, timed = load_spec(name), load_calibration(name)
    assert machine_of(spec.model) == name
    assert (spec.npu.dies, spec.node.cpus) == (timed.dies_per_npu, timed.cpus_per_node)
    assert spec.die.rdma_gbps == timed.rdma_port_gbps
    assert spec.die.ub_link_gbps == timed.ub_port_gbps
    assert spec.die.hbm_gb == timed.hbm_gb
    assert spec.node.vpc_gbps == timed.vpc_node_gbps


@pytest.mark.parametrize("name", MACHINES)
def test_every_part_has_a_name_and_names_sort_in_the_order_of_the_machine(name):
    layout = Layout(load_spec(name))
    nodes = layout.nodes()
    assert nodes == sorted(nodes) == sorted(set(map(NodeName, nodes)))
    assert all(SwitchName(each.name) for each in layout.ub_switches())
    ub = layout.spec.ub
    boxes = {layout.bus_device(p, k) for p in range(ub.sub_planes) for k in range(ub.l2_per_sub_plane)}
    assert len(boxes) == ub.bus_devices


@pytest.mark.parametrize("name", [each for each in MACHINES if load_spec(each).supernode.nodes < 100])
def test_what_is_compiled_without_a_graph_is_what_the_graph_says(name):
    spec = load_spec(name)
    quick, drawn = compile_spec(spec), compile_graph(supernode_graph(spec), spec)
    for field in fields(quick):
        assert getattr(quick, field.name) == getattr(drawn, field.name), field.name
        if isinstance(getattr(quick, field.name), dict):
            assert list(getattr(quick, field.name)) == list(getattr(drawn, field.name)), field.name


@pytest.mark.parametrize("name", MACHINES)
def test_what_was_compiled_of_a_machine_is_found_again_by_its_numbers(name):
    """Processes are forked of one that has compiled their machine, and learn its numbers from MatrixResource."""
    compiled = compile_spec(load_spec(name))
    assert compile_stored(json.loads(json.dumps(compiled.document()))) is compiled


def test_a_machine_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(InvalidField, match=f"machines are {', '.join(MACHINES)}"):
        load_spec("abacus")


def test_nodes_of_a_supernode_stand_in_one():
    here, there = (EmulatedNode(NodeName(f"sn0-c00-n{number}")) for number in (0, 1))
    assert here.supernode is there.supernode
    assert EmulatedNode(NodeName("sn1-c00-n0")).supernode is not here.supernode
