"""What the workflow runner promises of any verb: steps in their order, undone in reverse, taken up after a kill at any
durable write, looked at again on its clock or at a nudge, and ended by the verb that overtakes it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from matrixcommon.model.errors import Conflict, Unavailable
from matrixcommon.workflows.verbs import cancel
from matrixcommon.workflows.workflow import RETRY_INTERVAL_S, Step, StepPending, Workflow
from matrixcompute.operations.context import StepContext
from matrixcompute.store.store import EventRow, InstanceRow, OperationRow
from tests.clocks import virtual_loop
from tests.matrixcompute.workflow_harness import (
    DO,
    UNDO,
    ProcessKilled,
    RecordedWorkflow,
    open_and_wait_at,
    refused_to_pending,
    runner_process,
)


async def run_to_the_end(folder: Path, recorded: RecordedWorkflow) -> OperationRow:
    async with runner_process(folder, recorded.workflow) as process:
        name = process.open()
        process.runner.resume()
        return await process.wait_until_ended(name)


@pytest.mark.looptime
async def test_steps_run_in_order_and_once(tmp_path):
    recorded = RecordedWorkflow(4)
    row = await run_to_the_end(tmp_path, recorded)
    assert (row.state, row.step) == ("Done", 4)
    assert recorded.calls == [(DO, 0), (DO, 1), (DO, 2), (DO, 3)]
    assert row.steps == ["do_0", "do_1", "do_2", "do_3"]
    assert row.finished_at is not None


@pytest.mark.looptime
async def test_refused_step_undoes_itself_and_earlier_steps_in_reverse(tmp_path):
    recorded = RecordedWorkflow(4, undoable={0, 1, 3}, refused=3)
    async with runner_process(tmp_path, recorded.workflow) as process:
        name = process.open()
        process.runner.resume()
        row = await process.wait_until_ended(name)
        assert (row.state, row.error["reason"]) == ("Failed", "InsufficientCapacity")
        assert recorded.calls[4:] == [(UNDO, 3), (UNDO, 1), (UNDO, 0)]
        assert recorded.effects == {2}, "only what nothing undoes is left"
        with process.store.reading() as session:
            assert session.get(InstanceRow, "one").state == "Pending", "the verb says where that leaves the instance"
            event = session.scalars(select(EventRow)).one()
            assert (event.type, event.reason, event.message) == ("Warning", "InsufficientCapacity", "no room")


@pytest.mark.looptime
async def test_undo_is_retried_until_it_succeeds(tmp_path):
    recorded = RecordedWorkflow(2, refused=1)
    recorded.raises[UNDO, 1] = [
        Conflict("refused"),
        StepPending("the agents have yet to clear"),
        ValueError("a defect"),
    ]
    row = await run_to_the_end(tmp_path, recorded)
    assert row.state == "Failed"
    assert recorded.calls == [(DO, 0), (DO, 1), *[(UNDO, 1)] * 4, (UNDO, 0)]
    assert recorded.effects == set()


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("answer", "rests_s"),
    [
        (StepPending("nodes are being deployed"), 2 * RETRY_INTERVAL_S),
        (Unavailable("MatrixResource is away"), 1 + 2),
        (ValueError("a defect"), 1 + 2),
    ],
)
async def test_pending_step_shows_why_and_is_retried_on_the_clock(tmp_path, answer, rests_s):
    recorded = RecordedWorkflow(1)
    recorded.raises[DO, 0] = [answer, answer]
    async with runner_process(tmp_path, recorded.workflow) as process:
        name = process.open()
        started = process.clock.now()
        process.runner.resume()
        await asyncio.sleep(4.5)
        message = process.workflow(name).message
        assert (type(answer).__name__ if isinstance(answer, ValueError) else str(answer)) in message
        row = await process.wait_until_ended(name)
        assert row.finished_at - started == pytest.approx(rests_s + 3, abs=1), "three calls, two rests"
        assert (row.state, row.message) == ("Done", ""), "what it waited for is no longer said"


@pytest.mark.looptime
async def test_nudge_wakes_only_its_target(tmp_path):
    recorded = RecordedWorkflow(1)
    recorded.raises[DO, 0] = [StepPending("waits"), StepPending("waits")]
    async with runner_process(tmp_path, recorded.workflow) as process:
        process.open(instance="one")
        process.open(instance="other")
        process.runner.resume()
        await asyncio.sleep(3)
        assert recorded.calls == [(DO, 0)] * 2
        process.runner.nudge("one")
        await asyncio.sleep(3)
        assert recorded.calls == [(DO, 0)] * 3, "one was asked again, the other still rests"
        process.runner.nudge()
        await asyncio.sleep(3)
        assert recorded.calls == [(DO, 0)] * 4


@pytest.mark.looptime
async def test_superseding_verb_ends_the_earlier_one_within_its_step(tmp_path):
    first, second = RecordedWorkflow(3), RecordedWorkflow(1)
    later = Workflow("later", second.workflow.steps, refused=refused_to_pending)
    async with runner_process(tmp_path, first.workflow, later) as process:
        overtaken = process.open()
        process.runner.resume()
        await asyncio.sleep(1.5)
        name = process.open("later")
        process.runner.resume()
        assert (await process.wait_until_ended(name)).state == "Done"
        row = process.workflow(overtaken)
        assert (row.state, row.message) == ("Cancelled", "overtaken by later")
        await asyncio.sleep(60)
        assert first.calls == [(DO, 0), (DO, 1)], "nothing more of it happens, and nothing of it is undone"
        assert process.workflow(overtaken).step == 1
        with process.store.reading() as session:
            assert session.get(InstanceRow, "one").operation == name


@pytest.mark.looptime
async def test_workflows_run_concurrently_and_resume_is_idempotent(tmp_path):
    recorded = RecordedWorkflow(3)
    async with runner_process(tmp_path, recorded.workflow) as process:
        names = [process.open(instance=instance) for instance in ("one", "other")]
        assert process.runner.resume() == 2
        assert process.runner.resume() == 2
        started = process.clock.now()
        ended = [await process.wait_until_ended(name) for name in names]
        assert {row.state for row in ended} == {"Done"}
        assert max(row.finished_at for row in ended) - started < 4, "neither waited for the other"
        assert sorted(recorded.calls) == sorted([(DO, 0), (DO, 1), (DO, 2)] * 2)
        assert process.runner.resume() == 0, "what has ended has no task any more"


# -- a release with other verbs and steps ------------------------------------------------------------------------------


def with_steps(recorded: RecordedWorkflow, *steps: int) -> Workflow:
    """The same verb as a list of these of the world's steps."""
    return Workflow("test", tuple(recorded.workflow.steps[at] for at in steps), refused=refused_to_pending)


async def interrupted(folder: Path, recorded: RecordedWorkflow, steps: list[int], call: tuple[str, int]) -> str:
    """A workflow of these steps that a process left while `call` waited."""
    async with runner_process(folder, with_steps(recorded, *steps)) as process:
        return await open_and_wait_at(process, recorded, call)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("sentence", "now", "calls", "names"),
    [
        ("one inserted ahead is done", [0, 1, 3, 2], [(DO, 1), (DO, 3), (DO, 2)], ["do_0", "do_1", "do_3", "do_2"]),
        ("one inserted behind is not", [3, 0, 1, 2], [(DO, 1), (DO, 2)], ["do_0", "do_1", "do_2"]),
        ("one removed ahead is left out", [0, 1], [(DO, 1)], ["do_0", "do_1"]),
        ("one removed behind stays done", [1, 2], [(DO, 1), (DO, 2)], ["do_0", "do_1", "do_2"]),
    ],
)
async def test_workflow_resumes_at_the_step_by_name(tmp_path, sentence, now, calls, names):
    recorded = RecordedWorkflow(4)
    name = await interrupted(tmp_path, recorded, [0, 1, 2], (DO, 1))
    async with runner_process(tmp_path, with_steps(recorded, *now)) as process:
        process.runner.resume()
        row = await process.wait_until_ended(name)
    assert (recorded.calls, row.steps, row.state) == (calls, names, "Done"), sentence


@pytest.mark.looptime
async def test_refusal_undoes_only_executed_steps(tmp_path):
    recorded = RecordedWorkflow(4, refused=2)
    name = await interrupted(tmp_path, recorded, [0, 1, 2], (DO, 1))
    async with runner_process(tmp_path, with_steps(recorded, 3, 0, 1, 2)) as process:
        process.runner.resume()
        row = await process.wait_until_ended(name)
    assert (recorded.calls, row.state) == ([(DO, 1), (DO, 2), (UNDO, 2), (UNDO, 1), (UNDO, 0)], "Failed")


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("reason", "call", "now"),
    [
        ("UnknownVerb", (DO, 1), None),
        ("UnknownStep", (DO, 1), [0, 2]),
        ("UnknownStep", (UNDO, 1), [1, 2]),
    ],
)
async def test_unknown_workflow_is_stuck_until_a_release_knows_it(tmp_path, caplog, reason, call, now):
    recorded = RecordedWorkflow(3, refused=2 if call[0] == UNDO else None)
    name = await interrupted(tmp_path, recorded, [0, 1, 2], call)
    other = RecordedWorkflow(1)
    known = [Workflow("other", other.workflow.steps, refused=refused_to_pending)]
    known += [with_steps(recorded, *now)] if now is not None else []
    caplog.set_level(logging.ERROR)
    async with runner_process(tmp_path, *known) as process:
        beside = process.open("other", instance="beside")
        for _ in range(3):
            process.runner.resume()
            assert (await process.wait_until_ended(beside)).state == "Done", "everything else continues"
        row = process.workflow(name)
        while call[0] == UNDO and not row.conditions:  # it undoes what it knows before
            await asyncio.sleep(0.5)
            row = process.workflow(name)
        stuck = row.conditions[0]
        assert (stuck["type"], stuck["status"], stuck["reason"]) == ("Stuck", "True", reason)
        assert row.message == stuck["message"]
        assert not row.view().done
        with process.store.reading() as session:
            events = [event for event in session.scalars(select(EventRow)) if event.about == "one"]
        assert [event.reason for event in events] == [reason]
        assert sum("workflow is stuck" in record.message for record in caplog.records) == 1, "logged, and once"
    async with runner_process(tmp_path, recorded.workflow) as process:
        process.runner.resume()
        row = await process.wait_until_ended(name)
        assert row.state == ("Failed" if call[0] == UNDO else "Done")
        assert row.conditions[0]["status"] == "False"
    assert recorded.effects == (set() if call[0] == UNDO else {0, 1, 2})


@pytest.mark.looptime
async def test_unreadable_spec_is_stuck_and_superseded_by_deletion(tmp_path):
    recorded = RecordedWorkflow(1)
    later = Workflow("later", RecordedWorkflow(1).workflow.steps, refused=refused_to_pending)
    async with runner_process(tmp_path, recorded.workflow, later) as process:
        name = process.open()
        with process.store.transaction() as session:
            session.get(OperationRow, name).shape = {"nodes": 1, "colour": "red"}
        process.runner.resume()
        await asyncio.sleep(5)
        stuck = process.workflow(name).conditions[0]
        assert stuck["reason"] == "UnreadableSpec"
        assert "cannot read its spec: colour: Extra inputs are not permitted;" in stuck["message"]
        overtaking = process.open("later")
        process.runner.resume()
        assert (await process.wait_until_ended(overtaking)).state == "Done"
        assert process.workflow(name).state == "Cancelled"


# -- cancelled and overtaken -------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_cancellation_lets_the_call_end_and_undoes_in_reverse(tmp_path):
    recorded = RecordedWorkflow(3, committed_at="do_2")
    async with runner_process(tmp_path, recorded.workflow) as process:
        name = process.open()
        process.runner.resume()
        await asyncio.sleep(1.5)  # in the middle of the second call
        with process.store.transaction() as session:
            cancel(process.runner.workflows, session.get(OperationRow, name))
        row = await process.wait_until_ended(name)
        assert recorded.calls == [(DO, 0), (DO, 1), (UNDO, 1), (UNDO, 0)]
        assert (row.state, row.error["reason"], row.view().done) == ("Cancelled", "Cancelled", True)
        with process.store.transaction() as session:
            assert cancel(process.runner.workflows, session.get(OperationRow, name)) is None, (
                "asked again, it changes nothing"
            )
            assert session.get(InstanceRow, "one").state == "Pending"


@pytest.mark.looptime
async def test_refused_cancellation_names_cancellable_workflows(tmp_path):
    recorded = RecordedWorkflow(2, committed_at="do_1")
    never = Workflow("never", RecordedWorkflow(1).workflow.steps, refused=refused_to_pending)
    async with runner_process(tmp_path, recorded.workflow, never) as process:
        name = process.open()
        process.runner.resume()
        await asyncio.sleep(1.5)  # in the call that commits it
        with pytest.raises(Conflict, match="test at do_1 cannot be cancelled; these can: test before do_1"):
            cancel(process.runner.workflows, process.workflow(name))
        await process.wait_until_ended(name)
        with pytest.raises(Conflict, match="test has ended: it is Done"):
            cancel(process.runner.workflows, process.workflow(name))
        with pytest.raises(Conflict, match="never at do_0 cannot be cancelled"):
            cancel(process.runner.workflows, process.workflow(process.open("never")))
        assert {process.workflow(name).state} == {"Done"}


@pytest.mark.looptime
async def test_running_undo_ends_before_the_superseding_verb_begins(tmp_path):
    recorded = RecordedWorkflow(1, refused=0)
    order = recorded.calls
    undone = asyncio.Event()
    undo = recorded.workflow.steps[0].undo

    async def slow_undo(context: StepContext) -> None:
        await undo(context)
        await asyncio.sleep(30)
        undone.set()

    async def later_step(context: StepContext) -> None:
        assert undone.is_set(), "what is being undone was not awaited"
        order.append((DO, 9))

    slow = Workflow("test", (Step(recorded.workflow.steps[0].do, undo=slow_undo),), refused=refused_to_pending)
    later = Workflow("later", (Step(later_step),), refused=refused_to_pending)
    async with runner_process(tmp_path, slow, later) as process:
        overtaken = process.open()
        process.runner.resume()
        while (UNDO, 0) not in order:
            await asyncio.sleep(0.5)
        name = process.open("later")
        process.runner.resume()
        assert (await process.wait_until_ended(name)).state == "Done"
        row = process.workflow(overtaken)
        assert (row.state, row.message, row.view().done) == ("Cancelled", "overtaken by later", True)
        with process.store.reading() as session:
            assert session.get(InstanceRow, "one").state == "Provisioning", "its end is not the overtaken one's to say"
    assert order == [(DO, 0), (UNDO, 0), (DO, 9)]


# -- any workflow, any answers, a kill at any durable write ---------------------------------------------------------------

PASSING = st.sampled_from([StepPending, Unavailable, RuntimeError])


@st.composite
def worlds(draw) -> Callable[[], RecordedWorkflow]:
    """Makes the same world anew each time."""
    steps = draw(st.integers(1, 4))
    undoable = draw(st.sets(st.integers(0, steps - 1)))
    refused = draw(st.none() | st.integers(0, steps - 1))
    calls = [(kind, at) for kind in (DO, UNDO) for at in range(steps)]
    passing = {call: draw(st.lists(PASSING, max_size=2)) for call in calls if draw(st.booleans())}

    def make() -> RecordedWorkflow:
        recorded = RecordedWorkflow(steps, undoable, refused)
        for call, kinds in passing.items():
            recorded.raises[call] = [kind("not yet") for kind in kinds]
        return recorded

    return make


@settings(max_examples=4, deadline=None, phases=[Phase.generate])
@given(make=worlds(), before=st.booleans())
def test_crash_at_any_durable_write_does_not_change_the_outcome(make, before):
    """In one run for every write of the whole story, the process ends there and another goes on."""
    with contextlib.closing(virtual_loop()) as loop:
        loop.run_until_complete(_killed_at_each_write(make, before))


async def _killed_at_each_write(make: Callable[[], RecordedWorkflow], before: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writes = await _with_kill(Path(folder), make, None, before)
    for at in range(2, writes + 1):  # the first opens the workflow: before it there is nothing
        with tempfile.TemporaryDirectory() as folder:
            await _with_kill(Path(folder), make, at, before)


async def _with_kill(folder: Path, make: Callable[[], RecordedWorkflow], at: int | None, before: bool) -> int:
    """Carry one workflow to its end, with one process that ends at the `at`-th write; how many writes there were."""
    recorded = make()
    refused = recorded.refused
    async with runner_process(folder, recorded.workflow) as process:
        process.store.at, process.store.before = at, before
        name = process.open()
        process.runner.resume()
        with contextlib.suppress(ProcessKilled):
            row = await process.wait_until_ended(name)
        writes, killed = process.store.transactions, process.store.killed
    assert killed == (at is not None)
    if killed:
        async with runner_process(folder, recorded.workflow) as process:
            process.runner.resume()
            row = await process.wait_until_ended(name)
    steps = len(recorded.workflow.steps)
    forwards = [(DO, step) for step in range(steps if refused is None else refused + 1)]
    backwards = (
        [] if refused is None else [(UNDO, step) for step in reversed(range(refused + 1)) if step in recorded.undoable]
    )
    assert recorded.distinct_calls() == forwards + backwards
    assert row.state == ("Done" if refused is None else "Failed")
    left = set(range(steps)) if refused is None else set(range(refused)) - recorded.undoable
    assert recorded.effects == left
    return writes
