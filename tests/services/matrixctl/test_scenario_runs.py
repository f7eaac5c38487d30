"""matrixctl and the scenarios of MatrixCompute, over a machine on which faults show at once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import yaml
from starlette.testclient import TestClient

from matrixcommon.model.errors import Conflict
from services.compute import controllers, main
from services.matrixctl.output import waiting
from services.matrixctl.scenarios import host
from tests.clocks import FixedClock
from tests.matrixcompute.maintenance_harness import FakeMachine
from tests.matrixcompute.scenarios.scenario_harness import FakeServices, ScenarioHarness
from tests.matrixcompute.scenarios.test_runs import node_down_scenario
from tests.services.matrixctl.inprocess import connect_matrixctl, run_line_normalised


class CliHarness:
    """matrixctl, and MatrixCompute that plays a run whenever matrixctl waits."""

    def __init__(self, folder: Path, machine: FakeServices, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys
        self.life = ScenarioHarness(folder, machine, FixedClock())
        settings = main.ComputeSettings(state=folder)
        self.life.database.shared = True  # the life writes beside the application
        self.client = TestClient(main.build(settings, self.life.clock, self.life.database, FakeMachine()))  # type: ignore[arg-type]

    def reconcile(self, _wall_s: float = 0.0) -> None:
        asyncio.run(self.life.reconciler.reconcile())

    def run(self, line: str) -> tuple[int, str, str]:
        return run_line_normalised(self.capsys, line)

    def file(self, **otherwise: object) -> Path:
        written = self.folder / "blackout.yaml"
        written.write_text(yaml.safe_dump({"kind": "MatrixFaultScenario", "spec": node_down_scenario(**otherwise)}))
        return written


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CliHarness:
    machine = FakeServices()
    monkeypatch.setattr(controllers, "ServiceClients", lambda services, executor: machine)
    made = CliHarness(tmp_path, machine, capsys)
    connect_matrixctl(monkeypatch, {"compute": made.client})
    monkeypatch.setattr(waiting.time, "sleep", made.reconcile)
    return made


def test_a_file_is_run_by_matrixcompute_and_its_verdict_is_the_exit_code(harness: CliHarness) -> None:
    code, out, err = harness.run(f"scenario run {harness.file()} --remote --name blackout")
    assert (code, "blackout is Pending" in err) == (0, True)
    assert "blackout is Completed: A node loses power" in out
    assert "injected dark" in out
    assert "PASS: every expectation was met" in out
    never = [{"hardware": "victim", "where": {"powered": "never"}, "within": "9s"}]
    code, out, _ = harness.run(f"scenario run {harness.file(expect=never)} --remote -o json")
    assert (code, json.loads(out)["verdict"]) == (1, "FAIL")
    code, out, _ = harness.run("scenario runs")
    assert "blackout Completed PASS RollingBack" in out
    assert harness.run("scenario show blackout -o json")[0] == 0
    assert not harness.life.machine.faults


def test_one_is_kept_run_by_its_name_and_stopped(harness: CliHarness) -> None:
    assert "matrixctl scenario run blackout --remote" in harness.run(f"scenario put {harness.file()}")[1]
    assert "blackout Available A node loses power no 3" in harness.run("get scenarios")[1]
    created = harness.client.post("/v1/scenario-runs", json={"scenario": "blackout", "name": "later"})
    assert created.status_code == 201
    code, out, _ = harness.run("scenario stop later --wait")
    assert (code, "STOPPED: stopped by request" in out) == (0, True)
    code, _, err = harness.run("scenario run nothing-of-the-kind --remote")
    assert (code, "nothing-of-the-kind" in err, "get scenarios" in err) == (1, True, True)
    assert harness.run(f"scenario run {harness.file()} --name x")[0] == 2


def test_what_strikes_services_is_refused_with_its_field(harness: CliHarness) -> None:
    code, _, err = harness.run("scenario run resource-stands-still --remote")
    assert (code, "scenario.method[0].fault" in err, "matrixctl up" in err) == (1, True, True)


async def test_matrixctl_runs_none_while_matrixcompute_does() -> None:
    class Busy(FakeServices):
        async def list_all(self, service: str, collection: str) -> list[dict[str, object]]:
            return [{"name": "other", "state": "Running"}]

    with pytest.raises(Conflict, match="scenario stop other"):
        await host._check_nothing_runs(Busy())
