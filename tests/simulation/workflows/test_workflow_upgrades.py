"""MatrixCompute is upgraded while workflows are under way: to a release whose workflows have a step more, or one fewer.

Which workflows and steps there are is read off the tables (`WORKFLOWS`). An instance for each step of a workflow is held at
that step; then the process ends, another release takes over, and every instance has to come to where its workflow leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from matrixcommon.workflows.workflow import Step, StepPending, Workflow
from matrixcompute.workflows.definitions import WORKFLOWS
from services.compute import controllers as compute_controllers
from tests.simulation.workflows.test_workflow_mishaps import BEGINNINGS, ended, everything_goes
from tests.simulation.workflows.workflow_mishaps import subject
from tests.stack import Stack

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(300)]


async def checkpoint(work: Any) -> None:
    """What the newer release does besides."""


def with_a_step_more(workflow: Workflow, at: int) -> Workflow:
    """A release that does something more before the step at that place."""
    return replace(workflow, steps=(*workflow.steps[:at], Step(checkpoint), *workflow.steps[at:]))


def with_a_step_fewer(workflow: Workflow, at: int) -> Workflow:
    """A release in which one step does what this step and its neighbour did."""
    at = min(at, len(workflow.steps) - 2)
    first, second = workflow.steps[at : at + 2]

    async def both(work: Any) -> None:
        await first.do(work)
        await second.do(work)

    async def neither(work: Any) -> None:
        for step in (second, first):
            if step.undo is not None:
                await step.undo(work)

    committed = workflow.committed_at
    return replace(
        workflow,
        steps=(*workflow.steps[:at], Step(both, undo=neither), *workflow.steps[at + 2 :]),
        retired_steps={first.name: "both", second.name: "both"},
        committed_at="both" if committed in (first.name, second.name) else committed,
    )


RELEASES: dict[str, Callable[[Workflow, int], Workflow]] = {"more": with_a_step_more, "fewer": with_a_step_fewer}


@dataclass
class Halt:
    """Holds the workflow of each instance at its step, in the release before."""

    verb: str
    at: Mapping[str, str]
    """The step at which an instance is held, by its name."""
    reached: set[str] = field(default_factory=set)

    def wrapped(self, workflows: Mapping[str, Workflow]) -> dict[str, Workflow]:
        return {
            **workflows,
            self.verb: replace(workflows[self.verb], steps=tuple(map(self._halted, workflows[self.verb].steps))),
        }

    def _halted(self, step: Step) -> Step:
        async def do(work: Any) -> None:
            name = subject(work)
            if self.at.get(name, self.at.get("")) == step.name:
                self.reached.add(name)
                raise StepPending("this release goes no further")
            await step.do(work)

        do.__name__ = step.name
        return replace(step, do=do)


CASES = [(workflow, release) for workflow in BEGINNINGS for release in RELEASES]
QUICK = {("delete-instance", "fewer")}


@pytest.mark.parametrize(
    ("workflow", "release"),
    [pytest.param(*case, marks=() if case in QUICK else pytest.mark.soak, id="-".join(case)) for case in CASES],
)
async def test_running_workflows_end_in_another_release(
    workflow: str, release: str, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, set_off = BEGINNINGS[workflow]
    steps = WORKFLOWS[workflow].names
    names = {f"{workflow.split('-')[0]}-{at}": at for at in range(len(steps))}
    halt = Halt(workflow, {name: steps[at] for name, at in names.items()})
    no_safety_stop = {"compute": {"lost_per_supernode": 48}}  # a node for each step is lost at once
    async with Stack(tmp_path, settings=no_safety_stop) as stack:
        await asyncio.gather(*(begin(stack, name) for name in names))
        await stack.kill("compute")
        monkeypatch.setattr(compute_controllers, "WORKFLOWS", halt.wrapped(WORKFLOWS))
        await stack.start("compute")
        await asyncio.gather(*(set_off(stack, name) for name in names))

        async def all_halted() -> bool:
            return halt.reached == names.keys()

        await stack.until(all_halted, f"an instance stands at each step of {workflow}", within_s=3600)
        await stack.kill("compute")
        place = len(steps) // 2
        monkeypatch.setattr(
            compute_controllers, "WORKFLOWS", {**WORKFLOWS, workflow: RELEASES[release](WORKFLOWS[workflow], place)}
        )
        await stack.start("compute")
        await ended(stack)
        await stack.check()
        assert not (await stack.get("compute", "/v1/stuck")).json()["items"]
        operations = (await stack.get("compute", "/v1/operations?pageSize=1000")).json()["items"]
        carried = [each for each in operations if each["verb"] == workflow and each["target"] in names]
        assert {each["state"] for each in carried} == {"Done"}
        await everything_goes(stack)
