"""Nodes that come and go: the score, who is kept out, how many at once, and how they come back."""

from __future__ import annotations

import asyncio

import pytest

from matrixcommon.model.hardware_names import NodeName
from matrixresource.allocations.node_lifecycle import NodeLifecycle
from matrixresource.contract.nodes import NodeVerbRequest, NodeView
from matrixresource.controllers.flapping import FlappingNodes
from matrixresource.nodes.flap_rules import flap_rules
from tests.matrixresource.machine import Machine

NODE, NEIGHBOUR, ELSEWHERE = "sn0-c05-n1", "sn0-c05-n2", "sn0-c06-n0"
HOUR_S, DAY_S, LEASE_S = 3600.0, 86_400.0, 30


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)


def lifecycle(machine: Machine) -> NodeLifecycle:
    return NodeLifecycle(machine.store, machine.allocator, machine.clock)


def reconcile(machine: Machine) -> None:
    asyncio.run(FlappingNodes(machine.store, lifecycle(machine), machine.clock).reconcile())


def node(machine: Machine, name: str = NODE) -> NodeView:
    with machine.store.reading() as session:
        return machine.store.node(session, name).view()


def flap(machine: Machine, *names: str, times: int = 1) -> None:
    """They fall silent and return, checked."""
    for _ in range(times):
        machine.report_all(lease_s=LEASE_S)
        machine.clock.at += 2 * LEASE_S + 1
        machine.report_all(*names, lease_s=LEASE_S)
        asyncio.run(machine.reports.watch_leases())
        assert {node(machine, name).agent for name in names} == {"Lost"}
        machine.report_all(lease_s=LEASE_S)
        machine.report_all(lease_s=LEASE_S)  # the check that was asked for
        reconcile(machine)


@pytest.mark.parametrize(
    ("hours_apart", "times", "kept_out"), [(0, 3, False), (0, 4, True), (5, 4, False), (5, 5, True), (24, 20, False)]
)
def test_flap_score_decays(hours_apart, times, kept_out):
    rules, score, at = flap_rules(), 0.0, None
    for occasion in range(times):
        now = occasion * hours_apart * HOUR_S
        score, at = rules.raised_score(score, at, now, "AgentLost"), now
    assert (score >= rules.quarantine_at) == kept_out, score


def test_flapping_node_is_quarantined_until_stable(machine):
    flap(machine, NODE, times=3)
    assert node(machine).state == "Available"
    flap(machine, NODE)
    shown = node(machine)
    assert (shown.state, shown.state_reason) == ("Quarantined", "Flapping")
    machine.restart()
    machine.clock.at += DAY_S
    machine.report_all()
    reconcile(machine)
    assert node(machine).state == "Quarantined", "the score has halved, and is still above what returns a node"
    machine.clock.at += DAY_S
    machine.report_all()
    reconcile(machine)
    assert node(machine).state == "Verifying", "only a check returns it"
    machine.report_all()
    assert node(machine).state == "Available"


def test_held_flapping_node_is_quarantined_once_free(machine):
    holding = machine.provision("a", nodes=1).members[0].node
    flap(machine, holding, times=4)
    assert node(machine, holding).state == "Active"
    machine.allocator.release("a")
    machine.report_all()
    reconcile(machine)
    assert node(machine, holding).state == "Quarantined"


def test_quarantine_limit_and_returning_nodes(machine):
    flap(machine, NODE, NEIGHBOUR, ELSEWHERE, times=4)
    kept_out = {name: node(machine, name).state for name in (NODE, NEIGHBOUR, ELSEWHERE)}
    assert kept_out == {NODE: "Quarantined", NEIGHBOUR: "Available", ELSEWHERE: "Quarantined"}
    assert "sn0-c05" in node(machine, NEIGHBOUR).state_message
    lifecycle(machine).execute_verb(NodeName("sn0-c05-n3"), "quarantine", NodeVerbRequest(), by="admin")
    lifecycle(machine).execute_verb(NodeName(NODE), "recover", NodeVerbRequest(), by="admin")
    machine.report_all()
    reconcile(machine)
    assert node(machine).state == "Available", "somebody has looked at it: counting begins anew"
    assert node(machine, NEIGHBOUR).state == "Available"
    lifecycle(machine).execute_verb(NodeName("sn0-c05-n3"), "recover", NodeVerbRequest(), by="admin")
    reconcile(machine)
    assert node(machine, NEIGHBOUR).state == "Quarantined", "there is room for it"


def test_simultaneous_losses_do_not_raise_scores(machine):
    many = [f"sn0-c{cabinet:02}-n{number}" for cabinet in range(3) for number in range(3)]
    assert len(many) > flap_rules().together_max
    flap(machine, *many, times=5)
    assert {node(machine, name).state for name in many} == {"Available"}
    assert {node(machine, name).flap_score for name in many} == {0.0}
