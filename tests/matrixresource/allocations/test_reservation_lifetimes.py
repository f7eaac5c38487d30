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


class Promising(Machine):
    """Two small supernodes, and a promise of two nodes in the second."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, supernodes=2, spec=load_spec(three_cabinets()))
        self.ask("here", nodes=12)
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
        return self.promise("later").state


@pytest.fixture
def machine(tmp_path: Path) -> Promising:
    return Promising(tmp_path)


@pytest.mark.parametrize("moment", ["2100-01-01T00:00:00.123987Z", "2100-01-01T02:00:00+02:00"])
def test_a_promise_is_found_by_what_is_shown_of_it(machine: Promising, moment: str) -> None:
    asked = {"nodes": 1, "startsAt": moment, "durationS": 0.0017}
    put = machine.allocator.reservations.put
    shown = put("more", ReservationRequest.model_validate(asked)).wire()
    again = shown["request"] | {name: shown[name] for name in ("startsAt", "durationS")}
    assert put("more", ReservationRequest.model_validate(again)).wire() == shown
    with pytest.raises(Conflict, match="exists with another spec"):
        put("more", ReservationRequest.model_validate(again | {"durationS": 0.01}))


def test_one_whose_nodes_were_taken_out_is_held_elsewhere(machine: Promising) -> None:
    machine.lose_place()
    machine.allocator.release("here")
    assert machine.due() == "Active"
    assert len(machine.allocation("later").members) == 2


def test_one_whose_nodes_were_taken_out_waits_where_there_are_no_others(machine: Promising) -> None:
    machine.lose_place()
    machine.ask("there", nodes=12)
    assert machine.due() == "Waiting"
    assert "later" not in machine.names()
    (waits,) = machine.promise("later").conditions or []
    assert (waits.type, waits.status, waits.reason) == ("Scheduled", "False", "InsufficientCapacity")
    assert "of its nodes are not free: sn7-" in waits.message
    assert "(Gone)" in waits.message
    assert waits.message.endswith("nowhere else has room")
    with pytest.raises(Conflict, match=r"later' is Waiting .*not free: sn7-"):
        machine.ask("from-it", nodes=1, reservation="later")
    machine.allocator.release("here")
    assert machine.due() == "Active"
    (placed,) = machine.promise("later").conditions or []
    assert (placed.status, placed.reason) == ("True", "Reserved")


def test_a_supernode_of_which_nodes_are_promised_is_not_removed(machine: Promising) -> None:
    with pytest.raises(Conflict, match="later is promised nodes of sn1") as refused:
        machine.topology_manager.remove_supernode("sn1", by="me")
    assert refused.value.blocking == [{"domain": "sn1", "reservations": ["later"]}]
    assert machine.due() == "Active"
    with pytest.raises(Conflict, match="sn1 holds 1 allocation"):
        machine.topology_manager.remove_supernode("sn1", by="me")
    machine.allocator.release("later")
    machine.allocator.reservations.reconcile()
    machine.topology_manager.remove_supernode("sn1", by="me")


def test_a_promise_that_was_given_up_keeps_no_supernode(machine: Promising) -> None:
    machine.allocator.reservations.delete("later")
    machine.topology_manager.remove_supernode("sn1", by="me")


def test_it_is_over_as_soon_as_what_it_held_is_released(machine: Promising) -> None:
    assert machine.due() == "Active"
    machine.allocator.release("later")
    machine.ask("later", nodes=3)  # somebody else's, before anything looks at reservations again
    with pytest.raises(Conflict, match="is Ended"):
        machine.ask("job", nodes=1, reservation="later")
    assert len(machine.allocation("later").members) == 3
    machine.check()


def promised(machine: Machine, nodes: int, after_s: float = 200) -> set[str]:
    starts = timestamp(machine.clock.now() + after_s)
    request = ReservationRequest.model_validate({"nodes": nodes, "startsAt": starts, "durationS": 600})
    return set(machine.allocator.reservations.put("promised", request).nodes)


def test_who_was_renewed_beyond_a_start_grows_onto_nothing_of_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, spec=load_spec(three_cabinets()))
    machine.have("one", nodes=2, leaseS=100)
    machine.allocator.renew("one", 5000)
    nodes = promised(machine, 8)
    with pytest.raises(InsufficientCapacity):
        machine.ask("one", nodes=6, leaseS=100)
    assert not nodes & {member.node for member in machine.ask("one", nodes=4, leaseS=100).members}
    machine.check()


def test_what_a_reservation_holds_grows_until_its_end_onto_what_is_promised_after_it(machine: Promising) -> None:
    assert machine.due() == "Active"
    nodes = promised(machine, 10, after_s=700)
    grown = machine.ask("later", nodes=4)
    assert nodes & {member.node for member in grown.members}
    assert grown.expires_at == machine.promise("later").ends_at
    machine.check()
