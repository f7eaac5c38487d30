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


def promise(machine, name, **desired):
    asked = {"project": "team", "startsAt": timestamp(machine.clock.at + 100), "durationS": 1000} | desired
    machine.allocator.reservations.put(name, ReservationRequest.model_validate(asked))


def its_time_comes(machine):
    machine.clock.at += 101
    machine.allocator.reservations.reconcile()


def ask(machine, name, **desired):
    machine.ask(name, **{"project": "team"} | desired)


def test_a_list_goes_through_all_allocations_once_however_many_quotas_there_are(machine):
    def asked() -> int:
        statements = list[str]()

        def heard(connection: object, cursor: object, statement: str, *_: object) -> None:
            statements.append(statement)

        event.listen(machine.database.engine, "before_cursor_execute", heard)
        listed = machine.quotas.list()
        event.remove(machine.database.engine, "before_cursor_execute", heard)
        assert {quota.name: quota.used_npus for quota in listed} == {quota.name: 8 for quota in listed}
        return len(statements)

    machine.ask("job-0", nodes=1, project="team")
    one = asked()
    for number in range(5):
        machine.quotas.put(f"team-{number}", QuotaRequest(npus=LIMIT))
        promise(machine, f"later-{number}", nodes=1, project=f"team-{number}")
    assert asked() == one


TAKEN = [
    ("three nodes beside two promised", ask, {"nodes": 3}, False),
    ("two beside them", ask, {"nodes": 2}, True),
    ("two more promised", promise, {"nodes": 2}, True),
    ("two and a spare more promised", promise, {"nodes": 2, "spares": 1}, False),
    ("another project's", ask, {"nodes": 9, "project": "other"}, True),
]


@pytest.mark.parametrize(("sentence", "verb", "spec", "fits"), TAKEN, ids=[each[0] for each in TAKEN])
def test_two_nodes_are_promised_of_four(machine, sentence, verb, spec, fits):
    promise(machine, "tomorrow", nodes=2)
    assert machine.quotas.get("team").used_npus == 16
    if not fits:
        with pytest.raises(
            QuotaExceeded, match=r"'team' has a quota of 32 NPUs, of which 16 are in use elsewhere, but needs 24 here"
        ):
            verb(machine, "next", **spec)
        return
    verb(machine, "next", **spec)
    its_time_comes(machine)
    assert machine.promise("tomorrow").state == "Active"
    assert machine.quotas.get("team").used_npus <= LIMIT


def test_what_is_taken_from_its_own_reservation_is_counted_once(machine):
    promise(machine, "tomorrow", nodes=4)
    its_time_comes(machine)
    with pytest.raises(QuotaExceeded):
        ask(machine, "more", npus=1)
    ask(machine, "job", nodes=3, reservation="tomorrow")
    assert machine.quotas.get("team").used_npus == LIMIT
    machine.allocator.release("tomorrow")
    ask(machine, "more", nodes=1)


def test_what_goes_beyond_its_own_reservation_is_counted(machine):
    """A reservation of one node does not open the door to forty."""
    promise(machine, "tomorrow", nodes=1)
    its_time_comes(machine)
    with pytest.raises(QuotaExceeded):
        ask(machine, "job", nodes=40, reservation="tomorrow")
    ask(machine, "job", nodes=1, reservation="tomorrow")
    assert machine.quotas.get("team").used_npus == 8


def test_a_promise_given_up_counts_no_more(machine):
    promise(machine, "tomorrow", nodes=4)
    machine.allocator.reservations.delete("tomorrow")
    ask(machine, "now", nodes=4)


def test_who_is_above_a_lowered_limit_keeps_what_it_has_and_may_take_less(machine):
    ask(machine, "one", nodes=4)
    machine.quotas.put("team", QuotaRequest(npus=8))
    with pytest.raises(QuotaExceeded):
        ask(machine, "one", nodes=5)
    ask(machine, "one", nodes=3)
    with pytest.raises(QuotaExceeded):
        ask(machine, "one", nodes=4)


def test_what_was_promised_before_the_limit_was_lowered_is_held_and_may_be_taken(machine):
    promise(machine, "tomorrow", nodes=3)
    ask(machine, "today", nodes=1)
    machine.quotas.put("team", QuotaRequest(npus=8))
    its_time_comes(machine)
    assert machine.promise("tomorrow").state == "Active"
    assert machine.quotas.get("team").used_npus == LIMIT
    with pytest.raises(QuotaExceeded):
        promise(machine, "later", nodes=1)
    with pytest.raises(QuotaExceeded):
        ask(machine, "more", npus=1)
    with pytest.raises(QuotaExceeded):
        ask(machine, "job", nodes=4, reservation="tomorrow")
    ask(machine, "job", nodes=3, reservation="tomorrow")
    assert machine.quotas.get("team").used_npus == LIMIT


def test_a_move_to_more_nodes_counts_from_its_beginning(machine):
    machine.have("one", project="team", nodes=2)
    elsewhere = {"project": "team", "placement": {"policy": "spread"}}
    with pytest.raises(QuotaExceeded):
        machine.allocator.move("one", AllocationRequest.model_validate({"nodes": 5, **elsewhere}))
    request = AllocationRequest.model_validate({"nodes": 4, **elsewhere})
    machine.allocator.move("one", request)
    with pytest.raises(QuotaExceeded):
        ask(machine, "more", npus=1)
    machine.allocator.bind("one")
    machine.obey()
    assert machine.allocator.cut_over("one", request).nodes == 4
