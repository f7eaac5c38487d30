"""A member that is in no graph any more: what is asked of its slice, and of others, is answered all the same."""

import pytest

from matrixlink.communicators.service import Communicators
from matrixlink.contract.communicators import CommunicatorRequest, Pattern
from matrixlink.contract.drains import DrainRequest
from matrixresource.topology import Supernode
from matrixresource.topology.compiled import compile_with_deviations
from matrixresource.topology.deviations import Deviation
from tests.matrixlink.fleet import NODES, slice_request
from tests.matrixlink.machine import LinkMachine, ObedientAgent

FAR = "sn0-c01-n0"
MEMBERS = [*NODES[:2], FAR]


@pytest.fixture
def machine(tmp_path):
    made = LinkMachine(tmp_path)
    yield made
    made.close()


def remove_from_topology(machine, *nodes):
    """The graph is drawn anew without them."""
    absent = frozenset(Deviation("NodeAbsent", node.removeprefix("sn0-")) for node in nodes)
    topology = compile_with_deviations(machine.fabric.spec, absent)
    assert machine.promises.apply_topology(Supernode("sn0", topology=topology))
    machine.watch()


@pytest.mark.parametrize("pattern", list(Pattern))
async def test_ranks_of_absent_members_send_nothing(machine, pattern):
    communicators = Communicators(machine.store, machine.fabric, machine.clock)
    for name, members in (("a", MEMBERS), ("b", NODES[:2])):
        machine.board.admit(name, slice_request(members=members, instance=name, allocation=name))
        request = {"slice": name, "pattern": pattern}
        communicators.ensure(name, CommunicatorRequest.model_validate(request))
    other = communicators.get("b").traffic
    remove_from_topology(machine, FAR)
    await communicators.watch()
    assert {view.name: view.state for view in communicators.all()} == {"a": "Flowing", "b": "Flowing"}
    assert communicators.get("a").traffic.ranks == other.ranks
    remove_from_topology(machine, *MEMBERS)
    await communicators.watch()
    assert {view.name: view.state for view in communicators.all()} == {"a": "Idle", "b": "Idle"}
    assert communicators.traffic_and_group("a")[1] is None


@pytest.mark.parametrize("plane", ["ub", "rdma", "vpc"])
@pytest.mark.parametrize("element", ["sn0-l2p3-k11", "sn0-spine4", f"{NODES[0]}.vpc"])
def test_drains_complete(machine, plane, element):
    agents = [ObedientAgent(node) for node in MEMBERS]
    machine.board.admit("a", slice_request(plane, MEMBERS, qos_class="BestEffort"))
    machine.board.program("a")
    machine.settle(agents)
    remove_from_topology(machine, FAR)
    drain = DrainRequest(elements=[element], even_if_floors_break=True)
    assert machine.drains.ensure("d", drain).state == "Draining"
