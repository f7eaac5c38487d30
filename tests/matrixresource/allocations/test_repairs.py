"""Repairs in place, beside what else becomes of the node."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixcommon.model.hardware_names import NodeName
from matrixresource.allocations.node_lifecycle import NodeLifecycle
from matrixresource.contract.nodes import NodeVerbRequest
from matrixresource.topology.loading import load_spec
from tests.matrixresource.machine import Machine
from tests.matrixresource.topology.three_cabinets import three_cabinets


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, spec=load_spec(three_cabinets()))


def test_pending_repair_is_dropped_with_its_holder(machine: Machine) -> None:
    (member,) = [NodeName(each.node) for each in machine.provision("one", nodes=1).members]
    lifecycle = NodeLifecycle(machine.store, machine.allocator, machine.clock)
    lifecycle.repair("one", member, "restart")
    lifecycle.execute_verb(member, "service", NodeVerbRequest(), by="me")
    lifecycle.execute_verb(member, "recover", NodeVerbRequest(), by="me")
    machine.allocator.release("one")
    machine.report_all()
    next_one = machine.provision("next", nodes=12)
    assert member in {each.node for each in next_one.members}
    with machine.store.reading() as session:
        assert {row.task for row in machine.store.assignments(session)} == {None}
    machine.check()
