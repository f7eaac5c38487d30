"""Quotas: what a project holds and is promised counts, once, and never comes above its limits."""

from __future__ import annotations

import pytest
from sqlalchemy import event

from matrixcommon.model.errors import QuotaExceeded
from matrixcommon.model.quantities import timestamp
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.quotas import QuotaRequest
from matrixresource.contract.reservations import ReservationRequest
from tests.matrixresource.machine import Machine

LIMIT = 32
"""NPUs of the project: four nodes."""


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    made.quotas.put("team", QuotaRequest(npus=LIMIT))
    yield made
    made.check()


def put_reservation(machine, name, **desired):
    asked = {"project": "team", "startsAt": timestamp(machine.clock.at + 100), "durationS": 1000} | desired
    machine.allocator.reservations.put(name, ReservationRequest.model_validate(asked))


def reach_start(machine):
    machine.clock.at += 101
    machine.allocator.reservations.reconcile()


def reserve(machine, name, **desired):
    machine.reserve(name, **{"project": "team"} | desired)


def test_listing_quotas_reads_allocations_once(machine):
    def asked() -> int:
        statements = list[str]()

        def heard(connection: object, cursor: object, statement: str, *_: object) -> None:
            statements.append(statement)

        event.listen(machine.database.engine, "before_cursor_execute", heard)
        listed = machine.quotas.list()
        event.remove(machine.database.engine, "before_cursor_execute", heard)
        assert {quota.name: quota.used_npus for quota in listed} == {quota.name: 8 for quota in listed}
        return len(statements)

    machine.reserve("job-0", nodes=1, project="team")
    one = asked()
    for number in range(5):
        machine.quotas.put(f"team-{number}", QuotaRequest(npus=LIMIT))
        put_reservation(machine, f"later-{number}", nodes=1, project=f"team-{number}")
    assert asked() == one


TAKEN = [
    ("three nodes beside two promised", reserve, {"nodes": 3}, False),
    ("two beside them", reserve, {"nodes": 2}, True),
    ("two more promised", put_reservation, {"nodes": 2}, True),
    ("two and a spare more promised", put_reservation, {"nodes": 2, "spares": 1}, False),
    ("another project's", reserve, {"nodes": 9, "project": "other"}, True),
]


@pytest.mark.parametrize(("sentence", "verb", "spec", "fits"), TAKEN, ids=[each[0] for each in TAKEN])
def test_two_nodes_are_promised_of_four(machine, sentence, verb, spec, fits):
    put_reservation(machine, "tomorrow", nodes=2)
    assert machine.quotas.get("team").used_npus == 16
    if not fits:
        with pytest.raises(
            QuotaExceeded, match=r"'team' has a quota of 32 NPUs, of which 16 are in use elsewhere, but needs 24 here"
        ):
            verb(machine, "next", **spec)
        return
    verb(machine, "next", **spec)
    reach_start(machine)
    assert machine.reservation("tomorrow").state == "Active"
    assert machine.quotas.get("team").used_npus <= LIMIT


def test_own_reservation_is_counted_once(machine):
    put_reservation(machine, "tomorrow", nodes=4)
    reach_start(machine)
    with pytest.raises(QuotaExceeded):
        reserve(machine, "more", npus=1)
    reserve(machine, "job", nodes=3, reservation="tomorrow")
    assert machine.quotas.get("team").used_npus == LIMIT
    machine.allocator.release("tomorrow")
    reserve(machine, "more", nodes=1)


def test_usage_beyond_own_reservation_is_counted(machine):
    """A reservation of one node does not open the door to forty."""
    put_reservation(machine, "tomorrow", nodes=1)
    reach_start(machine)
    with pytest.raises(QuotaExceeded):
        reserve(machine, "job", nodes=40, reservation="tomorrow")
    reserve(machine, "job", nodes=1, reservation="tomorrow")
    assert machine.quotas.get("team").used_npus == 8


def test_deleted_reservation_frees_quota(machine):
    put_reservation(machine, "tomorrow", nodes=4)
    machine.allocator.reservations.delete("tomorrow")
    reserve(machine, "now", nodes=4)


def test_lowered_limit_keeps_existing_usage(machine):
    reserve(machine, "one", nodes=4)
    machine.quotas.put("team", QuotaRequest(npus=8))
    with pytest.raises(QuotaExceeded):
        reserve(machine, "one", nodes=5)
    reserve(machine, "one", nodes=3)
    with pytest.raises(QuotaExceeded):
        reserve(machine, "one", nodes=4)


def test_lowered_limit_keeps_reservations(machine):
    put_reservation(machine, "tomorrow", nodes=3)
    reserve(machine, "today", nodes=1)
    machine.quotas.put("team", QuotaRequest(npus=8))
    reach_start(machine)
    assert machine.reservation("tomorrow").state == "Active"
    assert machine.quotas.get("team").used_npus == LIMIT
    with pytest.raises(QuotaExceeded):
        put_reservation(machine, "later", nodes=1)
    with pytest.raises(QuotaExceeded):
        reserve(machine, "more", npus=1)
    with pytest.raises(QuotaExceeded):
        reserve(machine, "job", nodes=4, reservation="tomorrow")
    reserve(machine, "job", nodes=3, reservation="tomorrow")
    assert machine.quotas.get("team").used_npus == LIMIT


def test_a_move_to_more_nodes_counts_from_its_beginning(machine):
    machine.provision("one", project="team", nodes=2)
    elsewhere = {"project": "team", "placement": {"policy": "spread"}}
    with pytest.raises(QuotaExceeded):
        machine.allocator.move("one", AllocationRequest.model_validate({"nodes": 5, **elsewhere}))
    request = AllocationRequest.model_validate({"nodes": 4, **elsewhere})
    machine.allocator.move("one", request)
    with pytest.raises(QuotaExceeded):
        reserve(machine, "more", npus=1)
    machine.allocator.bind("one")
    machine.report_all()
    assert machine.allocator.cut_over("one", request).nodes == 4
