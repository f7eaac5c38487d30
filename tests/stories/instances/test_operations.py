"""Operations over REST: waited for by the clock, cancelled while that can be undone, overtaken by a newer verb."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from matrixcompute.store.store import SagaRow
from tests.stack import Stack

pytestmark = pytest.mark.looptime


async def operation_of(stack: Stack, instance: str) -> dict[str, Any]:
    view = await stack.compute.find_instance(instance)
    assert view is not None
    return (await stack.get("compute", f"/v1/operations/{view.operation}")).json()


async def at_step(stack: Stack, instance: str, step: str) -> dict[str, Any]:
    """The instance's operation once it stands at that step."""

    async def reached() -> bool:
        return (await operation_of(stack, instance))["step"] == step

    await stack.until(reached, f"{instance} is at {step}", within_s=600)
    return await operation_of(stack, instance)


async def ask(stack: Stack, operation: dict[str, Any], verb: str, **params: Any) -> Any:
    return await stack.http["compute"].post(f"/v1/operations/{operation['name']}:{verb}", params=params)


async def ended(stack: Stack, operation: dict[str, Any]) -> dict[str, Any]:
    while not (answer := await ask(stack, operation, "wait")).json()["done"]:
        assert answer.status_code == 200
    return answer.json()


async def test_a_cancelled_creation_gives_everything_back_and_waits_until_it_is_asked_for_again(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4, spares=1)
        operation = await at_step(stack, "one", "await_ready")
        answer = await ask(stack, operation, "cancel", validateOnly="true")
        assert (answer.status_code, answer.json()["state"]) == (202, "Undoing")
        assert (await operation_of(stack, "one"))["state"] == "Running", "it was only validated"
        answer = await ask(stack, operation, "cancel")
        assert (answer.status_code, answer.json()["state"]) == (202, "Undoing")
        again = await ask(stack, operation, "cancel")
        assert (again.status_code, again.json()["name"]) == (202, operation["name"])
        done = await ended(stack, operation)
        assert (done["state"], done["error"]["reason"]) == ("Cancelled", "Cancelled")
        assert "cancelled at await_ready" in done["message"]
        await stack.nothing_left()
        await asyncio.sleep(300)
        view = await stack.compute.find_instance("one")
        assert (view.state, view.operation) == ("Pending", operation["name"]), "nobody tries again by himself"
        assert next(c for c in view.conditions if c.type == "Scheduled").reason == "Cancelled"
        await stack.http["compute"].post("/v1/instances/one:retry")
        await stack.active("one", 4)
        await stack.check()


@pytest.mark.parametrize("change", ["resize", "move"])
async def test_a_cancelled_change_leaves_the_instance_in_the_shape_it_had(tmp_path, change):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 3)
        before = await stack.active("one", 3)
        spread = {"policy": "spread", "level": "cabinet", "maxPerDomain": 1, "required": True}
        if change == "resize":
            await stack.apply("one", 6)
            operation = await at_step(stack, "one", "await_ready")
        else:
            assert (await stack.http["compute"].post("/v1/instances/one:move", json=spread)).status_code == 202
            operation = await at_step(stack, "one", "await_successors")
        assert (await ask(stack, operation, "cancel")).status_code == 202
        assert (await ended(stack, operation))["state"] == "Cancelled"
        after = await stack.active("one", 3)
        assert {(m.node, m.rank) for m in after.members} == {(m.node, m.rank) for m in before.members}
        assert (after.nodes, after.placement) == (before.nodes, before.placement)
        assert after.generation == after.observed_generation == 3, "going back is a change too"
        await stack.check()


async def test_an_operation_that_cannot_be_cancelled_says_which_can(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        await stack.active("one", 2)
        answer = await ask(stack, await operation_of(stack, "one"), "cancel")
        assert answer.status_code == 409
        assert "create-instance has ended: it is Done" in answer.json()["detail"]
        await stack.compute.delete_instance("one")
        answer = await ask(stack, await operation_of(stack, "one"), "cancel")
        assert answer.status_code == 409
        assert "create-instance before mark_active" in answer.json()["detail"]
        assert (await ask(stack, {"name": "nothing"}, "cancel")).status_code == 404
        await stack.gone("one")


async def test_an_overtaken_operation_is_cancelled_in_every_field(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        operation = await at_step(stack, "one", "await_ready")
        await stack.compute.delete_instance("one")
        view = (await stack.get("compute", f"/v1/operations/{operation['name']}")).json()
        assert (view["state"], view["done"], view["message"]) == ("Cancelled", True, "overtaken by delete-instance")
        assert 0 < view["progress"] < 1
        assert view["finishedAt"]
        await stack.gone("one")


async def test_waiting_ends_by_the_clock_however_often_it_is_woken(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        operation = await at_step(stack, "one", "await_ready")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        wait = asyncio.create_task(ask(stack, operation, "wait", timeoutSeconds=10))
        for count in range(40):
            await asyncio.sleep(0.1)
            await stack.apply("one", 2, labels={"count": f"{count}"})
        assert not wait.done(), "forty changes in four seconds are not forty seconds"
        assert not (await wait).json()["done"]
        assert loop.time() - begun == pytest.approx(10, abs=0.5)


async def test_an_operation_that_no_release_at_hand_resumes_is_listed_as_stuck_at_once(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4)
        operation = await at_step(stack, "one", "await_ready")
        assert (await stack.get("compute", "/v1/stuck")).json()["items"] == []
        await stack.kill("compute")
        with stack.seats["compute"].database.sessions.begin() as session:
            session.get(SagaRow, operation["name"]).verb = "of-another-release"
        await stack.start("compute")

        async def listed() -> list[dict[str, Any]]:
            return (await stack.get("compute", "/v1/stuck")).json()["items"]

        await stack.until(listed, "it is listed", within_s=60)
        (stuck,) = await listed()
        assert (stuck["name"], stuck["state"], stuck["reason"]) == ("one", "Provisioning", "UnknownVerb")
        assert "knows no of-another-release" in stuck["message"]

        async def counted() -> bool:
            return "\ninstances_stuck 1.0" in (await stack.get("compute", "/metrics")).text

        await stack.until(counted, "and counted", within_s=120)
