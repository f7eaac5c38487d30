"""Defragmentations, and the moves that MatrixResource makes itself, as operations: seen, cancelled, refused, late."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixcommon.model.errors import Conflict
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.workflows import verbs
from matrixcommon.workflows.contract import OperationRecord, WorkflowDrainRequest
from matrixcommon.workflows.operations import Operations
from matrixresource.defragmentation.eligibility import migration_owner
from matrixresource.defragmentation.workflows import DefragmentationHost
from tests.clocks import StandingClock
from tests.matrixresource.test_defragmentations import ScatteredMachine


class MachineWithOperations(ScatteredMachine):
    """The same, with the verbs over operations."""

    def start(self, names: list[str]) -> None:
        super().start(names)
        clock = StandingClock(self.clock)
        self.operations = Operations(
            self.runner, DefragmentationHost(self.store, self.allocator, clock), clock, lambda: None
        )

    def listed(self, verb: str) -> list[OperationRecord]:
        with self.store.reading() as session:
            rows = [
                row
                for row in session.query(DefragmentationHost.row).order_by(DefragmentationHost.row.version)
                if row.verb == verb
            ]
            return [row.view() for row in sorted(rows, key=lambda row: row.created_at)]


def test_a_defragmentation_and_its_moves_show_their_steps(tmp_path: Path) -> None:
    machine = MachineWithOperations(tmp_path)
    plan = machine.approve()
    machine.run_workflows()
    (whole,) = machine.listed("defragment")
    assert (whole.target, whole.state, whole.step) == ("p", "Running", "make_room")
    assert "is being deployed on" in whole.message or "next, by MatrixResource" in whole.message
    (move,) = machine.listed("move-member")
    assert (move.target, move.step) == (plan.moves[0].allocation, "await_successor")
    assert [(step.name, step.state) for step in move.steps] == [
        ("take_successor", "Done"), ("await_successor", "Running"), ("cut_over", "Waiting"),
    ]  # fmt: skip
    assert move.steps[1].message == f"{plan.moves[0].to} is being deployed"
    assert machine.run_until_done().state == "Done"
    assert [each.state for each in (*machine.listed("defragment"), *machine.listed("move-member"))] == ["Done"] * 3


def test_an_operation_that_is_cancelled_stops_after_the_move_under_way(tmp_path: Path) -> None:
    machine = MachineWithOperations(tmp_path)
    machine.approve()
    machine.run_workflows()
    machine.operations.cancel(machine.listed("defragment")[0].name)
    assert machine.plan().cancelling
    done = machine.run_until_done()
    assert (done.state, done.moves_done, done.message) == ("Cancelled", 1, "stopped after 1 of 2 moves")
    assert machine.listed("defragment")[0].state == "Cancelled"
    with machine.store.reading() as session:
        assert not any(node.reserved_for_plan for node in machine.store.nodes(session))


def test_a_move_that_is_cancelled_leaves_the_member_where_it_is_and_ends_the_plan(tmp_path: Path) -> None:
    machine = MachineWithOperations(tmp_path)
    plan = machine.approve()
    machine.run_workflows()
    move = plan.moves[0]
    machine.operations.cancel(machine.listed("move-member")[0].name)
    done = machine.run_until_done()
    assert (done.state, done.moves_done) == ("Cancelled", 0)
    assert machine.where(move.allocation) == {move.allocation: [move.source]}
    assert [each.state for each in machine.listed("move-member")] == ["Cancelled"]


def test_a_plan_may_have_the_name_of_what_it_moves(tmp_path: Path) -> None:
    machine = MachineWithOperations(tmp_path)
    found = machine.propose(nodes=4, name="probe")
    name = found.moves[0].allocation
    machine.propose(nodes=4, name=name)
    machine.plans.approve(name)
    for _ in range(6):
        machine.run_workflows()
        machine.report_all()
    assert {each.state for each in (*machine.listed("defragment"), *machine.listed("move-member"))} == {"Done"}


def test_a_successor_that_breaks_is_given_up_and_the_move_is_tried_elsewhere(tmp_path: Path) -> None:
    machine = MachineWithOperations(tmp_path)
    plan = machine.approve()
    machine.run_workflows()
    machine.allocator.cordon(NodeName(plan.moves[0].to), True)
    machine.run_workflows()
    first = machine.listed("move-member")[0]
    assert (first.state, [step.state for step in first.steps]) == ("Failed", ["Undone", "Failed", "Waiting"])
    assert "Cordoned" in first.message
    assert machine.run_until_done().state == "Done"


def test_a_move_that_takes_too_long_is_stuck_and_says_what_it_waits_for(tmp_path: Path) -> None:
    machine = MachineWithOperations(tmp_path)
    plan = machine.approve()
    machine.run_workflows()
    assert machine.operations.stuck() == []
    machine.clock.at += 1900
    machine.run_workflows()
    (stuck,) = machine.operations.stuck()
    assert (stuck.name, stuck.reason) == (plan.moves[0].allocation, "StepDeadline")
    assert stuck.message.endswith(f"{plan.moves[0].to} is being deployed")


def test_abandoned_plan_releases_its_nodes(tmp_path: Path) -> None:
    machine = MachineWithOperations(tmp_path)
    machine.approve()
    machine.run_workflows()
    name = machine.listed("defragment")[0].name
    assert machine.operations.abandon(name, "another day").state == "Failed"
    assert machine.plan().state == "Cancelled"
    machine.run_until_done()
    with machine.store.transaction() as session, pytest.raises(Conflict, match="has ended"):
        verbs.abandon(session.get_one(DefragmentationHost.row, name), "again", 0.0)
    with machine.store.reading() as session:
        assert not any(node.reserved_for_plan for node in machine.store.nodes(session))


def test_a_plan_that_is_approved_while_workflows_are_drained_begins_afterwards(tmp_path: Path) -> None:
    machine = MachineWithOperations(tmp_path)
    machine.operations.drain("upgrade", WorkflowDrainRequest())
    machine.approve()
    waits = machine.run_until_done()
    assert (waits.state, waits.moves_done) == ("Approved", 0)
    machine.operations.undrain("upgrade")
    assert machine.run_until_done().state == "Done"


def test_a_plan_made_again_under_its_name_tries_its_moves_anew(tmp_path: Path) -> None:
    machine = MachineWithOperations(tmp_path)
    first = machine.approve()
    machine.run_workflows()
    machine.operations.cancel(machine.listed("move-member")[0].name)
    assert machine.run_until_done().state == "Cancelled"
    machine.plans.delete("p")
    machine.clock.at += 60
    assert machine.approve().moves == first.moves
    done = machine.run_until_done()
    assert (done.state, done.moves_done) == ("Done", 2)


@pytest.mark.parametrize("lost", ["to", "source"])
def test_a_move_is_over_when_its_successor_is_given_up_or_steps_in(tmp_path: Path, lost: str) -> None:
    machine = MachineWithOperations(tmp_path)
    move = machine.approve().moves[0]
    machine.run_workflows()
    machine.allocator.replace(move.allocation, NodeName(getattr(move, lost)), "it is loud")
    with machine.store.reading() as session:
        assert machine.store.allocation(session, move.allocation).moving_to is None
    machine.plans.cancel("p")
    assert machine.run_until_done().state == "Cancelled"
    with machine.store.reading() as session:
        row = machine.store.allocation(session, move.allocation)
        assert migration_owner(row, []) == "MatrixResource", "whoever makes room next may move it"
