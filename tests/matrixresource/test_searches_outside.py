"""Long searches hold neither the event loop nor the journal's lock: others are answered, and may write, meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from matrixcommon.persistence.searches import SEARCHES_MAX, run_with_searches, search
from matrixresource.defragmentation import plan
from matrixresource.scheduler.changes import preemption, resize
from matrixresource.scheduler.explain import explain
from services.resource.main import ResourceSettings, build
from services.testing.asgi import StreamingASGITransport
from tests.matrixresource.machine import Machine

PATIENCE_S = 20.0
"""After which a test that would hang fails instead."""

URGENT = {"nodes": 24, "priority": 5, "preemption": "LowerPriority"}


class SlowSearch:
    """A search that ends only when it is let go."""

    def __init__(self, search: Callable[..., Any]) -> None:
        self.search = search
        self.runs = 0
        self.started, self.proceed = threading.Event(), threading.Event()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.runs += 1
        self.started.set()
        assert self.proceed.wait(PATIENCE_S), "nobody else was answered while it searched"
        return self.search(*args, **kwargs)

    async def under_way(self) -> None:
        assert await asyncio.to_thread(self.started.wait, PATIENCE_S)


@pytest.fixture
async def resource(tmp_path) -> AsyncIterator[httpx.AsyncClient]:
    """MatrixResource over a machine that two allocations fill."""
    machine = Machine(tmp_path)
    machine.reserve("old", nodes=24)
    machine.clock.at += 1000
    machine.reserve("young", nodes=24)
    machine.database.close()
    machine.start([])
    settings = ResourceSettings(state=tmp_path, supernodes=1)
    app = build(settings, machine.clock, machine.database)
    async with httpx.AsyncClient(transport=StreamingASGITransport(app), base_url="http://resource") as http:
        yield http
    machine.database.close()


@pytest.mark.parametrize(
    ("module", "search", "method", "path", "body", "status"),
    [
        (preemption, "victims", "PUT", "/v1/allocations/high", URGENT, 200),
        (preemption, "victims", "PUT", "/v1/allocations/high?validateOnly=true", URGENT, 200),
        (preemption, "growth_victims", "PUT", "/v1/allocations/old", URGENT | {"nodes": 30}, 200),
        (resize, "move", "PUT", "/v1/allocations/old/move", {"nodes": 24, "placement": {"policy": "spread"}}, 200),
        (plan, "plan_defragmentation", "POST", "/v1/defragmentations", {"nodes": 4, "level": "cabinet"}, 409),
        (explain, "explain_placement", "POST", "/v1/plans", {"nodes": 24}, 200),
    ],
)
async def test_requests_are_served_during_a_search(resource, monkeypatch, module, search, method, path, body, status):
    slow = SlowSearch(getattr(module, search))
    monkeypatch.setattr(module, search, slow)
    asked = asyncio.create_task(resource.request(method, path, json=body))
    await slow.under_way()
    assert (await resource.get("/v1/nodes", params={"pageSize": 1})).status_code == 200
    assert (await resource.post("/v1/nodes/sn0-c00-n0:uncordon")).status_code == 200
    assert not asked.done()
    slow.proceed.set()
    answer = await asked
    assert answer.status_code == status, answer.text
    assert slow.runs == 1, "what was found held, so it was not looked for again"


async def test_outdated_search_is_repeated(resource, monkeypatch):
    slow = SlowSearch(preemption.victims)
    monkeypatch.setattr(preemption, "victims", slow)
    asked = asyncio.create_task(resource.put("/v1/allocations/high", json=URGENT))
    await slow.under_way()
    assert (await resource.delete("/v1/allocations/young")).status_code == 204
    assert (await resource.put("/v1/allocations/higher", json={"nodes": 24, "priority": 9})).status_code == 200
    slow.proceed.set()
    answer = await asked
    assert (answer.status_code, slow.runs) == (200, 2)
    assert answer.json()["preempts"] == ["old"]
    holders = {node["allocation"] for node in (await resource.get("/v1/nodes")).json()["items"]}
    assert holders == {"high", "higher"}


async def test_freed_capacity_avoids_preemption(resource, monkeypatch):
    slow = SlowSearch(preemption.victims)
    monkeypatch.setattr(preemption, "victims", slow)
    asked = asyncio.create_task(resource.put("/v1/allocations/high", json=URGENT))
    await slow.under_way()
    assert (await resource.delete("/v1/allocations/old")).status_code == 204
    slow.proceed.set()
    answer = await asked
    assert (answer.status_code, answer.json()["preempts"]) == (200, [])
    assert (await resource.get("/v1/allocations/young")).status_code == 200


async def test_search_runs_in_place_after_repeated_conflicts():
    ledger, here = [0], threading.get_ident()
    searched: list[bool] = []

    def find(state: list[int]) -> int:
        searched.append(threading.get_ident() == here)
        return state[0]

    async def verb() -> int:
        ledger[0] += 1  # somebody else was faster, each time
        return search("room", find, ledger, lambda found: found == ledger[0])

    assert await run_with_searches(verb, None) == ledger[0]
    assert searched == [False] * SEARCHES_MAX + [True]


async def test_a_preemption_is_decided_however_often_the_machine_has_changed(resource, monkeypatch):
    monkeypatch.setattr(preemption, "are_sufficient", lambda *_: False)
    answer = await resource.put("/v1/allocations/high", json=URGENT)
    assert (answer.status_code, answer.json()["preempts"]) == (200, ["young"])
