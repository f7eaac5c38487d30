"""Faults on services through MatrixCompute: carried out where somebody can, refused with its field where nobody can, and
undone when MatrixCompute dies meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from matrixcommon.model.errors import Conflict, InvalidField, NotFound
from matrixcontainer.client.client import SCENARIO
from services.node_agent import main as agents_main
from services.node_agent.contract import ProcessFaultRequest, ProcessFaultView, ProcessView
from tests.cluster import Cluster
from tests.stack import Stack

pytestmark = pytest.mark.looptime

SERVICES = ("agents", "compute", "link", "resource")


class InProcess:
    """Who strikes the services of a stack in one process: a paused one does not answer. What it keeps outlives it."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.injected: dict[str, ProcessFaultView] = {}
        self.struck: list[str] = []

    async def processes(self) -> list[ProcessView]:
        return [await self.process(name) for name in SERVICES]

    async def process(self, name: str) -> ProcessView:
        if name not in SERVICES:
            raise NotFound(f"there is no process named {name!r}", field="name")
        running = not self.stack.slots[name].transport.down
        return ProcessView(name=name, running=running, restarted=False, writable=True, stalled=False)

    async def faults(self) -> list[ProcessFaultView]:
        return list(self.injected.values())

    async def fault(self, name: str) -> ProcessFaultView:
        if name not in self.injected:
            raise NotFound("there is no such fault", field="name")
        return self.injected[name]

    async def inject(self, name: str, body: ProcessFaultRequest, validate_only: bool = False) -> ProcessFaultView:
        if body.kind != "service-paused":
            raise InvalidField("nothing of that here", field="kind")
        view = ProcessFaultView(name=name, **body.model_dump())
        if name in self.injected and self.injected[name] != view:
            raise Conflict("another one", field="name")
        if name not in self.injected and not validate_only:
            self.injected[name] = view
            self.struck.append(name)
            self.stack.slots[body.target].transport.down = True
        return view

    async def clear(self, name: str) -> None:
        self.stack.slots[self.injected.pop(name).target].transport.down = False


def pausing(service: str = "resource", fault: str = "service-paused") -> dict[str, Any]:
    return {
        "title": "A service stands still",
        "targets": {"service": {"type": "service", "select": {"names": [service]}}},
        "stopConditions": [{"source": "none"}],
        "method": [
            {
                "name": "freeze", "fault": fault, "target": "service", "at": "5s", "duration": "20s",
                "verify": {"hardware": "service", "where": {"running": "false"}},
            }
        ],
        "expect": [{"name": "nobody is given up", "fault": "NodeLost", "count": 0, "within": "3m", "mode": "always"}],
    }  # fmt: skip


async def ask(stack: Stack, name: str, definition: dict[str, Any], **query: str) -> Any:
    body = {"definition": definition}
    return await stack.http["compute"].put(f"/v1/scenario-runs/{name}", json=body, params=query)


async def shown(stack: Stack, name: str) -> dict[str, Any]:
    view: dict[str, Any] = (await stack.get("compute", f"/v1/scenario-runs/{name}")).json()
    return view


async def completed(stack: Stack, name: str) -> dict[str, Any]:
    async def over() -> bool:
        return (await shown(stack, name))["state"] == "Completed"

    await stack.until(over, f"{name} is over", within_s=3600)
    return await shown(stack, name)


@pytest.fixture
def striker(monkeypatch: pytest.MonkeyPatch) -> dict[str, InProcess]:
    """Of each stack that is built, by its folder; the same one in every life of its agents."""
    made: dict[str, InProcess] = {}
    usual = agents_main.ProcessExecutor  # of the stack that others are copied from

    def executor(state: Path, own: str) -> Any:
        return made.get(str(state)) or usual(state, own)

    monkeypatch.setattr(agents_main, "ProcessExecutor", executor)
    return made


async def test_paused_service_resumes_and_the_run_completes(tmp_path: Path, striker: Any) -> None:
    stack = Stack(tmp_path)
    own = striker[str(tmp_path)] = InProcess(stack)
    async with stack:
        preview = await ask(stack, "freeze", pausing(), validateOnly="true")
        assert preview.json()["preview"]["targets"] == {"service": ["resource"]}
        assert own.struck == []
        assert (await ask(stack, "freeze", pausing())).is_success
        view = await completed(stack, "freeze")
        assert (view["verdict"], view["message"]) == ("PASS", "every expectation was met")
        assert [each["what"] for each in view["entries"]].count("injected") == 1
        assert (len(own.struck), own.injected) == (1, {})
        await stack.check()


async def test_faults_of_a_killed_matrixcompute_are_cleared_at_restart(tmp_path: Path, striker: Any) -> None:
    stack = Stack(tmp_path)
    own = striker[str(tmp_path)] = InProcess(stack)
    async with stack:
        assert (await ask(stack, "freeze", pausing())).is_success

        async def struck() -> bool:
            return bool(own.injected)

        await stack.until(struck, "it stands still", every_s=1)
        await stack.restart("compute")
        view = await completed(stack, "freeze")
        assert view["verdict"] == "INVALID"
        assert (own.struck, own.injected) == (own.struck[:1], {})
        assert not stack.slots["resource"].transport.down
        await stack.check()


@pytest.mark.parametrize(
    ("definition", "field", "why"),
    [
        (pausing("compute"), "definition.method[0].target", "matrixctl scenario run"),
        (pausing("kube"), "definition.targets.service.select", "matches nothing"),
        (pausing(fault="service-killed"), "definition.method[0].fault", "nothing of that here"),
    ],
)
async def test_impossible_process_fault_is_refused_with_its_field(
    definition: dict[str, Any], field: str, why: str, tmp_path: Path, striker: Any
) -> None:
    stack = Stack(tmp_path)
    own = striker[str(tmp_path)] = InProcess(stack)
    async with stack:
        for query in ({"validateOnly": "true"}, {}):
            refused = await ask(stack, "freeze", definition, **query)
            assert (refused.status_code, refused.json()["field"]) == (422, field), refused.text
            assert why in refused.json()["detail"]
        assert own.struck == []
        assert (await stack.get("compute", "/v1/scenario-runs")).json()["items"] == []


async def test_preview_without_an_executor_is_refused(tmp_path: Path) -> None:
    async with Stack(tmp_path) as stack:
        for query in ({"validateOnly": "true"}, {}):
            refused = await ask(stack, "freeze", pausing(), **query)
            assert (refused.status_code, refused.json()["field"]) == (422, "definition.method[0].fault")
            assert "matrixctl up" in refused.json()["detail"]
        strike = await stack.http["agents"].put(
            "/v1/process-faults/x", json={"kind": "service-killed", "target": "resource"}
        )
        assert (strike.status_code, strike.json()["field"]) == (422, "kind")
        assert (await stack.get("agents", "/v1/processes")).json()["items"] == []


async def test_process_fault_scenario_as_a_resource(tmp_path: Path, striker: Any) -> None:
    cluster = Cluster(tmp_path)
    own = striker[str(tmp_path)] = InProcess(cluster)
    async with cluster:
        await cluster.apply_resource(SCENARIO, "freeze", pausing("link"))
        passed = await cluster.settles(
            SCENARIO, "freeze", lambda b: (b.get("status") or {}).get("verdict"), "it has a verdict"
        )
        assert passed["status"]["verdict"] == "PASS"
        assert len(own.struck) == 1
        await cluster.apply_resource(SCENARIO, "itself", pausing("compute"))
        refused = await cluster.settles(
            SCENARIO, "itself", lambda b: (b.get("status") or {}).get("state") == "Refused", "it is refused"
        )
        ready = next(each for each in refused["status"]["conditions"] if each["type"] == "Ready")
        assert ready["message"].startswith("spec.method[0].target: ")
        await asyncio.sleep(1)
        assert len(own.struck) == 1
