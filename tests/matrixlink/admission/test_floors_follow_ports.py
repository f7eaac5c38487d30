"""Floors follow ports whatever verb comes between: no link is promised beyond what it has, and what is free is given to
those who lack it."""

import pytest

from matrixlink.contract.peerings import PeeringRequest
from tests.matrixlink.fleet import NODES, a_request
from tests.matrixlink.machine import LinkMachine, ObedientAgent

PORT = "ub-p3-k11"


@pytest.fixture
def machine(tmp_path):
    made = LinkMachine(tmp_path)
    yield made
    made.close()


@pytest.fixture
def agents():
    return [ObedientAgent(node) for node in NODES]


def admit(machine, name, floor_gbps, plane="ub", **more):
    return machine.board.admit(
        name, a_request(plane, instance=name, allocation=name, floor_gbps_per_npu=floor_gbps, **more)
    )


def kept(machine, *names):
    return [machine.shown(name).floor_kept_gbps_per_npu for name in names]


def loses_lanes(machine, agent, port=PORT):
    """Its report is taken; the watcher has not run yet."""
    agent.ports[port] = 14.0
    machine.reports.take([agent.report()])


def test_a_slice_programmed_between_a_loss_and_the_watcher_has_its_floor_decided_anew(machine, agents):
    for name in ("a", "b"):
        admit(machine, name, 190.0)
    loses_lanes(machine, agents[0])
    for name in ("a", "b"):
        machine.board.program(name)
    machine.watch()  # fails where a link is promised beyond what it has
    assert kept(machine, "a")[0] == 190.0
    machine.settle(agents)
    assert {machine.shown(name).state for name in "ab"} == {"Degraded"}


def test_so_has_one_that_is_peered_between(machine, agents):
    for name in ("a", "b"):
        admit(machine, name, 190.0)
        machine.board.program(name)
    machine.settle(agents)
    loses_lanes(machine, agents[0])
    machine.peerings.ensure("p", PeeringRequest(slices=["a", "b"]))
    machine.watch()
    machine.settle(agents)
    assert machine.peerings.get("p").state == "Active"
