"""What a reservation is requested with: the capacity and placement of an allocation, and a time of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from matrixcommon.model.errors import InvalidField, StaleTopology
from matrixcommon.model.quantities import timestamp
from matrixcommon.persistence.database_session import find
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.requested_capacity import CapacityRequest
from matrixresource.contract.reservations import OF_ALLOCATIONS, ReservationRequest
from matrixresource.store.reservations import ReservationRow
from tests.matrixresource.machine import Machine

TIME = {"startsAt": "2100-01-01T00:00:00Z", "durationS": 3600}
DEFAULTS = {"leaseS": None, "reservation": None, "preemption": "Never"}
STORED = {
    "project": "default", "labels": {}, "nodes": 2, "cpus": 0, "memoryGib": 0, "memoryGibByNode": {}, "spares": 0,
    "placement": {"policy": "pack", "level": "cabinet", "required": False, "blocks": []}, "priority": 0,
    "preemption": "Never", "topologyVersion": "", "excludeNodes": [],
}  # fmt: skip
"""A request in the database of a release whose reservations had the fields of allocations."""


def wire_names(model: type[CapacityRequest]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def test_it_declares_what_an_allocation_does_except_what_it_refuses() -> None:
    assert wire_names(AllocationRequest) - wire_names(ReservationRequest) == {*OF_ALLOCATIONS}
    assert wire_names(ReservationRequest) - wire_names(AllocationRequest) == {*TIME}


@pytest.mark.parametrize(
    ("more", "instead"),
    [
        ({"leaseS": 60}, "durationS"),
        ({"leaseS": None}, "durationS"),
        ({"reservation": "other"}, "startsAt and durationS of its own"),
        ({"preemption": "LowerPriority"}, "kept free for it from startsAt on"),
        ({"preemption": "Never"}, "kept free for it from startsAt on"),
    ],
)
def test_fields_of_allocations_are_refused_with_what_it_has_instead(more: dict[str, Any], instead: str) -> None:
    (field,) = more
    with pytest.raises(InvalidField, match=instead) as refused:
        ReservationRequest.model_validate({"nodes": 1} | TIME | more)
    assert refused.value.field == field
    assert refused.value.message.startswith(f"{field}: a reservation ")


def test_stored_with_the_defaults_of_an_allocation_it_is_read() -> None:
    stored = {"nodes": 2, "spares": 1} | TIME | DEFAULTS
    assert ReservationRequest.from_stored(stored) == ReservationRequest.model_validate({"nodes": 2, "spares": 1} | TIME)
    with pytest.raises((InvalidField, ValidationError)):
        ReservationRequest.from_stored(stored | {"leaseS": 60})


def test_a_row_of_an_earlier_release_is_shown_and_found_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    put = machine.allocator.reservations.put
    put("later", ReservationRequest.model_validate({"nodes": 2} | TIME))
    with machine.store.transaction() as session:
        find(session, ReservationRow, "later").request = STORED
    machine.restart()
    shown = machine.reservation("later")
    assert shown.request == {"nodes": 2}
    assert put("later", ReservationRequest.model_validate(shown.request | TIME)).generation == shown.generation


def test_it_becomes_the_spec_of_an_allocation() -> None:
    asked = {
        "project": "team",
        "labels": {"team": "search"},
        "npus": 16,
        "npusPerNode": 4,
        "cpus": 2,
        "memoryGib": 64,
        "spares": 1,
        "placement": {"policy": "spread", "level": "cabinet", "maxPerDomain": 2},
        "antiAffinity": {"allocations": ["a"]},
        "priority": 3,
        "topologyVersion": "v1",
        "excludeNodes": ["sn0-c00-n0"],
    }
    assert ReservationRequest.model_validate(asked | TIME).spec() == AllocationRequest.model_validate(asked)


@pytest.mark.parametrize("asked", [{}, {"nodes": 1, "npus": 8}, {"memoryGib": 1, "spares": 1}])
def test_its_size_is_checked_as_that_of_an_allocation(asked: dict[str, Any]) -> None:
    for model, more in ((AllocationRequest, {}), (ReservationRequest, TIME)):
        with pytest.raises(ValidationError, match="nodes or npus"):
            model.model_validate(asked | more)


def test_one_planned_on_another_topology_is_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    request = {"nodes": 1, "durationS": 60, "startsAt": timestamp(machine.clock.now() + 100)}
    version = machine.planner.fragmentation().topology_version
    put = machine.allocator.reservations.put
    with pytest.raises(StaleTopology) as refused:
        put("later", ReservationRequest.model_validate(request | {"topologyVersion": "sn0-spec-0-graph-0"}))
    assert refused.value.field == "topologyVersion"
    assert put("later", ReservationRequest.model_validate(request | {"topologyVersion": version})).state == "Promised"
