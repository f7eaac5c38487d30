"""Suspended: an instance gives its nodes and slices back, keeps its spec, and is had again as it is specified."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stack import Stack

pytestmark = pytest.mark.looptime


async def reaches(stack: Stack, name: str, state: str) -> None:
    async def there() -> bool:
        view = await stack.compute.find_instance(name)
        return view is not None and view.state == state and view.generation == view.observed_generation

    await stack.until(there, f"{name} is {state}")


async def change(stack: Stack, **more: Any) -> None:
    await stack.apply("one", **({"nodes": 4} | more))


async def holds_nothing(stack: Stack) -> None:
    assert await stack.resource.find_allocation("one") is None
    assert [await stack.link.find_slice(f"one-{plane}") for plane in ("ub", "rdma", "vpc")] == [None] * 3


async def test_suspended_instance_releases_everything_and_resumes(tmp_path):
    async with Stack(tmp_path) as stack:
        await change(stack, spares=1)
        await stack.active("one", 4)
        await change(stack, suspend=True)
        assert (await stack.compute.find_instance("one")).state == "Suspending"
        await stack.restart("compute")
        await reaches(stack, "one", "Suspended")
        await holds_nothing(stack)
        view = await stack.compute.find_instance("one")
        reasons = {each.type: (each.status, each.reason) for each in view.conditions}
        assert (reasons["Scheduled"], reasons["Ready"]) == (("False", "Released"), ("False", "Suspended"))
        assert not (await stack.get("compute", "/v1/stuck")).json()["items"]
        await stack.check()

        await change(stack, nodes=6, suspend=True)
        await stack.restart("compute")
        assert (await stack.compute.find_instance("one")).state == "Suspended"
        await change(stack, nodes=6)
        await stack.active("one", 6)
        await stack.check()
        await stack.compute.delete_instance("one")
        await stack.gone("one")
        await stack.nothing_left()


async def test_suspend_from_any_state(tmp_path):
    async with Stack(tmp_path) as stack:
        await change(stack, suspend=True)
        await reaches(stack, "one", "Suspended")
        await holds_nothing(stack)
        await change(stack)
        await stack.active("one", 4)
        await stack.http["compute"].post("/v1/instances/one:stop")
        await reaches(stack, "one", "Stopped")
        await change(stack, power="Off", suspend=True)
        await reaches(stack, "one", "Suspended")
        await holds_nothing(stack)
        await change(stack)
        await stack.active("one", 4)

        await change(stack, nodes=60)  # more than there are: it waits, as it was
        await change(stack, suspend=True)
        await reaches(stack, "one", "Suspended")
        await change(stack, nodes=60)

        async def waits() -> bool:
            return (await stack.compute.find_instance("one")).state in ("Pending", "Failed")

        await stack.until(waits, "there is no room")
        await change(stack, suspend=True)
        await reaches(stack, "one", "Suspended")
        await stack.compute.delete_instance("one")
        await stack.gone("one")
        await stack.nothing_left()


async def test_shape_changed_while_suspended_applies_on_resume(tmp_path):
    async with Stack(tmp_path) as stack:
        await change(stack, suspend=True)
        await reaches(stack, "one", "Suspended")
        for verb, power in (("stop", "Off"), ("start", "On")):
            answer = await stack.http["compute"].post(f"/v1/instances/one:{verb}")
            view = answer.json()
            assert (answer.status_code, view["state"], view["power"]) == (202, "Suspended", power)
            assert view["observedGeneration"] == view["generation"], "there is nothing to wait for"
        await change(stack, nodes=5)
        await stack.active("one", 5)
        await stack.check()
