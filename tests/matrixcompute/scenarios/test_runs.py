"""Scenarios and their runs in MatrixCompute: what is refused, in which order they are played, how they are stopped, and
that a MatrixCompute that dies at any write leaves no fault and no instance behind."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from matrixcommon.model.errors import Conflict, InvalidField, MatrixError, NotFound, StaleLeader, Unavailable
from matrixcommon.model.fencing import FENCE, Fence
from matrixcompute.scenarios.library import library
from matrixcompute.scenarios.runs import ScenarioRequest, ScenarioRunView
from tests.matrixcompute.scenarios.scenario_harness import NODES, FakeServices, ScenarioHarness

pytestmark = pytest.mark.looptime

NODE_DOWN_SCENARIO: dict[str, Any] = {
    "title": "A node loses power",
    "seed": 3,
    "given": {"made": {"nodes": 1}},
    "targets": {"victim": {"type": "node", "mode": "COUNT(1)"}},
    "stopConditions": [{"source": "none"}],
    "method": [
        {
            "name": "dark",
            "fault": "node-down",
            "target": "victim",
            "at": "5s",
            "verify": {"hardware": "victim", "where": {"powered": "false"}, "within": "5s"},
        }
    ],
    "expect": [{"hardware": "victim", "where": {"powered": "false"}, "within": "30s"}],
}


def node_down_scenario(**otherwise: Any) -> dict[str, Any]:
    return {**deepcopy(NODE_DOWN_SCENARIO), **otherwise}


async def test_run_shows_phases_and_verdict_and_is_idempotent(tmp_path: Path) -> None:
    harness = ScenarioHarness(tmp_path, FakeServices())
    asked = await harness.put("one", definition=node_down_scenario())
    assert (asked.state, asked.verdict) == ("Pending", None)
    view = await harness.run_until_over("one")
    assert (view.state, view.verdict, view.message) == ("Completed", "PASS", "every expectation was met")
    assert [each.name for each in view.phases] == ["Preparing", "SteadyState", "Method", "RollingBack"]
    assert all(each.finished_at for each in view.phases)
    assert [each.what for each in view.entries] == [
        "given", "steady", "resolved", "injected", "verified", "met", "cleared", "rolledBack",
    ]  # fmt: skip
    assert view.targets["victim"][0] in NODES
    assert view.expectations[0].passed
    assert view.instances == ["made"]
    assert not harness.machine.faults
    assert not harness.machine.instances
    again = await harness.put("one", definition=node_down_scenario())
    assert again.etag == view.etag
    with pytest.raises(Conflict, match="exists with another spec"):
        await harness.put("one", definition=node_down_scenario(title="Another"))
    harness.runs.delete("one")
    with pytest.raises(NotFound):
        harness.runs.stop("one")


async def test_runs_are_played_one_at_a_time_in_order(tmp_path: Path) -> None:
    harness = ScenarioHarness(tmp_path, FakeServices())
    for name in ("zebra", "ant"):
        await harness.put(name, definition=node_down_scenario(title=name))
        await asyncio.sleep(1)
    first, second = await harness.run_until_over("zebra"), await harness.run_until_over("ant")
    assert first.finished_at is not None
    assert second.started_at is not None
    assert first.finished_at <= second.started_at


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"scenario": "nonsuch"}, "scenario"),
        ({"scenario": "resource-stands-still"}, "scenario.method[0].fault"),
        ({"definition": node_down_scenario(targets={"victim": {"type": "node", "select": {"names": ["sn0-c09-n0"]}}})},
         "definition.targets.victim.select"),
        ({"definition": node_down_scenario(targets={"victim": {"type": "node", "select": {"instance": "nonsuch"}}})},
         "definition.targets.victim.select.instance"),
        ({"definition": node_down_scenario(targets={"victim": {"type": "node", "mode": "COUNT(4)"}})},
         "definition.targets.victim.mode"),
        ({"definition": node_down_scenario(expect=[{"metric": "nonsuch", "within": "5s", "above": 0}])},
         "definition.expect[0].metric"),
        ({"definition": node_down_scenario(), "name": "other"}, "name"),
    ],
)  # fmt: skip
async def test_invalid_run_is_refused_with_its_field(tmp_path: Path, spec: dict[str, Any], field: str) -> None:
    harness = ScenarioHarness(tmp_path, FakeServices())
    for validate_only in (True, False):
        with pytest.raises(MatrixError) as refused:
            await harness.put("one", validate_only, **spec)
        assert refused.value.field == field
    with pytest.raises(NotFound):
        harness.runs.stop("one")


async def test_preview_names_targets_and_stores_nothing(tmp_path: Path) -> None:
    harness = ScenarioHarness(tmp_path, FakeServices())
    view = await harness.put("one", True, definition=node_down_scenario(), seed=11)
    assert view.preview is not None
    assert view.preview.seed == 11
    assert view.preview.actions[0].startswith("5s: node-down on sn0-c00-n")
    with pytest.raises(NotFound):
        harness.runs.stop("one")
    assert not harness.machine.writes


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({"instance": "made", "state": "Active"}, "instance made Active: there is no instance made"),
        ({"metric": "instances.ready", "of": "made", "min": 1},
         "metric instances.ready of made min 1: it was 0; there is no instance made"),
        ({"event": "Recovered", "of": "made", "min": 1},
         "event Recovered of made min 1: it was 0; there is no instance made"),
        ({"metric": "nodes.available", "below": 1}, "metric nodes.available below 1: it was 3"),
        ({"target": "victim", "state": "Active"}, "target victim Active: it was 0; {node}: state is Available"),
    ],
)  # fmt: skip
async def test_missed_expectation_shows_the_observation_and_the_missing_instance(
    tmp_path: Path, expected: dict[str, Any], message: str
) -> None:
    harness = ScenarioHarness(tmp_path, FakeServices())
    await harness.put("one", definition=node_down_scenario(expect=[{**expected, "within": "30s"}]))

    async def delete() -> None:
        await asyncio.sleep(8)
        harness.machine.instances.clear()

    view = await harness.run_until_over("one", delete)
    assert (view.verdict, view.message) == ("FAIL", message.format(node=view.targets["victim"][0]))
    assert not harness.machine.faults


@pytest.mark.parametrize(
    ("field", "otherwise", "message"),
    [
        ({"state": "Repairing"}, {}, "made: state is Repairing"),
        ({"conditions": []}, {"where": {"conditions.Ready.status": "True"}}, "made: conditions.Ready.status is missing"),
        ({"slices": [{"name": "made-ub", "programmed": True, "floorsKept": False}]}, {"floor": "held"},
         "made: made-ub has less than its floor"),
        ({"slices": [{"name": "made-ub", "programmed": False, "floorsKept": True}]}, {"floor": "held"},
         "made: routes of made-ub are not programmed on every node"),
    ],
)  # fmt: skip
async def test_instance_mismatch_shows_the_field(
    tmp_path: Path, field: dict[str, Any], otherwise: dict[str, Any], message: str
) -> None:
    harness = ScenarioHarness(tmp_path, FakeServices())
    expected = {"instance": "made", "state": "Active", "within": "30s", **otherwise}
    await harness.put("one", definition=node_down_scenario(expect=[expected]))

    async def change() -> None:
        await asyncio.sleep(8)
        harness.machine.instances["made"] |= field

    view = await harness.run_until_over("one", change)
    assert (view.verdict, view.message) == ("FAIL", f"{view.expectations[0].name}: {message}")


async def test_run_does_not_wait_for_a_deleted_instance(tmp_path: Path) -> None:
    class Slow(FakeServices):
        """Instances are made, and come up later."""

        async def put(self, *what: Any, **how: Any) -> dict[str, Any]:
            return await super().put(*what, **how) | {"state": "Provisioning"}

        async def find(self, *what: Any) -> dict[str, Any] | None:
            found = await super().find(*what)
            return None if found is None else found | {"state": "Provisioning"}

    harness = ScenarioHarness(tmp_path, Slow())
    await harness.put("one", definition=node_down_scenario())

    async def delete() -> None:
        await asyncio.sleep(8)
        harness.machine.instances.clear()

    view = await harness.run_until_over("one", delete)
    assert (view.verdict, view.message) == (
        "INVALID", "given.made: the instance was created for this run, and somebody has deleted it since"
    )  # fmt: skip


async def test_stopped_run_is_rolled_back(tmp_path: Path) -> None:
    harness = ScenarioHarness(tmp_path, FakeServices())
    await harness.put("one", definition=node_down_scenario())
    await harness.put("waits", definition=node_down_scenario(title="Later"))
    assert (harness.runs.stop("waits").state, harness.view("waits").verdict) == ("Completed", "STOPPED")

    async def stop() -> None:
        await asyncio.sleep(8)
        assert harness.machine.faults
        with pytest.raises(Conflict, match="stop it first"):
            harness.runs.delete("one")
        assert harness.runs.stop("one").state == "Stopping"
        assert harness.runs.stop("one").state == "Stopping"
        harness.runs.wake()

    view = await harness.run_until_over("one", stop)
    assert (view.verdict, view.message) == ("STOPPED", "stopped by request")
    assert not harness.machine.faults
    assert not harness.machine.instances


async def test_run_waits_for_unavailable_services(tmp_path: Path) -> None:
    harness = ScenarioHarness(tmp_path, FakeServices())
    await harness.put("one", definition=node_down_scenario())
    harness.machine.unavailable = Unavailable("there is no agents in this stack")
    await harness.reconciler.reconcile()
    assert (harness.view("one").state, harness.view("one").message) == (
        "Pending",
        "Unavailable: there is no agents in this stack",
    )
    harness.machine.unavailable = None
    assert (await harness.run_until_over("one")).verdict == "PASS"


async def test_former_leader_writes_nothing_and_its_successor_rolls_back(tmp_path: Path) -> None:
    machine = FakeServices()
    old, new = ScenarioHarness(tmp_path, machine), ScenarioHarness(tmp_path, machine)
    await old.put("one", definition=node_down_scenario())

    async def lead(harness: ScenarioHarness, generation: int) -> str:
        FENCE.set(Fence("compute", generation))
        harness.fences.record_leader(Fence("compute", generation))
        return await harness.reconciler.reconcile()

    former = asyncio.create_task(lead(old, 1))
    await asyncio.sleep(8)
    assert machine.faults
    await lead(new, 2)
    view = new.view("one")
    assert (view.verdict, machine.faults, machine.instances) == ("INVALID", {}, {})
    await former
    assert new.view("one") == view
    FENCE.set(Fence("compute", 1))
    with pytest.raises(StaleLeader):
        old.runs.delete("one")


async def run_with_crash(
    folder: Path, crash_at: tuple[int, str] | None, stopped: bool
) -> tuple[ScenarioRunView, FakeServices]:
    harness = ScenarioHarness(folder, FakeServices())
    await harness.put("one", definition=node_down_scenario())
    harness.count_writes()
    harness.machine.crash_at = crash_at

    async def stop() -> None:
        await asyncio.sleep(8)
        harness.runs.stop("one")
        harness.runs.wake()

    return await harness.run_until_over("one", stop if stopped else None), harness.machine


async def test_crash_at_any_write_leaves_nothing_and_invalidates_the_run(tmp_path: Path) -> None:
    plain, machine = await run_with_crash(tmp_path / "plain", None, stopped=False)
    assert plain.verdict == "PASS"
    assert len(machine.moments) > 15
    verdicts = set()
    for number, moment in machine.moments:
        after, found = await run_with_crash(tmp_path / f"{number}-{moment}", (number, moment), stopped=False)
        assert found.crash_at is None, "it died"
        assert (found.faults, found.instances) == ({}, {}), f"dead {moment} {number}"
        assert after.state == "Completed"
        assert after.verdict == "PASS" or after.message.startswith("MatrixCompute stopped"), after
        verdicts.add(after.verdict)
    assert verdicts == {"PASS", "INVALID"}, "before it had begun it is played, afterwards it proves nothing"


async def test_library_scenarios_are_read_only_and_others_are_ensured(tmp_path: Path) -> None:
    harness = ScenarioHarness(tmp_path, FakeServices())
    assert {each.name for each in harness.scenarios.views()} == set(library())
    body = ScenarioRequest.model_validate(node_down_scenario(labels={"team": "a"}))
    made = harness.scenarios.ensure("mine", body)
    assert (made.generation, made.built_in, made.labels) == (1, False, {"team": "a"})
    assert harness.scenarios.ensure("mine", body).etag == made.etag
    assert harness.scenarios.ensure("mine", body.model_copy(update={"seed": 4})).generation == 2
    for verb in (lambda: harness.scenarios.ensure("gray-link", body), lambda: harness.scenarios.delete("gray-link")):
        with pytest.raises(Conflict, match="comes with the project"):
            verb()
    with pytest.raises(InvalidField) as refused:
        harness.scenarios.ensure(
            "bad",
            ScenarioRequest.model_validate(
                node_down_scenario(method=[{**NODE_DOWN_SCENARIO["method"][0], "target": "x"}])
            ),
        )
    assert refused.value.field == "method[0].target"
    harness.scenarios.delete("mine")
    assert {each.name for each in harness.scenarios.views()} == set(library())
