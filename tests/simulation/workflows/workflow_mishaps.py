"""What can befall a step of a workflow, for whichever service, workflow and step: the tables of workflows are wrapped,
not listed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from matrixcommon.model.errors import Conflict, Unavailable
from matrixcommon.model.resource_key import name_of
from matrixcommon.workflows.workflow import Step, Workflow
from tests.stack import Stack

LATE_S = 40.0

Target = tuple[str, str, str]
"""What a workflow is over ("": whatever), its verb, and a step of that."""


def subject(work: Any) -> str:
    """What a step is about: an instance, a drain, a plan, or an allocation of which a member moves."""
    return name_of(getattr(work, "instance", None) or work.target)


@dataclass
class Mishaps:
    """What is to befall which step of one service's workflows, once, and what has. `remove`: how somebody takes back
    what a workflow is over."""

    service: str
    remove: Callable[[Stack, str], Awaitable[object]]
    stack: Stack | None = None
    coming: dict[Target, str] = field(default_factory=dict)
    happened: dict[Target, str] = field(default_factory=dict)
    restarts: set[asyncio.Task[None]] = field(default_factory=set)

    def wrapped(self, workflows: Mapping[str, Workflow[Any]]) -> dict[str, Workflow[Any]]:
        """The same workflows, with every step open to mishaps."""
        return {
            verb: replace(workflow, steps=tuple(self._exposed(verb, step) for step in workflow.steps))
            for verb, workflow in workflows.items()
        }

    def _exposed(self, verb: str, step: Step[Any]) -> Step[Any]:
        async def do(work: Any) -> None:
            about = subject(work)
            target = next(
                (each for each in ((about, verb, step.name), ("", verb, step.name)) if each in self.coming), None
            )
            if target is None:
                await step.do(work)
                return
            kind = self.happened[target] = self.coming.pop(target)
            await MISHAPS[kind](self, step, work)

        do.__name__ = step.name
        return replace(step, do=do)

    def crash(self) -> None:
        """The process of the service ends here, and is started again a little later."""
        assert self.stack is not None
        if not any(not each.done() for each in self.restarts):
            self.restarts.add(asyncio.get_running_loop().create_task(self._restart(self.stack)))

    async def _restart(self, stack: Stack) -> None:
        await stack.kill(self.service)
        await asyncio.sleep(5)
        await stack.start(self.service)


async def failed(mishaps: Mishaps, step: Step[Any], work: Any) -> None:
    raise Unavailable("the neighbour is away")


async def refused(mishaps: Mishaps, step: Step[Any], work: Any) -> None:
    raise Conflict("refused for good")


async def timed_out(mishaps: Mishaps, step: Step[Any], work: Any) -> None:
    await asyncio.sleep(LATE_S)
    raise Unavailable("no answer in time")


async def broken(mishaps: Mishaps, step: Step[Any], work: Any) -> None:
    raise RuntimeError("something nobody foresaw")


async def lost(mishaps: Mishaps, step: Step[Any], work: Any) -> None:
    await step.do(work)
    raise Unavailable("it was done, and the answer was lost")


async def delayed(mishaps: Mishaps, step: Step[Any], work: Any) -> None:
    await asyncio.sleep(LATE_S)
    await step.do(work)


async def hung(mishaps: Mishaps, step: Step[Any], work: Any) -> None:
    """It was done, and there is neither an answer nor a failure: the attempt has a deadline."""
    await step.do(work)
    await asyncio.Event().wait()


async def doubled(mishaps: Mishaps, step: Step[Any], work: Any) -> None:
    await step.do(work)
    await step.do(work)


async def crashed_before(mishaps: Mishaps, step: Step[Any], work: Any) -> None:
    mishaps.crash()
    await asyncio.Event().wait()


async def crashed_after(mishaps: Mishaps, step: Step[Any], work: Any) -> None:
    """It was done; that it was is not written down."""
    try:
        await step.do(work)
    finally:
        mishaps.crash()
        await asyncio.Event().wait()


async def cancelled(mishaps: Mishaps, step: Step[Any], work: Any) -> None:
    """Somebody asks for that; where it is too late it goes on."""
    assert mishaps.stack is not None
    http = mishaps.stack.http[mishaps.service]
    listed = (await http.get("/v1/operations", params={"pageSize": 1000})).json()["items"]
    mine = [each for each in listed if each["target"] == subject(work) and not each["done"]]
    operation = next(each for each in mine if step.name in {part["name"] for part in each["steps"]})
    answer = await http.post(f"/v1/operations/{operation['name']}:cancel")
    assert answer.status_code in (202, 409), answer.text
    await step.do(work)


async def deleted(mishaps: Mishaps, step: Step[Any], work: Any) -> None:
    """Somebody takes back meanwhile what it is over."""
    assert mishaps.stack is not None
    with contextlib.suppress(Unavailable):
        await mishaps.remove(mishaps.stack, subject(work))
    await step.do(work)


MISHAPS: dict[str, Callable[[Mishaps, Step[Any], Any], Awaitable[None]]] = {
    each.__name__: each
    for each in (
        failed, refused, timed_out, broken, lost, delayed, hung, doubled, crashed_before, crashed_after, cancelled,
        deleted,
    )
}  # fmt: skip
ENDING = ("refused", "cancelled", "deleted")
"""Those after which a workflow does not come to its end."""
