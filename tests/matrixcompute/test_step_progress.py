"""Steps that fail are tried again, later and later; what does not get on is stuck, says so, and can be resumed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from matrixcommon.model.errors import Conflict, InsufficientCapacity
from matrixcommon.workflows.progress import RetryPolicy
from matrixcommon.workflows.verbs import resume
from matrixcommon.workflows.workflow import RewindToStep, Step, StepPending, Workflow
from matrixcompute.instances.stuck import DRAIN_STEPS, stuck_instances
from matrixcompute.operations.context import StepContext
from matrixcompute.operations.starter import WorkflowStarter
from matrixcompute.store.store import OperationRow
from matrixcompute.workflows.definitions import DRAIN, DRAINED, MOVE_INSTANCE, RELOCATE_MEMBER, REPLACE_NODE
from matrixcompute.workflows.workload_steps import leave_successors
from tests.matrixcompute.test_workflow_runner import run_to_the_end
from tests.matrixcompute.workflow_harness import DO, UNDO, RecordedWorkflow, runner_process


def test_retry_backoff_is_exponential_up_to_a_minute():
    retry = RetryPolicy(first_s=1, factor=2, longest_s=60, attempts_max=12)
    assert [retry.delay_s(failed) for failed in (1, 2, 3, 6, 7, 8, 5000)] == [1, 2, 4, 32, 60, 60, 60]
    assert [retry.exhausted(failed) for failed in (1, 11, 12)] == [False, False, True]


@pytest.mark.looptime
async def test_repeatedly_failing_step_is_stuck_until_retried(tmp_path):
    recorded = RecordedWorkflow(2)
    recorded.raises[DO, 1] = [ValueError("a defect")] * 12
    async with runner_process(tmp_path, recorded.workflow) as process:
        name = process.open()
        process.runner.resume()
        while not process.workflow(name).conditions:
            await asyncio.sleep(1)
        row = process.workflow(name)
        assert (row.conditions[0]["reason"], row.state) == ("RetriesExhausted", "Running")
        assert "`:resume`" in row.message
        shown = {step.name: (step.state, step.attempts) for step in row.view().steps}
        assert shown == {"do_0": ("Done", 0), "do_1": ("Running", 12)}
        asked = len(recorded.calls)
        for _ in range(10):
            process.runner.resume()
            await asyncio.sleep(100)
        assert len(recorded.calls) == asked, "nobody asks again by himself"
        with process.store.transaction() as session:
            resume(session.get(OperationRow, name), process.clock.now())
        process.runner.resume()
        row = await process.wait_until_ended(name)
        assert (row.state, row.conditions[0]["status"]) == ("Done", "False")
        with process.store.transaction() as session, pytest.raises(Conflict, match="not stuck"):
            resume(session.get(OperationRow, name), process.clock.now())


@pytest.mark.looptime
async def test_step_past_its_deadline_is_stuck_and_continues(tmp_path):
    recorded = RecordedWorkflow(2)
    recorded.raises[DO, 0] = [StepPending("nodes are being deployed")] * 200
    async with runner_process(tmp_path, recorded.workflow) as process:
        name = process.open()
        process.runner.resume()
        await asyncio.sleep(1700)
        assert not process.workflow(name).conditions
        await asyncio.sleep(200)
        stuck = process.workflow(name).conditions[0]
        assert (stuck["status"], stuck["reason"]) == ("True", "StepDeadline")
        assert "nodes are being deployed" in stuck["message"]
        row = await process.wait_until_ended(name, within_s=7200)
        assert (row.state, row.conditions[0]["status"]) == ("Done", "False")
        steps = row.view().steps
        assert [step.state for step in steps] == ["Done", "Done"]
        assert all(step.started_at and step.finished_at for step in steps)


@pytest.mark.looptime
async def test_repeated_pending_message_is_not_written(tmp_path):
    recorded = RecordedWorkflow(1)
    recorded.raises[DO, 0] = [StepPending(f"{ready} of 2 nodes are active") for ready in (0, 0, 0, 1, 1, 0, 0)]
    async with runner_process(tmp_path, recorded.workflow) as process:
        name = process.open()
        process.runner.resume()
        written = []
        while recorded.raises[DO, 0]:
            row = process.workflow(name)
            written.append((row.version, row.message))
            await asyncio.sleep(0.5)
        assert [message for _, message in dict(written).items()][:4] == [
            "",
            "0 of 2 nodes are active",
            "1 of 2 nodes are active",
            "0 of 2 nodes are active",
        ]
        assert len({*written}) == len(dict(written)) == 4, "a version for each word, and for none that was there before"


@pytest.mark.looptime
async def test_undo_has_its_own_deadline(tmp_path):
    recorded = RecordedWorkflow(2, refused=1)
    recorded.raises[DO, 1] = [StepPending("waits")] * 110
    for at in (0, 1):
        recorded.raises[UNDO, at] = [StepPending("routes are being cleared")] * 20
    row = await run_to_the_end(tmp_path, recorded)
    assert row.finished_at - row.created_at > 1800, "the first step was begun longer ago than it may take"
    assert (row.state, row.conditions) == ("Failed", [])


@pytest.mark.looptime
@pytest.mark.parametrize("overtaken", [False, True])
async def test_undo_past_its_deadline_is_stuck_until_it_ends(tmp_path, overtaken):
    recorded = RecordedWorkflow(1, refused=0)
    recorded.raises[UNDO, 0] = [StepPending("routes are being cleared")] * 200
    async with runner_process(tmp_path, recorded.workflow) as process:
        name = process.open()
        process.runner.resume()
        await asyncio.sleep(1900)
        row = process.workflow(name)
        assert (row.state, row.stuck["reason"]) == ("Undoing", "StepDeadline")
        if overtaken:
            process.open()
            process.runner.resume()
        row = await process.wait_until_ended(name, within_s=7200)
        assert (row.state, row.stuck) == ("Cancelled" if overtaken else "Failed", None)


@pytest.mark.looptime
async def test_refused_workflow_shows_refused_and_undone_steps(tmp_path):
    row = await run_to_the_end(tmp_path, RecordedWorkflow(3, refused=1))
    shown = [(step.name, step.state) for step in row.view().steps]
    assert shown == [("do_0", "Undone"), ("do_1", "Failed"), ("do_2", "Waiting")]
    assert row.view().steps[1].message == "InsufficientCapacity: no room"


@pytest.mark.looptime
async def test_workflow_returns_to_an_earlier_step(tmp_path):
    recorded = RecordedWorkflow(4)
    recorded.raises[DO, 3] = [RewindToStep("do_1", "another one failed")]
    async with runner_process(tmp_path, recorded.workflow) as process:
        name = process.open()
        process.runner.resume()
        while process.workflow(name).message != "another one failed":
            await asyncio.sleep(0.25)
        shown = [(each.name, each.state) for each in process.workflow(name).view().steps]
        assert shown == [("do_0", "Done"), ("do_1", "Running"), ("do_2", "Waiting"), ("do_3", "Waiting")]
        first = process.workflow(name).trace["do_1"]["firstFinishedAt"]
        await process.runner.stop()
    async with runner_process(tmp_path, recorded.workflow) as process:
        process.runner.resume()
        row = await process.wait_until_ended(name)
    places = [place for _, place in recorded.distinct_calls()]
    assert (row.state, places) == ("Done", [0, 1, 2, 3, 1, 2, 3])
    assert row.trace["do_1"]["firstFinishedAt"] == first < row.trace["do_1"]["finishedAt"]


@pytest.mark.looptime
async def test_state_deadline_counts_from_its_transition(tmp_path):
    async with runner_process(tmp_path, RecordedWorkflow(1).workflow) as process:
        starter = WorkflowStarter(process.store, process.runner, process.clock)

        def begin(state: str) -> None:
            with process.store.transaction() as session:
                starter.open(session, "test", process.store.instance(session, "one"), state, "Scaling")

        def listed() -> list[tuple[str, float]]:
            with process.store.reading() as session:
                found = stuck_instances(process.store, session, process.clock.now())
            return [(each.state, each.seconds) for each in found]

        process.open()
        begin("Provisioning")
        await asyncio.sleep(2000)
        with process.store.transaction() as session:
            process.store.instance(session, "one").move("Active")
        begin("Updating")  # another spec came meanwhile: there was no moment at which nothing was under way
        await asyncio.sleep(2000)
        assert listed() == []
        await asyncio.sleep(2000)
        assert listed() == [("Updating", 4000.0)]
        begin("Updating")
        assert listed() == [("Updating", 4000.0)], "another operation does not end the state"
        begin("Deleting")
        assert listed() == []


def draining(drained_s: float, *, undone: bool = False) -> Workflow[StepContext]:
    """A workflow with a step that waits so long for drains: on the way, or as it is undone."""

    async def await_loaded(context: StepContext) -> None: ...

    async def wait(context: StepContext, step: str) -> None:
        if context.clock.now() - context.started_at(step) < drained_s:
            raise StepPending("3 requests run on sn0-c00-n0", again_s=60.0)

    async def leave_successors(context: StepContext) -> None:
        await wait(context, "await_loaded")

    async def drain_members(context: StepContext) -> None:
        if undone:
            raise InsufficientCapacity("no room")
        await wait(context, "drain_members")

    async def await_ready(context: StepContext) -> None:
        raise StepPending("nodes are being deployed", again_s=60.0)

    loaded = Step(await_loaded, undo=leave_successors if undone else None, deadline_s=90_000.0)
    return Workflow(
        "test",
        (loaded, Step(drain_members, deadline_s=90_000.0), Step(await_ready, deadline_s=90_000.0)),
        refused=lambda session, instance, refused, now: instance.move("Active"),
        committed_at="await_ready",
        deadline_s=97_200.0,
    )


@pytest.mark.looptime
@pytest.mark.parametrize("undone", [False, True])
async def test_state_deadline_is_suspended_during_drains(tmp_path: Path, undone: bool) -> None:
    async with runner_process(tmp_path, draining(20_000.0, undone=undone)) as process:
        starter = WorkflowStarter(process.store, process.runner, process.clock)

        def listed() -> list[str]:
            with process.store.reading() as session:
                found = stuck_instances(process.store, session, process.clock.now())
            return [each.message for each in found]

        process.open()
        with process.store.transaction() as session:
            instance = process.store.instance(session, "one")
            instance.move("Active")
            starter.open(session, "test", instance, "Updating", "Moving")
        process.runner.resume()
        await asyncio.sleep(19_000)
        assert listed() == []
        await asyncio.sleep(4000)
        assert listed() == []
        if not undone:
            await asyncio.sleep(2000)
            [message] = listed()
            assert message.startswith("Updating for longer than 3600 s, not counting 200")


def test_drain_steps_suspend_the_deadline() -> None:
    known = {name for name, _, _ in DRAIN_STEPS}
    for workflow in (MOVE_INSTANCE, RELOCATE_MEMBER, REPLACE_NODE):
        assert known & {*workflow.names}
    assert known == {DRAIN.name, *(step.name for step in DRAINED if step.undo is leave_successors)}
