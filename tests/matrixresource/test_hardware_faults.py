"""Faults of ports, switches and tables on the emulated hardware: what a port says, what it truly carries, who else is
impaired, and that repairing leaves nothing behind."""

import pytest

from matrixcommon.model.hardware_names import NodeName
from matrixresource.agent.hardware import EmulatedNode, InjectedFault

NODE, OTHER = "sn0-c03-n2", "sn0-c04-n0"


def fault(kind, target=NODE, name="f", **parameters):
    return InjectedFault.model_validate({"name": name, "kind": kind, "target": target, "parameters": parameters})


@pytest.fixture
def nodes():
    return {name: EmulatedNode(NodeName(name)) for name in (NODE, OTHER)}


def apply_faults(nodes, *faults):
    for node in nodes.values():
        node.apply_faults(list(faults))


@pytest.mark.parametrize(
    ("kind", "parameters", "says", "carries"),
    [
        ("link-down", {}, 0.0, 0.0),
        ("link-degraded", {"share": 0.5}, 0.5, 0.5),
        ("link-silent", {}, 1.0, 0.0),
        ("link-slow", {"share": 0.25}, 1.0, 0.25),
    ],
)
def test_reported_and_actual_port_share(nodes, kind, parameters, says, carries):
    apply_faults(nodes, fault(kind, port="ub-p3-k11", **parameters))
    node = nodes[NODE]
    assert (node.ports.get("ub-p3-k11", 1.0), node.port_share("ub-p3-k11"), node.ports_healthy) == (
        says,
        carries,
        False,
    )
    assert bool(node.codes) is (says < 1), "what a port does not say raises no code"
    assert nodes[OTHER].ports_healthy
    apply_faults(nodes)
    assert node.ports_healthy
    assert node.port_share("ub-p3-k11") == 1.0


@pytest.mark.parametrize(
    ("switch", "here", "there"),
    [
        ("sn0-l2p3-k11", {"ub-p3-k11"}, {"ub-p3-k11"}),
        ("sn0-c03-leaf1", {f"rdma-npu{npu}-die1" for npu in range(8)}, set()),
        (
            f"{NODE}-l1p2",
            {f"ub-p2-k{k:02d}" for k in range(16)}
            | {f"npu{npu}-die{die}-p2" for npu in range(8) for die in range(2)}
            | {f"cpu{cpu}-p2" for cpu in range(4)},
            set(),
        ),
    ],
)
def test_a_switch_takes_its_ports_with_it(nodes, switch, here, there):
    apply_faults(nodes, fault("switch-down", switch))
    assert (set(nodes[NODE].ports), set(nodes[OTHER].ports)) == (here, there)
    assert all(nodes[NODE].peers[port] is None for port in here)
    apply_faults(nodes, fault("switch-silent", switch))
    assert (nodes[NODE].ports, set(nodes[NODE].unreported_losses)) == ({}, here)
    apply_faults(nodes)
    assert nodes[NODE].ports_healthy
    assert nodes[OTHER].ports_healthy


def test_a_moved_cable_goes_with_the_switch_it_leads_to(nodes):
    moved = fault("cable-moved", port="ub-p3-k11", peer="sn0-l2p3-k12", name="moved")
    apply_faults(nodes, moved, fault("switch-down", "sn0-l2p3-k11"))
    assert "ub-p3-k11" not in nodes[NODE].ports
    apply_faults(nodes, moved, fault("switch-down", "sn0-l2p3-k12"))
    assert set(nodes[NODE].ports) == {"ub-p3-k11", "ub-p3-k12"}


def test_the_worst_of_several_faults_counts(nodes):
    apply_faults(
        nodes,
        fault("link-slow", port="vpc", share=0.5, name="a"),
        fault("link-slow", port="vpc", share=0.2, name="b"),
        fault("link-degraded", port="vpc", share=0.4, name="c"),
    )
    assert nodes[NODE].port_share("vpc") == 0.2


def test_without_power_nothing_is_carried(nodes):
    apply_faults(nodes, fault("node-down"))
    assert nodes[NODE].port_share("vpc") == 0.0
    assert not nodes[NODE].ports_healthy


def test_tables_are_corrupted_once(nodes):
    tables = nodes[NODE].tables
    before = {"stripes": [{"sub_plane": 0, "weight": 1.0}], "isolation_key": 2}
    tables |= {"a": before, "b": before}
    apply_faults(nodes, fault("tables-corrupted", slice="a"))
    assert tables["a"] != before
    assert tables["b"] is before
    tables["a"] = before
    apply_faults(nodes, fault("tables-corrupted", slice="a"))
    assert tables["a"] is before
    apply_faults(nodes, fault("tables-lost", name="g"))
    assert tables == {}
