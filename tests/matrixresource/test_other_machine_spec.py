"""A machine built to another spec than the published one: counted, judged and planned as its own spec says."""

from __future__ import annotations

import pytest

from matrixcommon.model.errors import InsufficientCapacity, InvalidField, QuotaExceeded
from matrixresource.contract.plans import PlanRequest
from matrixresource.contract.quotas import QuotaRequest
from matrixresource.nodes.fault_levels import fault_table
from matrixresource.topology.loading import load_spec
from matrixresource.topology.spec import SupernodeSpec
from tests.matrixresource.machine import Machine

NODE = "sn0-c00-n0"


def of_four_npus() -> SupernodeSpec:
    """Nodes of four NPUs, and half the L2 chips in each sub-plane."""
    numbers = load_spec().model_dump(exclude={"figures"})
    numbers["node"] |= {"npus": 4, "dies": 8}
    numbers["ub"] |= {"l2_per_sub_plane": 8}
    return SupernodeSpec(**numbers)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path, spec=of_four_npus())


@pytest.mark.parametrize(
    ("asked", "nodes", "npus"),
    [
        ({"npus": 8}, 2, 8),
        ({"npus": 4}, 1, 4),
        ({"npus": 10}, 5, 10),
        ({"nodes": 3}, 3, 12),
        ({"nodes": 3, "npusPerNode": 2}, 3, 6),
    ],
)
def test_npus_are_counted_as_nodes_have_them(machine, asked, nodes, npus):
    view = machine.reserve("one", **asked)
    assert (view.nodes, view.npus, len(view.members)) == (nodes, npus, nodes)


@pytest.mark.parametrize("asked", [{"nodes": 1, "npusPerNode": 8}, {"npus": 16, "npusPerNode": 8}])
def test_more_of_a_node_than_it_has_is_refused(machine, asked):
    with pytest.raises(InvalidField) as refused:
        machine.reserve("one", **asked)
    assert refused.value.field == "npusPerNode"


def test_quotas_and_refusals_count_as_nodes_have_them(machine):
    machine.quotas.put("team", QuotaRequest(npus=8))
    machine.reserve("one", project="team", nodes=1, spares=1)
    with pytest.raises(QuotaExceeded):
        machine.reserve("two", project="team", npus=1)
    with pytest.raises(InsufficientCapacity, match="49 nodes do not fit"):
        machine.reserve("all", nodes=49)


def test_an_l1_chip_is_lost_with_the_uplinks_it_has(machine):
    code = next(iter(fault_table().codes))
    machine.report_all(faults={NODE: [(code, f"ub-p3-k{chip:02d}") for chip in range(8)]})
    with machine.store.reading() as session:
        faults = machine.store.node(session, NODE).view().faults
    assert [fault.component for fault in faults if fault.code == fault_table().uplinks_code] == ["l1p3"]


def test_the_blast_radius_is_of_the_switches_it_has(machine):
    plan = machine.planner.plan(PlanRequest(nodes=2))
    shares = {loss.over: loss.ub_share for loss in plan.blast_radius}
    assert shares["l2"] == pytest.approx(1 / (7 * 8))
