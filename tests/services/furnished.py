"""A stack with something of each kind in two projects, for walks over every route."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from services.testing.prepared import prepared
from tests.services.every_route import REPORT_OF_A_RUN, SCENARIO
from tests.small_stack import SmallStack
from tests.stack import Stack

MARK = "blue"
"""The other project's name; it must not be seen by red. Its things are called `a`, as some of red's are."""

INSTANCES = (f"{MARK}/a", f"{MARK}/b", "red/a")

Furnished = tuple[Stack, dict[str, str]]
"""A stack, and the names that were made up for what is in it."""


async def furnished(stack: Stack) -> dict[str, str]:
    """Something of each kind in project blue, red with an instance of the same name; names that were made up."""
    for project in (MARK, "red"):
        params = {"project": project}

        async def put(service: str, path: str, body: dict[str, Any], params: dict[str, str] = params) -> None:
            answer = await stack.http[service].put(path, json=body, params=params)
            assert answer.is_success, (path, answer.text)

        await put("compute", "/v1/instances/a", {"nodes": 2, "leaseS": 9e8})
        if project == MARK:
            await put("compute", "/v1/instances/b", {"nodes": 1})
    for key in INSTANCES:
        await stack.active(key)
    params = {"project": MARK}
    await put(
        "resource", "/v1/reservations/later", {"nodes": 1, "startsAt": "2100-01-01T00:00:00Z", "durationS": 60}, params
    )
    await put("resource", "/v1/quotas/blue", {"npus": 800}, {})
    century = {"target": {"supernode": "sn0"}, "notBefore": "2100-01-01T00:00:00Z"}
    await put("compute", "/v1/maintenances/century", century, {})
    await put("compute", "/v1/disruption-budgets/office-hours", {"nodes": "3"}, {})
    await put("compute", "/v1/scenarios/own", SCENARIO, {})
    await put("compute", "/v1/scenario-runs/rehearsal", {"definition": SCENARIO}, {})
    await stack.http["compute"].post("/v1/scenario-runs/rehearsal:stop")
    await settles(stack, "compute", "/v1/scenario-runs/rehearsal", "Completed")
    await put("compute", "/v1/scaling-policies/follow", {"scaleTargetRef": {"name": "b"}, "maxReplicas": 3}, params)
    await put("compute", "/v1/recovery-policies/gentle", {"instance": "b", "rungs": ["restart"]}, params)
    await put("link", "/v1/communicators/talk", {"slice": "a-ub", "pattern": "ring"}, params)
    await put("link", "/v1/peerings/bridge", {"slices": ["a-vpc", "b-vpc"]}, params)
    members = (await stack.http["resource"].get("/v1/allocations/a", params=params)).json()["members"]
    guarded = {"allocation": "a", "instance": "a", "plane": "ub", "members": [members[0]["node"]]}
    guarded |= {"qosClass": "Guaranteed", "floorGbpsPerNpu": 1, "protection": "path"}
    answer = await stack.http["link"].put("/v1/slices/guarded", json=guarded, params=params)
    await put("agents", "/v1/traffic/busy", {"slice": "a-ub", "gbpsPerNpu": 1}, params)
    await put("agents", "/v1/faults/hurt", {"kind": "node-down", "target": "sn0-c02-n3"}, {})
    if "infer" in stack.services:
        await put("infer", "/v1/deployments/chat", {"instance": "a"}, params)
        await put("infer", "/v1/usage-limits/small", {"tokensPerMinute": 1000}, params)
        await put("infer", "/v1/reports/found", REPORT_OF_A_RUN, params)
        await settles(stack, "infer", "/v1/deployments/chat", "Serving", params)
    operations = (await stack.http["compute"].get("/v1/operations", params=params)).json()["items"]
    made = {"operations": operations[0]["name"], "members": members[0]["node"]}
    return {**made, **({} if answer.is_success else {"backup-paths": "none"})}


async def settles(stack: Stack, service: str, path: str, state: str, params: dict[str, str] | None = None) -> None:
    """Its state changes by itself until it is that."""
    view: dict[str, Any] = {}
    for _ in range(1200):
        view = (await stack.http[service].get(path, params=params)).json()
        if view["state"] == state:
            return
        await asyncio.sleep(1)
    raise AssertionError(f"it was never {state}: {view}")


@asynccontextmanager
async def _furnishing(stack: Stack) -> AsyncIterator[dict[str, str]]:
    async with stack:
        yield await furnished(stack)


def furnished_before(folder: Path, of: type[Stack] = SmallStack) -> Stack:
    """One that continues from a copy of a furnished stack, which is made once in a run."""
    before = prepared(
        f"furnished {of.__name__}", lambda new: _furnishing(of(new, tokens=True, infer=True, from_nothing=True))
    )
    return of(folder, tokens=True, infer=True, start_from=before)


async def continued(stack: Stack) -> dict[str, str]:
    """All of it runs again, and nothing happens by itself any more; names that were made up."""
    for key in INSTANCES:
        await stack.active(key)
    await settles(stack, "infer", "/v1/deployments/chat", "Serving", {"project": MARK})
    await stack.stop_background_tasks("agents")
    return dict(stack.initial_state().names)


@asynccontextmanager
async def furnished_stack(folder: Path, of: type[Stack] = SmallStack) -> AsyncIterator[Furnished]:
    """Everything up, with things of both projects, and nothing that happens by itself any more."""
    async with furnished_before(folder, of) as stack:
        yield stack, await continued(stack)
