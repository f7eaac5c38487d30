"""Steps that go from one release to the next, and workflows that are given up where they stand."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import select

from matrixcommon.model.errors import Conflict
from matrixcommon.workflows.operations import Operations
from matrixcommon.workflows.verbs import abandon
from matrixcommon.workflows.workflow import RewindToStep, Step, StepPending, Workflow
from matrixcompute.contract import InstanceRequest
from matrixcompute.operations.context import InstanceHost, StepContext
from matrixcompute.recovery.policy import RecoveryPolicy
from matrixcompute.store.store import EventRow, InstanceRow, OperationRow
from matrixcompute.workflows.marking_steps import mark_deleted
from matrixcompute.workflows.steps import reserve_nodes
from matrixresource.contract.allocations import AllocationRequest, AllocationView
from matrixresource.contract.requested_capacity import PlacementPolicy
from tests.matrixcompute.test_decisions import member
from tests.matrixcompute.workflow_harness import (
    DO,
    UNDO,
    ProcessKilled,
    RecordedWorkflow,
    RunnerProcess,
    open_and_wait_at,
    refused_to_pending,
    runner_process,
)
from tests.upkeep.workflow_steps import ever, every


def test_steps_of_earlier_releases_are_known() -> None:
    """One that goes names, as `retired`, the step that does its work now: who stands at it would be stuck else."""
    known = {workflow.verb: workflow for _, workflow in every()}
    unknown = [f"{verb}: {name}" for verb, names in ever().items() for name in names if known[verb].step(name) is None]
    assert not unknown
    for verb, workflow in known.items():
        assert set(workflow.retired_steps.values()) <= {*workflow.names}, verb
        assert not workflow.retired_steps.keys() & {*workflow.names}, verb


def merged(recorded: RecordedWorkflow) -> Workflow:
    """A release in which one step does what the second and the third did."""
    first, second, third, *more = recorded.workflow.steps

    async def both(context: StepContext) -> None:
        await second.do(context)
        await third.do(context)

    async def neither(context: StepContext) -> None:
        for step in (third, second):
            assert step.undo is not None
            await step.undo(context)

    steps = (first, Step(both, undo=neither), *more)
    return Workflow("test", steps, refused=refused_to_pending, retired_steps={second.name: "both", third.name: "both"})


def events(process: RunnerProcess) -> list[EventRow]:
    with process.store.reading() as session:
        found = [*session.scalars(select(EventRow))]
        session.expunge_all()
    return found


@pytest.mark.looptime
@pytest.mark.parametrize("at", [1, 2])
async def test_workflow_at_a_retired_step_continues_with_its_successor(tmp_path, at):
    recorded = RecordedWorkflow(3)
    async with runner_process(tmp_path, recorded.workflow) as process:
        name = await open_and_wait_at(process, recorded, (DO, at))
    async with runner_process(tmp_path, merged(recorded)) as process:
        process.runner.resume()
        row = await process.wait_until_ended(name)
        assert (row.state, recorded.calls) == ("Done", [(DO, 1), (DO, 2)])
        changed = [event.message for event in events(process) if event.reason == "WorkflowChanged"]
    assert len(changed) == 1
    assert changed[0].endswith("with both")
    assert recorded.effects == {0, 1, 2}


@pytest.mark.looptime
async def test_return_to_a_renamed_step_runs_the_current_one(tmp_path):
    recorded = RecordedWorkflow(4)
    async with runner_process(tmp_path, recorded.workflow) as process:
        name = await open_and_wait_at(process, recorded, (DO, 3))
    recorded.raises[DO, 3] = [RewindToStep("both", "another one failed")]
    async with runner_process(tmp_path, merged(recorded)) as process:
        process.runner.resume()
        row = await process.wait_until_ended(name)
    assert (row.state, recorded.calls) == ("Done", [(DO, 3), (DO, 1), (DO, 2), (DO, 3)])
    assert row.steps == ["do_0", "both", "do_3"]


@pytest.mark.looptime
async def test_undo_at_a_retired_step_uses_its_successor(tmp_path):
    recorded = RecordedWorkflow(3, refused=2)
    async with runner_process(tmp_path, recorded.workflow) as process:
        name = await open_and_wait_at(process, recorded, (UNDO, 1))
    async with runner_process(tmp_path, merged(recorded)) as process:
        process.runner.resume()
        assert (await process.wait_until_ended(name)).state == "Failed"
    assert recorded.effects == set()


@pytest.mark.looptime
async def test_abandoned_workflow_undoes_nothing(tmp_path):
    recorded = RecordedWorkflow(3)
    async with runner_process(tmp_path, recorded.workflow) as process:
        name = await open_and_wait_at(process, recorded, (DO, 1))
        process.runner.resume()
        with process.store.transaction() as session:
            row = session.get(OperationRow, name)
            assert row is not None
            abandon(row, "the switch will not come back", process.clock.now())
        row = await process.wait_until_ended(name)
        assert row.state == "Failed"
        assert row.message == "Abandoned: test was abandoned at do_1: the switch will not come back"
        await asyncio.sleep(60)
        assert recorded.effects == {0}
        assert not [call for call in recorded.calls if call[0] == UNDO]
        with process.store.transaction() as session, pytest.raises(Conflict, match="has ended"):
            abandon(session.get_one(OperationRow, name), "again", 0.0)


def test_committed_workflow_cannot_be_cancelled_after_a_step_merge() -> None:
    recorded = RecordedWorkflow(3, committed_at="do_1")
    workflow = replace(merged(recorded), committed_at="both")
    row = OperationRow(name="x", verb="test", state="Running", step=1, steps=recorded.workflow.names)
    assert not workflow.can_be_cancelled(row)
    assert workflow.can_be_cancelled(
        OperationRow(name="x", verb="test", state="Running", step=0, steps=recorded.workflow.names)
    )


@pytest.mark.looptime
async def test_changed_definition_is_reported_once(tmp_path):
    recorded = RecordedWorkflow(3)
    first, second, third = recorded.workflow.steps
    async with runner_process(tmp_path, recorded.workflow) as process:
        name = await open_and_wait_at(process, recorded, (DO, 1))
        assert process.workflow(name).definition == recorded.workflow.definition(process.runner._host.payload)
    another = replace(recorded.workflow, steps=(first, second, replace(third, undo=None)))
    for _ in range(2):
        recorded.raises[DO, 1] = [StepPending("waits")]
        async with runner_process(tmp_path, another) as process:
            process.runner.resume()
            await asyncio.sleep(5)
            changed = [event.message for event in events(process) if event.reason == "WorkflowChanged"]
            assert len(changed) == 1
            assert changed[0].endswith("with other undo steps, another order or another payload")
    async with runner_process(tmp_path, another) as process:
        process.runner.resume()
        assert (await process.wait_until_ended(name)).state == "Done"


@pytest.mark.looptime
async def test_step_run_by_two_replicas_counts_once(tmp_path):
    recorded = RecordedWorkflow(3)
    process = RunnerProcess(tmp_path, recorded.workflow)
    log, name = process.runner._log, process.open()
    for _ in range(2):
        log.done(name, "do_0")
    assert process.workflow(name).reached == "do_1"
    process.database.close()


@pytest.mark.looptime
async def test_yielding_workflow_cannot_be_abandoned(tmp_path):
    async with runner_process(tmp_path, replace(RecordedWorkflow(1).workflow, verb="yield-capacity")) as process:
        name = process.open("yield-capacity")
        with process.store.transaction() as session:
            instance = process.store.instance(session, "one")
            instance.move("Pending")
            instance.applied = instance.spec
        host = InstanceHost(process.store, None, process.clock, RecoveryPolicy())  # type: ignore[arg-type]
        operations = Operations(process.runner, host, process.clock, lambda: None)
        with pytest.raises(Conflict, match="given back in any case"):
            operations.abandon(name, "it takes too long")


# -- repeated after a crash --------------------------------------------------------------------------------------------


@pytest.mark.looptime
@pytest.mark.parametrize("before", [True, False])
async def test_deletion_survives_a_crash_at_its_last_step(tmp_path, before):
    deletion = Workflow("delete-instance", (Step(mark_deleted),))
    async with runner_process(tmp_path, deletion) as process:
        name = process.open("delete-instance")
        process.store.at, process.store.before = process.store.transactions + 1, before
        process.runner.resume()
        with pytest.raises(ProcessKilled):
            await process.wait_until_ended(name)
    async with runner_process(tmp_path, deletion) as process:
        process.runner.resume()
        row = await process.wait_until_ended(name)
        assert (row.state, row.error) == ("Done", None)
        with process.store.reading() as session:
            assert session.get(InstanceRow, "one") is None
        assert [each.reason for each in events(process)] == ["Deleted"]


# -- overtaken by a newer spec -----------------------------------------------------------------------------------------


class FakeControlPlane:
    """An allocation of three members; how it is asked to change is kept."""

    def __init__(self) -> None:
        self.asked: list[AllocationRequest] = []

    async def find_allocation(self, name: str) -> AllocationView:
        members = [member(f"sn0-c00-n{number}") for number in range(3)]
        return AllocationView(
            name=name, nodes=3, npus=24, spares=0, placement=PlacementPolicy(), topology_version="v", bound=True,
            members=members,
        )  # fmt: skip

    async def reserve(self, name: str, request: AllocationRequest) -> AllocationView:
        self.asked.append(request)
        return await self.find_allocation(name)


@pytest.mark.looptime
@pytest.mark.parametrize("later", [[], ["sn0-c00-n0", "sn0-c00-n1"]])
async def test_newer_spec_does_not_change_leaving_members(tmp_path, later):
    control_plane = FakeControlPlane()
    async with runner_process(tmp_path, replace(RecordedWorkflow(1).workflow, verb="scale-instance")) as process:
        process.open("scale-instance")
        with process.store.transaction() as session:
            instance = process.store.instance(session, "one")
            instance.spec, instance.leaving = InstanceRequest(nodes=2).wire(), ["sn0-c00-n2"]
        name = process.open("scale-instance")
        with process.store.transaction() as session:
            instance = process.store.instance(session, "one")
            instance.generation, instance.leaving = instance.generation + 1, later
        host = InstanceHost(process.store, control_plane, process.clock, RecoveryPolicy())  # type: ignore[arg-type]
        with process.store.reading() as session:
            context = host.context(session, session.get_one(OperationRow, name))
        await reserve_nodes(context)
    (request,) = control_plane.asked
    assert (request.nodes, request.exclude_nodes) == (2, ["sn0-c00-n2"])
