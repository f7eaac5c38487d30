"""A communicator whose slice grows until its flows are too many is not followed, and displaces nobody else's."""

import pytest

from matrixlink.communicators import service
from matrixlink.communicators.service import Communicators
from matrixlink.contract.communicators import CommunicatorRequest
from tests.matrixlink.fleet import NODES, slice_request
from tests.matrixlink.machine import LinkMachine

RING_FLOWS = 16 * 7
"""Of the dies of one node, over seven sub-planes."""


@pytest.fixture
def machine(tmp_path):
    made = LinkMachine(tmp_path)
    yield made
    made.close()


def admit(machine, name, members):
    machine.board.admit(name, slice_request(members=members, instance=name, allocation=name, floor_gbps_per_npu=10.0))


async def test_an_oversized_communicator_has_no_flows_until_it_fits_again(machine, monkeypatch):
    monkeypatch.setattr(service, "FLOWS_MAX", 3 * RING_FLOWS)
    communicators = Communicators(machine.store, machine.fabric, machine.clock)
    for name in ("a", "b"):
        admit(machine, name, NODES[:1])
        communicators.ensure(name, CommunicatorRequest.model_validate({"slice": name, "pattern": "ring"}))
    admit(machine, "a", NODES[:3])
    await communicators.watch()
    assert {view.name: view.state for view in communicators.all()} == {"a": "Oversized", "b": "Flowing"}
    assert (communicators.get("a").traffic, communicators.traffic_and_group("a")[1]) == (None, None)
    assert len(communicators.plane("sn0").flows) == RING_FLOWS
    restarted = Communicators(machine.store, machine.fabric, machine.clock)
    assert {view.name: view.state for view in restarted.all()} == {"a": "Oversized", "b": "Flowing"}
    admit(machine, "a", NODES[:2])
    assert {view.name: view.state for view in communicators.all()} == {"a": "Flowing", "b": "Flowing"}
    communicators.ensure("b", CommunicatorRequest.model_validate({"slice": "b", "pattern": "ring", "seed": 1}))
    assert communicators.get("b").traffic.flows == RING_FLOWS
