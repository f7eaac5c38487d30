"""Fences: while a silent node may still hold an ended slice, none of the keys that it may use is given out again."""

import pytest

from matrixcommon.persistence.table_cache import all_rows
from matrixlink.contract.peerings import PeeringRequest
from matrixlink.store.tables import FenceRow, PeeringRow
from tests.matrixlink.fleet import NODES, slice_request
from tests.matrixlink.machine import LinkMachine, ObedientAgent

SILENT = NODES[3]


@pytest.fixture
def machine(tmp_path):
    made = LinkMachine(tmp_path)
    yield made
    made.close()


@pytest.fixture
def agents():
    return {node: ObedientAgent(node) for node in NODES}


def speaking(agents):
    return [agent for node, agent in agents.items() if node != SILENT]


def expire_lease(machine, agents):
    """Its lease runs out; the others go on reporting."""
    for _ in range(3):
        machine.clock.at += 25
        machine.settle(speaking(agents), 1)


def ensure(machine, name, members=NODES):
    machine.board.admit(name, slice_request(members=members, instance=name, allocation=name))
    machine.board.program(name)
    return machine.shown(name).isolation_key


def fences(machine):
    with machine.store.reading() as session:
        return sorted((row.node, row.isolation_key) for row in all_rows(session, FenceRow))


def test_a_recreated_slice_leaves_a_second_fence(machine, agents):
    first = ensure(machine, "a")
    machine.settle(agents.values())
    expire_lease(machine, agents)
    machine.board.withdraw("a")
    machine.settle(speaking(agents))
    second = ensure(machine, "a")
    machine.settle(speaking(agents))
    machine.board.withdraw("a")
    machine.settle(speaking(agents))
    assert agents[SILENT].tables["a"][1].isolation_key == first
    assert fences(machine) == [(SILENT, first), (SILENT, second)]
    assert ensure(machine, "b", NODES[:2]) not in (first, second)
    machine.settle(agents.values())
    assert fences(machine) == []


def test_a_fence_remains_while_the_agent_works_on_a_newer_generation(machine, agents):
    first = ensure(machine, "a")
    machine.settle(agents.values())
    expire_lease(machine, agents)
    machine.board.withdraw("a")
    machine.settle(speaking(agents))
    assert ensure(machine, "a") != first
    back = agents[SILENT]
    machine.reports.take([back.report()])
    generation = machine.shown("a").generation
    report = back.report()
    report.programs[0].generation, report.programs[0].status = generation, "Programming"
    machine.reports.take([report])
    assert fences(machine) == [(SILENT, first)], "its switches forward by the old table still"
    machine.settle(agents.values())
    assert fences(machine) == []


@pytest.mark.parametrize("ends", [False, True], ids=["leaves its slice", "has its slice ended"])
def test_a_peerings_key_is_fenced_on_silent_nodes(machine, agents, ends):
    ensure(machine, "a", [NODES[0], SILENT])
    ensure(machine, "b", NODES[1:3])
    machine.peerings.ensure("p", PeeringRequest(slices=["a", "b"]))
    machine.settle(agents.values())
    key = machine.peerings.get("p").isolation_key
    expire_lease(machine, agents)
    if ends:
        machine.board.withdraw("a")
    else:
        ensure(machine, "a", [NODES[0]])
        machine.settle(speaking(agents))
        machine.peerings.delete("p")
    machine.settle(speaking(agents))
    with machine.store.reading() as session:
        assert all_rows(session, PeeringRow) == [], "a node that is gone for good does not keep it"
    assert [each.isolation_key for each in agents[SILENT].tables["a"][1].peerings] == [key]
    assert (SILENT, key) in fences(machine)
    assert ensure(machine, "c", NODES[1:3]) != key
    machine.settle(agents.values())
    assert fences(machine) == []
