"""An instance whose deployment serves under load, and what is asked of it."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.stack import Stack

LOAD = {"requestsPerSecond": 6.0, "seed": 5, "inputTokensMax": 8192}


async def serving_under_load(stack: Stack, name: str, **load: float) -> None:
    """A deployment on the instance of that name; each of its nodes has had requests for a while."""
    for part, body in (("", {"instance": name}), ("/load", LOAD | load)):
        answer = await stack.http["infer"].put(f"/v1/deployments/{name}{part}", json=body)
        assert answer.status_code == 200, answer.text

    async def loaded() -> bool:
        return (await statistics(stack, name))["decoding"] > 10

    await stack.until(loaded, "it serves", every_s=5)
    await asyncio.sleep(20)


async def statistics(stack: Stack, name: str = "one") -> dict[str, Any]:
    return (await stack.get("infer", f"/v1/deployments/{name}/statistics")).json()


async def drain_of(stack: Stack) -> dict[str, Any]:
    return (await stack.get("infer", "/v1/deployments/one")).json().get("drain") or {}


async def operations(stack: Stack, verb: str) -> list[dict[str, Any]]:
    return (await stack.get("compute", "/v1/operations", params={"filter": f"verb={verb}"})).json()["items"]


async def step_of(stack: Stack, verb: str) -> str:
    """The step at which the newest operation of that verb is; "" where none is under way."""
    found = await operations(stack, verb)
    return found[-1]["step"] if found else ""


def nothing_lost(shown: dict[str, Any]) -> None:
    """Every request that was accepted has finished or is on its way, where it first went."""
    assert shown["submitted"] == shown["finished"] + shown["inFlight"], shown
    assert (shown["lost"], shown["cancelled"], shown["requeued"]) == (0, 0, 0)
    assert (shown["load"]["refused"], shown["load"]["skipped"]) == (0, 0), shown
