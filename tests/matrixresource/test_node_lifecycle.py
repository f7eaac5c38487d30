"""What is wanted of nodes: verbs by state, what a report makes of them, and which nodes do not get on."""

from __future__ import annotations

import pytest

from matrixcommon.model.errors import Conflict
from matrixcommon.model.hardware_names import NodeName
from matrixresource.allocations.node_lifecycle import DESIRED_BY_VERB, NodeLifecycle
from matrixresource.allocations.stuck_nodes import REMEDIES, stuck_nodes
from matrixresource.contract.nodes import NodeVerbRequest, NodeView
from matrixresource.nodes.states import ALLOCATED, NODE_STATES, node_state
from tests.matrixresource.machine import Machine

NODE = NodeName("sn0-c05-n1")


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)


def execute_verb(machine: Machine, verb: str, node: NodeName = NODE, force: bool = False) -> NodeView:
    lifecycle = NodeLifecycle(machine.store, machine.allocator, machine.clock)
    return lifecycle.execute_verb(node, verb, NodeVerbRequest(force=force), by="admin")


def node(machine: Machine, name: NodeName = NODE) -> NodeView:
    with machine.store.reading() as session:
        return machine.store.node(session, name).view()


def test_every_verb_is_in_the_table_and_what_it_wants_is_known():
    assert DESIRED_BY_VERB.keys() == NODE_STATES.verbs.keys()


@pytest.mark.parametrize("state", NODE_STATES.states)
def test_a_verb_that_is_not_for_a_state_is_refused_with_those_that_are(state):
    legal = {verb.name for verb in NODE_STATES.verbs.values() if state in verb.after}
    for verb in NODE_STATES.verbs.keys() - legal:
        with pytest.raises(Conflict) as refused:
            NODE_STATES.asked(verb, state)
        named = refused.value.message.partition("it may be asked to: ")[2]
        assert {each.strip(" :") for each in named.split(",")} == (legal or {"nothing"})


@pytest.mark.parametrize("before", ["Cleaning", "Quarantined", "Available"])
@pytest.mark.parametrize(
    ("parts", "expected"), [(["Preparing"], "Deploying"), (["Active"], "Active"), ([], "Available")]
)
def test_a_node_that_several_share_shows_what_they_do_there_whatever_it_was_before(before, parts, expected):
    """Its fault is over, or what was left of it is wiped: nobody checks a node that others are using."""
    after = node_state(
        allocated=False, agent="Connected", health="Healthy", status="Clean", in_sync=True, parts=parts, shared=True
    )
    assert after == expected
    assert after in {before, *NODE_STATES.moves[before]}


@pytest.mark.parametrize("before", ALLOCATED)
def test_a_node_that_was_released_may_be_seen_next_once_it_is_clean(before):
    clean = node_state(allocated=False, agent="Connected", health="Healthy", status="Clean", in_sync=True)
    assert clean in NODE_STATES.moves[before], "reports in between can be lost"


def test_a_node_that_is_recovered_while_it_is_away_is_wiped_before_it_is_checked():
    after = node_state(allocated=False, agent="Connected", health="Healthy", status="Cleaning", in_sync=True)
    assert after == "Cleaning"
    assert after in NODE_STATES.moves["Quarantined"]
    assert "Verifying" in NODE_STATES.moves[after]


def test_every_passing_state_has_a_deadline_and_says_what_helps():
    passing = {state.name for state in NODE_STATES.states.values() if state.name.endswith("ing")} - {"Servicing"}
    assert {name for name in passing if NODE_STATES.states[name].deadline_s} == passing == REMEDIES.keys()


@pytest.mark.parametrize(
    ("verbs", "state"),
    [
        (["service"], "Servicing"),
        (["quarantine"], "Quarantined"),
        (["quarantine", "service"], "Servicing"),
        (["service", "recover"], "Available"),
        (["verify"], "Manageable"),
        (["verify", "inspect"], "Manageable"),
        (["verify", "clean"], "Available"),
        (["verify", "verify", "recover"], "Available"),
        (["retire"], "Retired"),
        (["retire", "enrol"], "Available"),
        (["quarantine", "retire", "enrol"], "Available"),
    ],
)
def test_verbs_reach_their_state(machine, verbs, state):
    for verb in verbs:
        execute_verb(machine, verb)
        assert execute_verb(machine, verb).state == node(machine).state, "asked twice it finds what it did"
        machine.report_all()
    shown = node(machine)
    assert (shown.state, shown.schedulable) == (state, state == "Available")


def test_out_of_service_nodes_are_never_allocated(machine):
    for name, verb in (("sn0-c00-n0", "service"), ("sn0-c00-n1", "quarantine"), ("sn0-c00-n2", "retire")):
        execute_verb(machine, verb, NodeName(name))
    machine.provision("all", nodes=45)
    assert not {"sn0-c00-n0", "sn0-c00-n1", "sn0-c00-n2"} & {each.node for each in machine.allocation("all").members}
    with pytest.raises(Conflict):
        machine.reserve("more", nodes=1)


def test_held_node_leaves_service_only_by_force(machine):
    member = NodeName(machine.provision("a", nodes=2).members[0].node)
    for verb in ("quarantine", "retire"):
        with pytest.raises(Conflict, match=r"held by a.*force"):
            execute_verb(machine, verb, member)
    assert execute_verb(machine, "service", member).state == "Draining"
    assert machine.allocation("a").state == "Bound"
    assert execute_verb(machine, "quarantine", member, force=True).state == "Quarantined"
    allocation = machine.allocation("a")
    assert allocation.state == "Degraded"
    assert next(each for each in allocation.members if each.node == member).gone
    with pytest.raises(Conflict, match="replace it first"):
        execute_verb(machine, "recover", member)
    machine.allocator.replace("a", member, "NodeQuarantined")
    machine.report_all()
    assert machine.allocation("a").state == "Bound"
    assert execute_verb(machine, "recover", member).state == "Verifying"
    machine.report_all()
    assert node(machine, member).state == "Available"


def test_a_node_past_its_deadline_is_stuck_with_what_helps(machine):
    execute_verb(machine, "verify")
    machine.report_all(status="Verifying")

    def stuck() -> list[str]:
        with machine.store.reading() as session:
            return [
                each.message for each in stuck_nodes(machine.store, session, machine.clock.now()) if each.name == NODE
            ]

    machine.clock.at += 599
    machine.report_all(status="Verifying")
    assert stuck() == []
    machine.clock.at += 2
    (message,) = stuck()
    assert message.startswith("Verifying for longer than 600 s")
    assert ":quarantine" in message
    machine.restart()
    assert stuck() == [message]
    execute_verb(machine, "quarantine")
    assert stuck() == []
