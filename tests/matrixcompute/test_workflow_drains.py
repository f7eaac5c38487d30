"""Workflows are drained before an upgrade: none begins, those under way end or come to rest, and all of them continue
afterwards. And the deadlines that attempts and whole workflows have."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from matrixcommon.workflows.contract import WorkflowDrainRequest, WorkflowDrainView
from matrixcommon.workflows.operations import Operations
from matrixcommon.workflows.verbs import resume
from matrixcommon.workflows.workflow import StepPending
from matrixcompute.store.store import OperationRow, WorkflowDrains
from tests.matrixcompute.workflow_harness import DO, RecordedWorkflow, RunnerProcess, open_and_wait_at, runner_process

pytestmark = pytest.mark.looptime


def operations(process: RunnerProcess) -> Operations:
    return Operations(process.runner, process.runner._host, process.clock, process.runner.resume)


def counts(process: RunnerProcess) -> WorkflowDrainView:
    process.runner.resume()
    with process.store.reading() as session:
        return session.get_one(WorkflowDrains, "upgrade").view()


async def test_running_workflows_end_and_new_ones_begin_after_the_drain(tmp_path):
    recorded = RecordedWorkflow(3)
    async with runner_process(tmp_path, recorded.workflow) as process:
        first = await open_and_wait_at(process, recorded, (DO, 1))
        operations(process).drain("upgrade", WorkflowDrainRequest(reason="release 8"))
        second = process.open(instance="two")
        view = counts(process)
        assert (view.state, view.running, view.resting, view.waiting) == ("Draining", 1, 0, 1)
        assert (await process.wait_until_ended(first)).state == "Done"
        await asyncio.sleep(100)
        view = counts(process)
        assert (view.state, view.running, view.resting, view.waiting) == ("Drained", 0, 0, 1)
        assert len(recorded.calls) == 2, "of the second none"
    async with runner_process(tmp_path, recorded.workflow) as process:
        assert counts(process).waiting == 1, "the next release is drained as well, until somebody ends that"
        operations(process).undrain("upgrade")
        row = await process.wait_until_ended(second)
        assert (row.state, row.timed_from) == ("Done", pytest.approx(process.clock.now(), abs=10))


async def test_workflow_that_outlives_the_grace_period_resumes_later(tmp_path):
    recorded = RecordedWorkflow(3)
    recorded.raises[DO, 1] = [StepPending("nodes are being deployed")] * 100
    async with runner_process(tmp_path, recorded.workflow) as process:
        name = process.open()
        process.runner.resume()
        await asyncio.sleep(50)
        operations(process).drain("upgrade", WorkflowDrainRequest(grace_s=60))
        await asyncio.sleep(50)
        assert counts(process).running == 1
        await asyncio.sleep(50)
        view = counts(process)
        assert (view.state, view.resting, view.waiting) == ("Drained", 1, 0)
        resting = process.workflow(name)
        assert (resting.state, resting.reached) == ("Waiting", resting.steps[1])
        assert resting.message == (
            "stopped at a safe point; it continues once workflows are no longer drained by upgrade"
        )
        asked = len(recorded.calls)
        await asyncio.sleep(1000)
        process.runner.resume()
        assert len(recorded.calls) == asked
    async with runner_process(tmp_path, recorded.workflow) as process:
        process.runner.resume()
        await asyncio.sleep(100)
        assert len(recorded.calls) == asked, "it rests in the next life of the process too"
        operations(process).undrain("upgrade")
        recorded.raises.clear()
        assert (await process.wait_until_ended(name)).state == "Done"
        assert (DO, 0) not in recorded.calls[asked:], "it continued where it had been"


async def test_what_waits_names_the_drains_that_are_left(tmp_path):
    recorded = RecordedWorkflow(1)
    async with runner_process(tmp_path, recorded.workflow) as process:
        served = operations(process)
        served.drain("upgrade", WorkflowDrainRequest())
        name = process.open()
        assert process.workflow(name).state == "Waiting"
        served.drain("audit", WorkflowDrainRequest())
        assert process.workflow(name).message == "begins once workflows are no longer drained by audit, upgrade"
        served.undrain("upgrade")
        row = process.workflow(name)
        assert (row.state, row.message) == ("Waiting", "begins once workflows are no longer drained by audit")
        assert not recorded.calls
        served.undrain("audit")
        assert (await process.wait_until_ended(name)).state == "Done"


async def test_running_call_completes_after_the_grace_period(tmp_path):
    recorded = RecordedWorkflow(2)
    async with runner_process(tmp_path, recorded.workflow) as process:
        name = process.open()
        process.runner.resume()
        await asyncio.sleep(0.5)
        assert recorded.calls == [(DO, 0)]
        operations(process).drain("upgrade", WorkflowDrainRequest(grace_s=0))
        assert counts(process).running == 1
        await asyncio.sleep(1)
        assert (recorded.effects, process.workflow(name).step, counts(process).state) == ({0}, 1, "Drained")


async def test_timed_out_attempt_is_retried(tmp_path):
    recorded = RecordedWorkflow(1)
    first = recorded.workflow.steps[0]
    hangs = [1000.0]

    async def do_0(work):
        if hangs:
            await asyncio.sleep(hangs.pop())
        await first.do(work)

    async with runner_process(
        tmp_path, replace(recorded.workflow, steps=(replace(first, do=do_0, attempt_s=30),))
    ) as process:
        begun = process.clock.now()
        name = process.open()
        process.runner.resume()
        await asyncio.sleep(30.5)
        step = process.workflow(name).view().steps[0]
        assert (step.attempts, step.message) == (1, "Unavailable: no end within 30 s")
        row = await process.wait_until_ended(name)
        assert (row.state, process.clock.now() - begun < 40) == ("Done", True)


async def test_workflow_past_its_deadline_is_stuck(tmp_path):
    recorded = RecordedWorkflow(3)
    for step in range(3):
        recorded.raises[DO, step] = [StepPending("nodes are being deployed")] * 20
    async with runner_process(tmp_path, replace(recorded.workflow, deadline_s=500)) as process:
        name = process.open()
        process.runner.resume()
        await asyncio.sleep(480)
        assert process.workflow(name).stuck is None
        await asyncio.sleep(40)
        reported = process.workflow(name).stuck
        assert reported is not None
        assert reported["reason"] == "WorkflowDeadline"
        assert "under way for longer than 500 s: nodes are being deployed" in reported["message"]
        with process.store.transaction() as session:
            resume(session.get_one(OperationRow, name), process.clock.now())
        await asyncio.sleep(100)
        assert process.workflow(name).stuck is None, "its time counts from when it was resumed"
        assert (await process.wait_until_ended(name)).state == "Done"
