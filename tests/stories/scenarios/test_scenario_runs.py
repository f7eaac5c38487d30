"""A scenario run through MatrixCompute over REST: admins run it, viewers read it, and a kill leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.small_stack import SmallStack
from tests.stack import Stack

pytestmark = pytest.mark.looptime


async def shown(stack: Stack, name: str) -> dict[str, Any]:
    view: dict[str, Any] = (await stack.get("compute", f"/v1/scenario-runs/{name}")).json()
    return view


async def over(stack: Stack, name: str) -> dict[str, Any]:
    async def completed() -> bool:
        return (await shown(stack, name))["state"] == "Completed"

    await stack.until(completed, f"{name} is over", 7200)
    return await shown(stack, name)


async def struck(stack: Stack) -> bool:
    assert stack.fleet is not None
    return bool(stack.fleet.faults)


async def test_library_scenario_over_rest_survives_a_kill(tmp_path: Path) -> None:
    async with SmallStack(tmp_path, tokens=True) as stack:
        compute = stack.http["compute"]
        run = {"scenario": "free-node-lacks-an-npu", "seed": 4}
        made = await compute.post("/v1/scenario-runs", json=run, headers={"Idempotency-Key": "x"})
        assert made.status_code == 201, made.text
        first = made.json()["name"]
        await stack.until(lambda: struck(stack), "the fault is there")
        assert (await compute.delete(f"/v1/scenario-runs/{first}")).status_code == 409
        view = await over(stack, first)
        assert (view["verdict"], view["message"]) == ("PASS", "every expectation was met")
        assert [each["name"] for each in view["phases"]] == ["Preparing", "SteadyState", "Method", "RollingBack"]
        assert view["definition" if "definition" in view else "scenario"] == "free-node-lacks-an-npu"
        again = await compute.post("/v1/scenario-runs", json=run, headers={"Idempotency-Key": "x"})
        assert (again.json()["name"], again.json()["etag"]) == (first, view["etag"])

        await hidden_from_others(stack, first)

        assert (await compute.put("/v1/scenario-runs/cut", json=run)).status_code == 200
        await stack.until(lambda: struck(stack), "the fault is there again")
        await stack.kill("compute")
        assert await struck(stack)
        await stack.start("compute")
        view = await over(stack, "cut")
        assert view["verdict"] == "INVALID"
        assert view["message"].startswith("MatrixCompute stopped")
        assert [each["what"] for each in view["entries"]][-1] == "rolledBack"
        assert not await struck(stack)
        await stack.gone("scenario-demo")
        await stack.check()


async def hidden_from_others(stack: Stack, run: str) -> None:
    """A viewer of another project reads what the run showed, without the names of instances; and runs nothing."""
    headers = {"Authorization": f"Bearer {stack.token('viewer', 'red')}"}
    there = httpx.AsyncClient(transport=stack.transport_to("compute"), base_url="http://compute", headers=headers)
    view = (await there.get(f"/v1/scenario-runs/{run}")).json()
    assert view["verdict"] == "PASS"
    assert "scenario-demo" not in str(view)
    assert (await there.get("/v1/scenarios/gray-link")).json()["builtIn"] is True
    assert (await there.post("/v1/scenario-runs", json={"scenario": "gray-link"})).status_code == 403
