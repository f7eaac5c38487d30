"""Scenarios against the stack: what passes, what fails, what proves nothing, and that nothing of it stays behind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from matrixcommon.model.errors import InvalidField, MatrixError
from matrixcompute.scenarios.preflight import preview
from matrixcompute.scenarios.report import RunReport
from matrixcompute.scenarios.rollback import clean_up
from matrixcompute.scenarios.runner import ScenarioRunner
from matrixcompute.scenarios.schema import Scenario
from matrixcompute.scenarios.service_clients import ServiceClients
from tests.matrixcompute.scenarios.example import scenario
from tests.small_stack import SmallStack
from tests.stack import Stack

pytestmark = pytest.mark.looptime

PREFIX = "scenario-test-"


def runner(stack: Stack, of: Scenario) -> ScenarioRunner:
    return ScenarioRunner("example", of, ServiceClients(stack.http), stack.clock, PREFIX)


async def nothing_is_left(stack: Stack) -> None:
    assert stack.fleet is not None
    assert not stack.fleet.faults
    assert await stack.compute.instances() == []
    await stack.check()


def what(report: RunReport) -> list[str]:
    return [each.what for each in report.entries]


async def test_run_passes_with_its_control_and_is_rolled_back(tmp_path: Path) -> None:
    async with SmallStack(tmp_path) as stack:
        report = await runner(stack, scenario()).run()
        assert (report.verdict, report.reason) == ("PASS", "every expectation was met")
        kinds = what(report)
        assert kinds.index("control") < kinds.index("injected") < kinds.index("verified") < kinds.index("cleared")
        assert kinds.count("injected") == 1, "the control is without it"
        assert kinds[-1] == "rolledBack"
        assert all(each.passed for each in report.expectations)
        lost_s, _, active_s = [each.seconds or 0.0 for each in report.expectations]
        assert 30 < lost_s < 120, "it is known by its silence alone"
        assert active_s > lost_s
        await nothing_is_left(stack)


@pytest.mark.soak
async def test_history_depends_on_the_seed(tmp_path: Path) -> None:
    async def lived(folder: str, seed: int) -> RunReport:
        (tmp_path / folder).mkdir()
        async with SmallStack(tmp_path / folder) as stack:
            return await runner(stack, scenario("seed", seed)).run()

    first, again, other = [await lived(folder, seed) for folder, seed in (("a", 7), ("b", 7), ("c", 8))]
    assert first.verdict == "PASS"
    assert first.history_hash == again.history_hash
    assert other.history_hash != first.history_hash


@pytest.mark.parametrize(
    ("path", "value", "verdict", "reason"),
    [
        ("expect.1.count", 2, "FAIL", "event NodeReplaced of demo count 2: it was 1"),
        ("expect.0.within", "5s", "FAIL", "fault NodeLost of victim: it was 0"),
        ("expect.0", {"instance": "demo", "mode": "reached", "within": "1m"}, "FAIL",
         "instance demo: it already held before the fault"),
        ("method.0.verify.where", {"powered": "perhaps"}, "INVALID", "dark had no effect"),
        ("steadyState.0.state", "Stopped", "INVALID", "steadyState[0] does not hold"),
        ("stopConditions.0.above", 0, "STOPPED", "stopConditions[0]: metric nodes.lost above 0: it was 1"),
        ("control.expect.0.count", 1, "INVALID", "the control, without the fault"),
    ],
)  # fmt: skip
async def test_failed_run_has_its_verdict_and_is_rolled_back(
    tmp_path: Path, path: str, value: Any, verdict: str, reason: str
) -> None:
    async with SmallStack(tmp_path) as stack:
        report = await runner(stack, scenario(path, value)).run()
        assert report.verdict == verdict, report.reason
        assert report.reason.startswith(reason)
        await nothing_is_left(stack)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("targets.victim.select.names", ["sn0-c99-n0"], "targets.victim.select"),
        ("targets.victim.mode", "COUNT(4)", "targets.victim.mode"),
        ("method.0", {"name": "dark", "fault": "link-down", "target": "victim", "parameters": {"port": "ub-p9"},
                      "verify": {"metric": "hardware.ports-dark", "above": 0}}, "method[0].parameters.port"),
        ("given.demo.nodes", 60, "given.demo"),
    ],
)  # fmt: skip
async def test_invalid_scenario_is_refused_without_changes(tmp_path: Path, path: str, value: Any, field: str) -> None:
    async with SmallStack(tmp_path) as stack:
        before = await world_as_seen(stack)
        for attempt in (
            runner(stack, scenario(path, value)).run(),
            preview("x", scenario(path, value), ServiceClients(stack.http)),
        ):
            with pytest.raises(MatrixError) as refused:
                await attempt
            assert refused.value.field == field
        assert await world_as_seen(stack) == before


async def world_as_seen(stack: Stack) -> dict[str, Any]:
    collections = [("compute", "instances"), ("resource", "allocations"), ("link", "slices"), ("agents", "faults")]
    return {path: (await stack.get(service, f"/v1/{path}")).json()["items"] for service, path in collections}


@pytest.mark.soak
async def test_preview_shows_injections_and_changes_nothing(tmp_path: Path) -> None:
    async with SmallStack(tmp_path) as stack:
        before = await world_as_seen(stack)
        shown = await preview("example", scenario(), ServiceClients(stack.http))
        assert await world_as_seen(stack) == before
        (victim,) = shown.targets["victim"]
        assert victim in shown.given["demo"]
        assert shown.actions == [f"10s: node-down on {victim}"]
        report = await runner(stack, scenario()).run()
        assert report.targets == shown.targets


async def test_killed_run_is_rolled_back_at_the_next_start(tmp_path: Path) -> None:
    """A kill gives no chance to roll back: the task is left hanging at its next request, as if its process were gone."""
    async with SmallStack(tmp_path) as stack:
        clients = ServiceClients(stack.http)
        running = asyncio.create_task(ScenarioRunner("example", scenario(), clients, stack.clock, PREFIX).run())

        async def struck() -> bool:
            assert stack.fleet is not None
            return bool(stack.fleet.faults)

        await stack.until(struck, "the fault is there")
        clients._http = {}  # nothing that it asks from here on arrives
        running.cancel()
        assert stack.fleet is not None
        await asyncio.sleep(5)
        assert stack.fleet.faults
        stack.impair("by-hand", "agent-hang", "sn0-c00-n0")
        left = await clean_up(ServiceClients(stack.http), PREFIX, stack.clock)
        assert left[0].startswith(PREFIX)
        assert left[1:] == ["default/demo"]
        assert set(stack.fleet.faults) == {"by-hand"}, "what others did is theirs"
        assert await stack.compute.find_instance("demo") is None
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.soak
async def test_cancelled_and_stopped_runs_roll_back(tmp_path: Path) -> None:
    async with SmallStack(tmp_path) as stack:
        stopped = runner(stack, scenario())
        task = asyncio.create_task(stopped.run())
        await asyncio.sleep(400)
        stopped.stop("somebody asked for it")
        report = await task
        assert (report.verdict, report.reason) == ("STOPPED", "somebody asked for it")
        await nothing_is_left(stack)

        task = asyncio.create_task(runner(stack, scenario()).run())

        async def struck() -> bool:
            assert stack.fleet is not None
            return bool(stack.fleet.faults)

        await stack.until(struck, "the fault is there")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(700)
        await nothing_is_left(stack)


async def test_scenario_without_a_matching_target_is_refused(tmp_path: Path) -> None:
    async with SmallStack(tmp_path) as stack:
        with pytest.raises(InvalidField) as refused:
            await runner(stack, scenario("targets.victim", {"type": "node", "select": {"state": "Quarantined"}})).run()
        assert refused.value.field == "targets.victim.select"
