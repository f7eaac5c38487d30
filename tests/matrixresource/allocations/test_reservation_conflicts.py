"""A refusal that is due to reservations names them, what they have, and what would fit beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixcommon.model.errors import InsufficientCapacity
from matrixcommon.model.quantities import timestamp
from matrixresource.contract.reservations import ReservationRequest
from tests.matrixresource.machine import Machine

HOUR_S = 3600.0


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def put_reservation(machine: Machine, name: str, nodes: int, after_s: float, lasts_s: float = HOUR_S) -> None:
    starts = timestamp(machine.clock.now() + after_s)
    request = {"nodes": nodes, "startsAt": starts, "durationS": lasts_s}
    machine.allocator.reservations.put(name, ReservationRequest.model_validate(request))


def obstacles(refused: InsufficientCapacity) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in refused.blocking:
        for why, count in each["obstacles"].items():
            found[why] = found.get(why, 0) + count
    return found


def test_refusal_names_the_reservation_and_a_fitting_lease(machine: Machine) -> None:
    put_reservation(machine, "all", 48, HOUR_S)
    begin, end = timestamp(machine.clock.now() + HOUR_S), timestamp(machine.clock.now() + 2 * HOUR_S)
    with pytest.raises(InsufficientCapacity) as refused:
        machine.reserve("job", nodes=4)
    assert refused.value.message == (
        f"4 nodes do not fit: the free capacity is promised to reservation all ({begin} to {end}); "
        f"it would fit with a lease (`leaseS`) that ends by {begin}"
    )
    assert obstacles(refused.value) == {"Promised": 48}
    assert sum(each["free"] for each in refused.value.blocking) == 0
    machine.reserve("job", nodes=4, leaseS=HOUR_S)


def test_refused_reservation_names_the_conflicting_one(machine: Machine) -> None:
    put_reservation(machine, "noon", 40, HOUR_S)
    put_reservation(machine, "night", 40, 4 * HOUR_S)
    with pytest.raises(InsufficientCapacity, match=r"promised to reservation noon \(") as refused:
        put_reservation(machine, "soon", 10, 0.5 * HOUR_S)
    assert "leaseS" not in refused.value.message
    with pytest.raises(InsufficientCapacity, match=r"promised to reservations noon \(.*, night \("):
        put_reservation(machine, "long", 10, 0.5 * HOUR_S, 5 * HOUR_S)
    put_reservation(machine, "between", 48, 2 * HOUR_S)


def test_reservation_considers_expiring_leases(machine: Machine) -> None:
    machine.provision("goes", nodes=40, leaseS=HOUR_S)
    machine.provision("stays", nodes=2)
    put_reservation(machine, "later", 46, 2 * HOUR_S)
    machine.allocator.reservations.delete("later")
    with pytest.raises(InsufficientCapacity, match="no supernode has more than 46 free nodes"):
        put_reservation(machine, "later", 47, 2 * HOUR_S)


def test_reservations_are_not_blamed_for_other_refusals(machine: Machine) -> None:
    machine.provision("here", nodes=46)
    put_reservation(machine, "later", 1, HOUR_S)
    with pytest.raises(InsufficientCapacity, match="no supernode has more than 2 free nodes") as refused:
        machine.reserve("job", nodes=3)
    assert obstacles(refused.value) == {"Held": 46, "Promised": 1}


def test_claim_is_limited_to_the_reservation(machine: Machine) -> None:
    put_reservation(machine, "tomorrow", 8, 1.0)
    put_reservation(machine, "after", 8, 2 * HOUR_S)
    machine.clock.at += 1.0
    machine.allocator.reservations.reconcile()
    with pytest.raises(InsufficientCapacity, match="what is left of reservation 'tomorrow' is 8 nodes") as refused:
        machine.reserve("job", nodes=9, reservation="tomorrow")
    assert refused.value.field == "reservation"
