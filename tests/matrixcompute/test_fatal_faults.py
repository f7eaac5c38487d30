"""Whoever acts on faults acts on exactly the nodes that have them: fatal faults among many that look alike, in one batch.

NVSentinel's test of the wrong node, in the size of a pool of supernodes (NVSentinel PR 1789: 200 fatal, 1,800 look-alike,
10,005 nodes). MatrixResource judges and fences on a real database, MatrixCompute's decision is asked of what it shows.
"""

from __future__ import annotations

from random import Random

import pytest

from matrixcommon.model.hardware_names import NodeName
from matrixcompute.recovery.policy import RecoveryPolicy, nodes_out, plan_recovery
from matrixresource.contract.nodes import RECOVERY, NodeView
from tests.matrixresource.machine import Machine

FATAL = (
    ("020001001", "npu3-die0"), ("0x08520003/npu", "npu1"), ("0x00f103b0", "node"), ("220001001", "npu7"),
    ("FFFFFFFF", "npu2"),
)  # fmt: skip
"""HBM ECC to isolate, an L1 port to an NPU, an L1 chip, a fault found by ping mesh, a severe code of no table."""

ALIKE = (
    ("010001002", "npu3-die0"), ("0x08520003/L2", "ub-p1-k03"), ("0x00f10509/L2", "ub-p1-k03"), ("010001001", "npu7"),
    ("110001010", "node"), ("310001005", "node"), ("81078603", "npu2-die1"),
)  # fmt: skip
"""HBM ECC that a restart ends, ports to L2 switches, a dirty cable, a slow node, a storage client, RoCE link down."""


def nodes_of(machine: Machine) -> dict[str, NodeView]:
    with machine.store.reading() as session:
        return {row.name: row.view() for row in machine.store.nodes(session)}


@pytest.mark.parametrize(
    ("supernodes", "fatal", "alike"),
    [
        (1, 5, 43),
        pytest.param(42, 200, 1800, marks=[pytest.mark.soak, pytest.mark.timeout(1800)]),
    ],
)
def test_only_nodes_with_fatal_faults_are_repaired_and_health_checks_return_them(tmp_path, supernodes, fatal, alike):
    machine, random = Machine(tmp_path, supernodes), Random(9)
    for index in range(supernodes):
        machine.reserve(f"i{index}", nodes=36, spares=4)
        machine.allocator.bind(f"i{index}")
    machine.report_all()
    homes: dict[str, list[str]] = {}
    for name in random.sample(sorted(nodes_of(machine)), supernodes * 48):
        homes.setdefault(NodeName(name).supernode, []).append(name)
    dealt = [name for row in zip(*homes.values(), strict=True) for name in row]  # some of each supernode
    bad, others = set(dealt[:fatal]), dealt[fatal : fatal + alike]
    before = nodes_of(machine)
    faults = {name: [random.choice(FATAL), random.choice(ALIKE)] for name in bad}
    machine.report_all(faults=faults | {name: [random.choice(ALIKE)] for name in others})

    seen = nodes_of(machine)
    assert {name for name, node in seen.items() if node.health == "Unhealthy"} == bad
    acted: set[str] = set()
    members = {name: machine.allocation(name).members for name in machine.names()}
    for name, current in members.items():
        plan = plan_recovery(current, nodes_out(seen.values()), RecoveryPolicy(), [], machine.clock.now())
        assert plan.action != "hold", "that many are within the safety stop"
        for node in plan.nodes:
            machine.allocator.cordon(NodeName(node), True, RECOVERY)
            machine.allocator.replace(name, NodeName(node), plan.reason)
        acted |= set(plan.affected)
    assert acted == {name for name in bad if before[name].allocation is not None}
    after = nodes_of(machine)
    for name, node in after.items():
        assert node.state != "Quarantined" or name in bad, name
        assert not (name in bad and node.schedulable), name
        assert node.cordoned_by == ([RECOVERY] if name in acted else []), name
        assert name in bad or node.allocation or node.schedulable, f"{name} is kept out for {node.unschedulable_reason}"
    for name, current in members.items():
        stay = {(each.node, each.rank) for each in current if each.role == "member" and each.node not in bad}
        assert stay <= {(each.node, each.rank) for each in machine.allocation(name).members}, "nobody else moved"

    machine.report_all()
    returning = nodes_of(machine)
    assert acted <= {name for name, node in returning.items() if node.state == "Verifying"} <= bad
    assert {name for name, node in returning.items() if node.cordoned_by == [RECOVERY]} == acted, "not by good news"
    for name in acted:
        machine.allocator.cordon(NodeName(name), False)
    assert {name for name, node in nodes_of(machine).items() if node.cordoned_by} == acted, "nor by another owner"
    machine.report_all()
    back = nodes_of(machine)
    assert {back[name].state for name in bad} == {"Available"}
    assert [name for name, node in back.items() if node.cordoned_by] == []
    machine.check()
