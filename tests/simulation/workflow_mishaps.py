"""What can befall a step of a workflow, for whichever workflow and step: the tables of workflows are wrapped, not listed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from matrixcommon.model.errors import Conflict, Unavailable
from matrixcommon.model.resource_key import name_of
from matrixcommon.workflows.workflow import Step, Workflow
from matrixcompute.operations.context import StepContext
from tests.stack import Stack

LATE_S = 40.0

Target = tuple[str, str, str]
"""An instance, the verb of a workflow over it, and a step of that."""


@dataclass
class Mishaps:
    """What is to befall which step, once, and what has."""

    stack: Stack | None = None
    coming: dict[Target, str] = field(default_factory=dict)
    happened: dict[Target, str] = field(default_factory=dict)
    restarts: set[asyncio.Task[None]] = field(default_factory=set)

    def wrapped(self, workflows: Mapping[str, Workflow]) -> dict[str, Workflow]:
        """The same workflows, with every step open to mishaps."""
        return {
            verb: replace(workflow, steps=tuple(self._exposed(verb, step) for step in workflow.steps))
            for verb, workflow in workflows.items()
        }

    def _exposed(self, verb: str, step: Step) -> Step:
        async def do(work: StepContext) -> None:
            target = name_of(work.instance), verb, step.name
            kind = self.coming.pop(target, None)
            if kind is None:
                await step.do(work)
                return
            self.happened[target] = kind
            await MISHAPS[kind](self, step, work)

        do.__name__ = step.name
        return replace(step, do=do)

    def crash(self) -> None:
        """The process of MatrixCompute ends here, and is started again a little later."""
        assert self.stack is not None
        if not any(not each.done() for each in self.restarts):
            self.restarts.add(asyncio.get_running_loop().create_task(self._restart(self.stack)))

    async def _restart(self, stack: Stack) -> None:
        await stack.kill("compute")
        await asyncio.sleep(5)
        await stack.start("compute")


async def failed(mishaps: Mishaps, step: Step, work: StepContext) -> None:
    raise Unavailable("the neighbour is away")


async def refused(mishaps: Mishaps, step: Step, work: StepContext) -> None:
    raise Conflict("refused for good")


async def timed_out(mishaps: Mishaps, step: Step, work: StepContext) -> None:
    await asyncio.sleep(LATE_S)
    raise Unavailable("no answer in time")


async def broken(mishaps: Mishaps, step: Step, work: StepContext) -> None:
    raise RuntimeError("something nobody foresaw")


async def lost(mishaps: Mishaps, step: Step, work: StepContext) -> None:
    await step.do(work)
    raise Unavailable("it was done, and the answer was lost")


async def delayed(mishaps: Mishaps, step: Step, work: StepContext) -> None:
    await asyncio.sleep(LATE_S)
    await step.do(work)


async def doubled(mishaps: Mishaps, step: Step, work: StepContext) -> None:
    await step.do(work)
    await step.do(work)


async def crashed_before(mishaps: Mishaps, step: Step, work: StepContext) -> None:
    mishaps.crash()
    await asyncio.Event().wait()


async def crashed_after(mishaps: Mishaps, step: Step, work: StepContext) -> None:
    """It was done; that it was is not written down."""
    try:
        await step.do(work)
    finally:
        mishaps.crash()
        await asyncio.Event().wait()


async def cancelled(mishaps: Mishaps, step: Step, work: StepContext) -> None:
    """Somebody asks for that; where it is too late it goes on."""
    assert mishaps.stack is not None
    answer = await mishaps.stack.http["compute"].post(f"/v1/operations/{name_of(work.operation)}:cancel")
    assert answer.status_code in (202, 409), answer.text
    await step.do(work)


async def deleted(mishaps: Mishaps, step: Step, work: StepContext) -> None:
    """Somebody deletes the instance meanwhile."""
    assert mishaps.stack is not None
    with contextlib.suppress(Unavailable):
        await mishaps.stack.compute.delete_instance(work.instance)
    await step.do(work)


MISHAPS: dict[str, Callable[[Mishaps, Step, StepContext], Awaitable[None]]] = {
    each.__name__: each
    for each in (
        failed, refused, timed_out, broken, lost, delayed, doubled, crashed_before, crashed_after, cancelled, deleted,
    )
}  # fmt: skip
