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


def look(machine: Machine) -> None:
    asyncio.run(FlappingNodes(machine.store, lifecycle(machine), machine.clock).reconcile())


def node(machine: Machine, name: str = NODE) -> NodeView:
    with machine.store.reading() as session:
        return machine.store.node(session, name).view()


def flap(machine: Machine, *names: str, times: int = 1) -> None:
    """They fall silent and return, checked."""
    for _ in range(times):
        machine.obey(lease_s=LEASE_S)
        machine.clock.at += 2 * LEASE_S + 1
        machine.obey(*names, lease_s=LEASE_S)
        asyncio.run(machine.reports.watch_leases())
        assert {node(machine, name).agent for name in names} == {"Lost"}
        machine.obey(lease_s=LEASE_S)
        machine.obey(lease_s=LEASE_S)  # the check that was asked for
        look(machine)


@pytest.mark.parametrize(
    ("hours_apart", "times", "kept_out"), [(0, 3, False), (0, 4, True), (5, 4, False), (5, 5, True), (24, 20, False)]
)
def test_the_score_is_of_what_happened_lately(hours_apart, times, kept_out):
    rules, score, at = flap_rules(), 0.0, None
    for occasion in range(times):
        now = occasion * hours_apart * HOUR_S
        score, at = rules.raised_score(score, at, now, "AgentLost"), now
    assert (score >= rules.quarantine_at) == kept_out, score


def test_a_node_that_comes_and_goes_is_quarantined_and_back_when_it_has_stood_still(machine):
    flap(machine, NODE, times=3)
    assert node(machine).state == "Available"
    flap(machine, NODE)
    shown = node(machine)
    assert (shown.state, shown.state_reason) == ("Quarantined", "Flapping")
    machine.restart()
    machine.clock.at += DAY_S
    machine.obey()
    look(machine)
    assert node(machine).state == "Quarantined", "the score has halved, and is still above what returns a node"
    machine.clock.at += DAY_S
    machine.obey()
    look(machine)
    assert node(machine).state == "Verifying", "only a check returns it"
    machine.obey()
    assert node(machine).state == "Available"


def test_a_node_with_a_holder_is_kept_out_once_it_is_free(machine):
    holding = machine.have("a", nodes=1).members[0].node
    flap(machine, holding, times=4)
    assert node(machine, holding).state == "Active"
    machine.allocator.release("a")
    machine.obey()
    look(machine)
    assert node(machine, holding).state == "Quarantined"


def test_only_so_many_are_quarantined_at_once_and_the_limit_never_keeps_one_from_coming_back(machine):
    flap(machine, NODE, NEIGHBOUR, ELSEWHERE, times=4)
    kept_out = {name: node(machine, name).state for name in (NODE, NEIGHBOUR, ELSEWHERE)}
    assert kept_out == {NODE: "Quarantined", NEIGHBOUR: "Available", ELSEWHERE: "Quarantined"}
    assert "sn0-c05" in node(machine, NEIGHBOUR).state_message
    lifecycle(machine).execute_verb(NodeName("sn0-c05-n3"), "quarantine", NodeVerbRequest(), by="admin")
    lifecycle(machine).execute_verb(NodeName(NODE), "recover", NodeVerbRequest(), by="admin")
    machine.obey()
    look(machine)
    assert node(machine).state == "Available", "somebody has looked at it: counting begins anew"
    assert node(machine, NEIGHBOUR).state == "Available"
    lifecycle(machine).execute_verb(NodeName("sn0-c05-n3"), "recover", NodeVerbRequest(), by="admin")
    look(machine)
    assert node(machine, NEIGHBOUR).state == "Quarantined", "there is room for it"


def test_nodes_that_fall_silent_together_are_not_held_to_it(machine):
    many = [f"sn0-c{cabinet:02}-n{number}" for cabinet in range(3) for number in range(3)]
    assert len(many) > flap_rules().together_max
    flap(machine, *many, times=5)
    assert {node(machine, name).state for name in many} == {"Available"}
    assert {node(machine, name).flap_score for name in many} == {0.0}
