"""Maintenance of a node of an instance that serves under load: the member drains before it changes over."""

from __future__ import annotations

import asyncio

import pytest

from matrixcompute.operations.context import MOVE
from matrixcompute.workflows.definitions import WORKFLOWS
from services.compute import controllers as compute_controllers
from tests.simulation.workflows.test_workflow_mishaps import delete
from tests.simulation.workflows.workflow_mishaps import Mishaps
from tests.stack import Stack
from tests.stories.maintenance.running import events, members, put
from tests.stories.repairs.serving import drain_of, nothing_lost, serving_under_load, statistics, step_of

pytestmark = pytest.mark.looptime


async def test_drain_survives_a_kill_without_requeued_requests(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        await stack.apply("one", 4)
        await stack.active("one", 4)
        await serving_under_load(stack, "one")
        target = (await members(stack, "one"))[0]
        await put(stack, "fan", target={"node": target}, serviceS=60)
        await stack.until(lambda: at(stack, "drain_members"), "the member drains", every_s=1)
        drain = await drain_of(stack)
        assert (drain["nodes"], drain["state"]) == ([target], "Draining")
        assert drain["by"].startswith("move-instance-one-")
        successor = await used_beside(stack, target)
        await stack.restart("compute")
        assert target in await holders(stack), "it keeps its place until nothing runs there"
        await stack.until(lambda: left(stack, target), "it has changed over", every_s=2)
        await asyncio.sleep(30)
        shown = await statistics(stack)
        nothing_lost(shown)
        assert successor in await members(stack, "one")
        assert await drain_of(stack) == {}
        heard = await events(stack, "one")
        assert heard.index("Moving") < heard.index("Drained") < heard.index("Moved")
        await stack.check()


@pytest.mark.soak
async def test_maintenance_without_a_drain_requeues_requests(tmp_path):
    async with Stack(tmp_path, infer=True, settings={"compute": {"drain_seconds": 0}}) as stack:
        await stack.apply("one", 4)
        await stack.active("one", 4)
        await serving_under_load(stack, "one")
        target = (await members(stack, "one"))[0]
        await put(stack, "fan", target={"node": target}, serviceS=60)
        await stack.until(lambda: left(stack, target), "it has changed over", every_s=2)
        await asyncio.sleep(10)
        assert (await statistics(stack))["requeued"] > 0
        assert "Drained" not in await events(stack, "one")


@pytest.mark.soak
@pytest.mark.parametrize("step", ["await_loaded", "tell_workload", "drain_members", "cut_over"])
@pytest.mark.parametrize(
    "kind", ["lost", "broken", "doubled", "crashed_before", "crashed_after", "cancelled", "refused"]
)
async def test_injected_step_failures_requeue_nothing_and_leave_no_drain(tmp_path, monkeypatch, step, kind):
    mishaps = Mishaps("compute", delete)
    monkeypatch.setattr(compute_controllers, "WORKFLOWS", mishaps.wrapped(WORKFLOWS))
    async with Stack(tmp_path, infer=True) as stack:
        mishaps.stack = stack
        await stack.apply("one", 4)
        await stack.active("one", 4)
        await serving_under_load(stack, "one")
        target = (await members(stack, "one"))[0]
        mishaps.coming = {("one", MOVE, step): kind}
        await put(stack, "fan", target={"node": target}, serviceS=60)
        await stack.until(lambda: left(stack, target), "it has changed over", every_s=5, within_s=1800)
        assert mishaps.happened
        await asyncio.sleep(90)
        nothing_lost(await statistics(stack))
        assert await drain_of(stack) == {}
        await stack.check()


async def at(stack: Stack, step: str) -> bool:
    return await step_of(stack, "move-instance") == step


async def used_beside(stack: Stack, target: str) -> str:
    """The successor, which is used before anything leaves."""
    view = await stack.compute.find_instance("one")
    assert view is not None
    (successor,) = [each.node for each in view.members if each.role == "successor"]
    roles = (await stack.get("infer", "/v1/deployments/one")).json()["roles"]
    assert {successor, target} <= roles.keys()
    return successor


async def holders(stack: Stack) -> set[str]:
    view = await stack.compute.find_instance("one")
    assert view is not None
    return {each.node for each in view.members}


async def left(stack: Stack, target: str) -> bool:
    view = await stack.compute.find_instance("one")
    assert view is not None
    return view.state == "Active" and target not in {each.node for each in view.members}
