"""Floors follow ports whatever verb comes between: no link is promised beyond what it has, and what is free is given to
those who lack it."""

import pytest

from matrixlink.contract.drains import DrainRequest
from matrixlink.contract.peerings import PeeringRequest
from tests.matrixlink.fleet import NODES, slice_request
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
        name, slice_request(plane, instance=name, allocation=name, floor_gbps_per_npu=floor_gbps, **more)
    )


def kept_shares(machine, *names):
    return [machine.shown(name).floor_kept_gbps_per_npu for name in names]


def lose_lanes(machine, agent, port=PORT):
    """Its report is taken; the watcher has not run yet."""
    agent.ports[port] = 14.0
    machine.reports.take([agent.report()])


def test_a_floor_is_reallocated_if_the_slice_is_programmed_before_the_watcher_runs(machine, agents):
    for name in ("a", "b"):
        admit(machine, name, 190.0)
    lose_lanes(machine, agents[0])
    for name in ("a", "b"):
        machine.board.program(name)
    machine.watch()  # fails where a link is promised beyond what it has
    assert kept_shares(machine, "a")[0] == 190.0
    machine.settle(agents)
    assert {machine.shown(name).state for name in "ab"} == {"Degraded"}


def test_a_floor_is_reallocated_if_the_slice_is_peered_before_the_watcher_runs(machine, agents):
    for name in ("a", "b"):
        admit(machine, name, 190.0)
        machine.board.program(name)
    machine.settle(agents)
    lose_lanes(machine, agents[0])
    machine.peerings.ensure("p", PeeringRequest(slices=["a", "b"]))
    machine.watch()
    machine.settle(agents)
    assert machine.peerings.get("p").state == "Active"


def drain_under_two_slices(machine, agents):
    """One of two floors is cut short, by a drain and no fault."""
    for name in ("a", "b"):
        admit(machine, name, 190.0)
        machine.board.program(name)
    machine.settle(agents)
    machine.drains.ensure("d", DrainRequest(elements=["sn0-ub-p1"], even_if_floors_break=True))
    machine.settle(agents)
    assert (machine.shown("a").state, machine.shown("b").state) == ("Active", "Degraded")
    assert kept_shares(machine, "b")[0] < 190.0


@pytest.mark.parametrize("leaves", [False, True], ids=["asks for less", "leaves nodes"])
def test_released_bandwidth_restores_degraded_floors(machine, agents, leaves):
    drain_under_two_slices(machine, agents)
    if leaves:
        admit(machine, "b", 190.0, members=NODES[:2])
        assert kept_shares(machine, "b")[0] < 190.0
        admit(machine, "a", 190.0, members=NODES[2:])
    else:
        admit(machine, "a", 50.0)
    assert kept_shares(machine, "b") == [190.0]
    machine.settle(agents)
    assert kept_shares(machine, "b") == [190.0]


def test_a_slice_whose_floor_is_restored_by_a_withdrawal_is_active(machine, agents):
    drain_under_two_slices(machine, agents)
    machine.board.withdraw("a")
    machine.settle(agents)
    view = machine.shown("b")
    assert (view.state, view.floor_kept_gbps_per_npu) == ("Active", 190.0)


def test_a_restart_restores_nothing_to_a_withdrawing_slice(machine, agents):
    for name in ("a", "b"):
        admit(machine, name, 25.0, "rdma")
        machine.board.program(name)
    machine.settle(agents)
    machine.board.withdraw("a")
    agents[0].ports["rdma-npu0-die0"] = 0.0
    machine.reports.take([agents[0].report()])
    machine.watch()
    before = kept_shares(machine, "b")[0]
    assert before == 12.5, "what it has on the other port stays booked until its agents have cleared it"
    machine.restart()
    machine.watch()
    assert machine.shown("a").state == "Withdrawing"
    assert kept_shares(machine, "b")[0] == before
