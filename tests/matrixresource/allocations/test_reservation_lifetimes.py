"""What becomes of a reservation whose nodes are taken out, and of its name once what it held is released."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixcommon.model.errors import Conflict, InsufficientCapacity
from matrixcommon.model.quantities import timestamp
from matrixcommon.persistence.database_session import find
from matrixresource.contract.reservations import ReservationRequest
from matrixresource.store.reservations import ReservationRow
from matrixresource.topology.loading import load_spec
from tests.matrixresource.machine import Machine
from tests.matrixresource.topology.three_cabinets import three_cabinets


class MachineWithReservation(Machine):
    """Two small supernodes, and a promise of two nodes in the second."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, supernodes=2, spec=load_spec(three_cabinets()))
        self.reserve("here", nodes=12)
        request = {"nodes": 2, "startsAt": timestamp(self.clock.now() + 60), "durationS": 600}
        promised = self.allocator.reservations.put("later", ReservationRequest.model_validate(request))
        assert {node.partition("-")[0] for node in promised.nodes} == {"sn1"}

    def lose_place(self) -> None:
        """Have it name a place that is no more, as databases do in which supernodes went while they were promised."""
        with self.store.transaction() as session:
            row = find(session, ReservationRow, "later")
            row.place = {
                kind: [[node.replace("sn1-", "sn7-"), amount] for node, amount in entries]
                for kind, entries in row.place.items()
            }

    def due(self) -> str:
        self.clock.at += 60
        self.allocator.reservations.reconcile()
        return self.reservation("later").state


@pytest.fixture
def machine(tmp_path: Path) -> MachineWithReservation:
    return MachineWithReservation(tmp_path)


@pytest.mark.parametrize("moment", ["2100-01-01T00:00:00.123987Z", "2100-01-01T02:00:00+02:00"])
def test_repeating_a_reservation_with_its_shown_times(machine: MachineWithReservation, moment: str) -> None:
    asked = {"nodes": 1, "startsAt": moment, "durationS": 0.0017}
    put = machine.allocator.reservations.put
    shown = put("more", ReservationRequest.model_validate(asked)).wire()
    again = shown["request"] | {name: shown[name] for name in ("startsAt", "durationS")}
    assert put("more", ReservationRequest.model_validate(again)).wire() == shown
    with pytest.raises(Conflict, match="exists with another spec"):
        put("more", ReservationRequest.model_validate(again | {"durationS": 0.01}))


def test_reservation_is_placed_again_when_its_nodes_leave_service(machine: MachineWithReservation) -> None:
    machine.lose_place()
    machine.allocator.release("here")
    assert machine.due() == "Active"
    assert len(machine.allocation("later").members) == 2


def test_reservation_waits_when_no_other_nodes_are_free(machine: MachineWithReservation) -> None:
    machine.lose_place()
    machine.reserve("there", nodes=12)
    assert machine.due() == "Waiting"
    assert "later" not in machine.names()
    (waits,) = machine.reservation("later").conditions or []
    assert (waits.type, waits.status, waits.reason) == ("Scheduled", "False", "InsufficientCapacity")
    assert "of its nodes are not free: sn7-" in waits.message
    assert "(Gone)" in waits.message
    assert waits.message.endswith("nowhere else has room")
    with pytest.raises(Conflict, match=r"later' is Waiting .*not free: sn7-"):
        machine.reserve("from-it", nodes=1, reservation="later")
    machine.allocator.release("here")
    assert machine.due() == "Active"
    (placed,) = machine.reservation("later").conditions or []
    assert (placed.status, placed.reason) == ("True", "Reserved")


def test_supernode_with_promised_nodes_is_not_removed(machine: MachineWithReservation) -> None:
    with pytest.raises(Conflict, match="later is promised nodes of sn1") as refused:
        machine.topology_manager.remove_supernode("sn1", by="me")
    assert refused.value.blocking == [{"domain": "sn1", "reservations": ["later"]}]
    assert machine.due() == "Active"
    with pytest.raises(Conflict, match="sn1 holds 1 allocation"):
        machine.topology_manager.remove_supernode("sn1", by="me")
    machine.allocator.release("later")
    machine.allocator.reservations.reconcile()
    machine.topology_manager.remove_supernode("sn1", by="me")


def test_deleted_reservation_does_not_keep_a_supernode(machine: MachineWithReservation) -> None:
    machine.allocator.reservations.delete("later")
    machine.topology_manager.remove_supernode("sn1", by="me")


def test_reservation_ends_when_its_allocation_is_released(machine: MachineWithReservation) -> None:
    assert machine.due() == "Active"
    machine.allocator.release("later")
    machine.reserve("later", nodes=3)  # somebody else's, before anything looks at reservations again
    with pytest.raises(Conflict, match="is Ended"):
        machine.reserve("job", nodes=1, reservation="later")
    assert len(machine.allocation("later").members) == 3
    machine.check()


def put_reservation(machine: Machine, nodes: int, after_s: float = 200) -> set[str]:
    starts = timestamp(machine.clock.now() + after_s)
    request = ReservationRequest.model_validate({"nodes": nodes, "startsAt": starts, "durationS": 600})
    return set(machine.allocator.reservations.put("promised", request).nodes)


def test_renewed_allocation_does_not_grow_onto_reserved_nodes(tmp_path: Path) -> None:
    machine = Machine(tmp_path, spec=load_spec(three_cabinets()))
    machine.provision("one", nodes=2, leaseS=100)
    machine.allocator.renew("one", 5000)
    nodes = put_reservation(machine, 8)
    with pytest.raises(InsufficientCapacity):
        machine.reserve("one", nodes=6, leaseS=100)
    assert not nodes & {member.node for member in machine.reserve("one", nodes=4, leaseS=100).members}
    machine.check()


def test_reservation_allocation_grows_onto_later_reserved_nodes(
    machine: MachineWithReservation,
) -> None:
    assert machine.due() == "Active"
    nodes = put_reservation(machine, 10, after_s=700)
    grown = machine.reserve("later", nodes=4)
    assert nodes & {member.node for member in grown.members}
    assert grown.expires_at == machine.reservation("later").ends_at
    machine.check()
