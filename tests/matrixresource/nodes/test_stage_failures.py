"""Nodes whose agents give a stage up: quarantined one by one, until there are so many that it cannot be their own fault."""

from __future__ import annotations

import asyncio

import pytest

from matrixcommon.model.hardware_names import NodeName
from matrixresource.allocations.node_lifecycle import NodeLifecycle
from matrixresource.contract.agents import NodeReport
from matrixresource.contract.nodes import NodeVerbRequest, NodeView
from matrixresource.controllers.flapping import FlappingNodes
from matrixresource.nodes.flap_rules import flap_rules
from tests.matrixresource.machine import Machine

LIMITS = flap_rules().limits["StageFailed"]


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)


def node(machine: Machine, name: str) -> NodeView:
    with machine.store.reading() as session:
        return machine.store.node(session, name).view()


def report(machine: Machine, *names: str, status: str = "Failed", stage: str | None = "boot") -> None:
    """Their agents answer what is requested of them with this status, all in one batch."""
    machine.sequence += 1
    with machine.store.reading() as session:
        requests = [row.view() for row in machine.store.assignments(session) if row.name in names]
    machine.reports.process(
        [
            NodeReport(
                node=NodeName(request.name), epoch=1, sequence=machine.sequence, lease_s=86_400, status=status,
                stage=stage, message="no image" if status == "Failed" else "", generation=request.generation,
                allocation=request.allocation,
            )
            for request in requests
        ]
    )  # fmt: skip


def reconcile(machine: Machine) -> None:
    lifecycle = NodeLifecycle(machine.store, machine.allocator, machine.clock)
    asyncio.run(FlappingNodes(machine.store, lifecycle, machine.clock).reconcile())


def test_widespread_stage_failure_quarantines_up_to_the_limit(machine):
    machine.reserve("all", nodes=12)
    members = [each.node for each in machine.allocator.bind("all").members]
    report(machine, *members)
    states = {name: node(machine, name) for name in members}
    out = [name for name, each in states.items() if each.state == "Quarantined"]
    assert len(out) == LIMITS["supernode"] == 8
    kept = [name for name in members if name not in out]
    for name in kept:
        assert (states[name].state, states[name].state_reason) == ("Deploying", "StageFailedTolerated")
        assert "boot: no image; sn0 has reached its limit of nodes out of service" in states[name].state_message
        assert states[name].flap_score == 0, "it is no fault of its own"
    gone = {each.node for each in machine.allocation("all").members if each.gone}
    assert gone == set(out), "who owns it replaces no more than these"
    generation = node(machine, kept[0]).assignment_generation
    reconcile(machine)
    assert node(machine, kept[0]).assignment_generation == generation, "not at once"
    machine.restart()
    machine.clock.at += flap_rules().retry_s
    reconcile(machine)
    assert node(machine, kept[0]).assignment_generation == generation + 1
    report(machine, *kept)
    assert node(machine, kept[0]).state == "Deploying", "it failed again, and still counts for nothing"
    machine.clock.at += flap_rules().retry_s
    reconcile(machine)
    report(machine, *kept, status="Active", stage=None)
    for name in kept:
        shown = node(machine, name)
        assert (shown.state, shown.state_reason, shown.state_message) == ("Active", None, "")
    machine.check()


def test_nodes_under_maintenance_do_not_count_towards_the_limit(machine):
    machine.reserve("all", nodes=9)
    members = [each.node for each in machine.allocator.bind("all").members]
    report(machine, *members)
    (kept,) = [name for name in members if node(machine, name).state != "Quarantined"]
    with machine.store.transaction() as session:
        other = next(each for each in machine.store.nodes(session) if each.state == "Quarantined")
        other.desired_state = "Servicing"
        other.read_state()
    machine.clock.at += flap_rules().retry_s
    reconcile(machine)
    report(machine, kept)
    assert node(machine, kept).state == "Quarantined"


def test_failed_cleaning_quarantines_the_node_and_completes_the_release(machine):
    members = [each.node for each in machine.provision("all", nodes=9).members]
    machine.allocator.release("all")
    report(machine, *members, stage="wipe-memory")
    shown = {name: node(machine, name) for name in members}
    out = [name for name, each in shown.items() if each.state == "Quarantined"]
    assert {shown[name].allocation for name in out} == {None}
    (kept,) = [name for name in members if name not in out]
    assert shown[kept].allocation == "all", "it tries again"
    machine.clock.at += flap_rules().retry_s
    reconcile(machine)
    report(machine, kept, status="Clean", stage=None)
    assert machine.names() == []
    lifecycle = NodeLifecycle(machine.store, machine.allocator, machine.clock)
    assert lifecycle.execute_verb(NodeName(out[0]), "recover", NodeVerbRequest(), by="me").state == "Verifying"
    report(machine, out[0], status="Clean", stage=None)
    assert node(machine, out[0]).schedulable
    machine.check()


def test_draining_node_that_cannot_be_cleaned_is_released(machine):
    (member,) = [each.node for each in machine.provision("one", nodes=1).members]
    lifecycle = NodeLifecycle(machine.store, machine.allocator, machine.clock)
    lifecycle.execute_verb(NodeName(member), "service", NodeVerbRequest(), by="me")
    machine.allocator.release("one")
    report(machine, member, stage="wipe-memory")
    assert (machine.names(), node(machine, member).state) == ([], "Servicing")


def test_free_nodes_retry_a_failed_check(machine):
    names = [f"sn0-c{number // 4:02}-n{number % 4}" for number in range(9)]
    lifecycle = NodeLifecycle(machine.store, machine.allocator, machine.clock)
    with machine.store.transaction() as session:
        for name in names:
            lifecycle.verify(session, machine.store.node(session, name), "to be sure")
    report(machine, *names, stage="npu-self-test")
    (kept,) = [name for name in names if node(machine, name).state != "Quarantined"]
    assert (node(machine, kept).state, node(machine, kept).schedulable) == ("Verifying", False)
    machine.clock.at += flap_rules().retry_s
    reconcile(machine)
    report(machine, kept, status="Clean", stage=None)
    shown = node(machine, kept)
    assert (shown.state, shown.schedulable) == ("Available", True)
