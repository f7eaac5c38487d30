"""maintenance on the command line, against MatrixCompute itself and a machine that does at once what is asked of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from matrixcommon.persistence.database_session import Database
from matrixcompute.reconcilers.maintenance import MaintenanceReconciler
from matrixcompute.store.store import Base, ComputeStore
from services.chassis.database import DatabaseEngine
from services.compute.main import MIGRATIONS, ComputeSettings, build
from services.matrixctl.commands.machine import maintenance
from services.matrixctl.output import waiting
from tests.clocks import FixedClock
from tests.matrixcompute.maintenance_harness import FakeMachine
from tests.services.matrixctl.inprocess import connect_matrixctl, run_line_normalised

ROOT = Path(__file__).parents[3]


class CliHarness:
    """matrixctl, and MatrixCompute that looks once whenever matrixctl waits."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.machine, self.capsys, clock = FakeMachine(), capsys, FixedClock()
        database = DatabaseEngine(f"sqlite:///{folder / 'compute.db'}")
        database.migrate(MIGRATIONS)
        store = ComputeStore(Database(database.sessions, Base.metadata, clock))
        self.reconciler = MaintenanceReconciler(store, self.machine, clock)  # type: ignore[arg-type]
        settings = ComputeSettings(state=folder)
        database.shared = True  # the reconciler writes beside the application
        self.client = TestClient(build(settings, clock, database, self.machine))  # type: ignore[arg-type]

    def reconcile(self, _wall_s: float = 0.0) -> None:
        asyncio.run(self.reconciler.reconcile())

    def run(self, line: str) -> tuple[int, str, str]:
        return run_line_normalised(self.capsys, line)


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CliHarness:
    made = CliHarness(tmp_path, capsys)
    connect_matrixctl(monkeypatch, {"compute": made.client})
    monkeypatch.setattr(waiting.time, "sleep", made.reconcile)
    return made


def test_a_firmware_on_a_whole_supernode_is_one_command(harness: CliHarness) -> None:
    file = ROOT / "examples" / "maintenance-firmware.yaml"
    code, out, _ = harness.run(f"maintenance create fw -f {file} --dry-run")
    assert (code, "sn0-c00-n1 Pending" in out) == (0, True)
    assert "fw" not in harness.run("maintenance list")[1].split()
    code, out, err = harness.run(f"maintenance create fw -f {file} --max-unavailable 1 --watch")
    assert code == 0
    assert "fw is Completed: firmware emulated-2 of supernode sn0; 2 of 2 done" in out
    assert "sn0-c00-n0 Done - emulated-2 a" in out
    assert "Running: 0 of 2 done, 1 under way" in err
    assert "Running: 1 of 2 done" in err
    assert {node.firmware for node in harness.machine.nodes_by_name.values()} == {"emulated-2"}
    assert "fw Completed supernode=sn0 Firmware 2 0 2 Completed" in harness.run("maintenance list")[1]


def test_an_empty_firmware_is_no_service(harness: CliHarness) -> None:
    code, _, err = harness.run("maintenance create fw --node sn0-c00-n0 --firmware ''")
    assert (code, "firmware" in err) == (1, True)
    assert "fw" not in harness.run("maintenance list")[1].split()


def test_pause_resume_and_abort(harness: CliHarness) -> None:
    assert harness.run("maintenance create fan --node sn0-c00-n0 --reason fan")[0] == 0
    paused, resumed = harness.run("maintenance pause fan")[1], harness.run("maintenance resume fan")[1]
    assert ("fan is Paused" in paused, "no new node is begun" in paused) == (True, True)
    assert ("fan is Running" in resumed, "no new node is begun" in resumed) == (True, False)
    for _ in range(3):
        harness.reconcile()
    code, out, _ = harness.run("maintenance show fan")
    assert (code, "sn0-c00-n0 InService" in out, "kept out of use until" in out) == (0, True, True)
    code, out, _ = harness.run("maintenance abort fan --wait -o json")
    assert (code, json.loads(out)["state"]) == (0, "Aborted")
    assert harness.machine.nodes_by_name["sn0-c00-n0"].cordoned_by == []


def test_how_far_each_of_many_is_is_shown_to_who_asks_for_it(
    harness: CliHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "FEW_UNITS", 1)
    for verb in ("create fw --supernode sn0 --firmware b", "pause fw", "resume fw", "abort fw"):
        code, out, _ = harness.run(f"maintenance {verb}")
        assert (code, "sn0-c00-n0" in out, "see each of the 2 with `matrixctl maintenance show fw`" in out) == (
            0,
            False,
            True,
        )
    assert "sn0-c00-n0" in harness.run("maintenance show fw")[1]


def test_a_budget_is_said_as_it_is_and_a_wrong_one_once(harness: CliHarness) -> None:
    assert "at most 10% of the nodes of each supernode may be out, always" in harness.run("budget set a --nodes 10%")[1]
    assert "at most 1 node of each supernode may be out, always" in harness.run("budget set b --nodes 1")[1]
    code, _, err = harness.run("budget set c --nodes few")
    assert (code, err.count("a number such as"), "[field nodes]" in err) == (1, 1, True)


def test_what_does_not_complete_has_another_exit_code(harness: CliHarness) -> None:
    harness.machine.bad = {"sn0-c00-n0"}
    line = "maintenance create fw --cabinet sn0-c00 --firmware b --max-unavailable 2 --watch"
    code, out, _ = harness.run(line)
    assert (code, "fw is Failed" in out, "write-firmware: no" in out) == (1, True, True)
    code, _, err = harness.run("maintenance create other --firmware b")
    assert (code, "name the target" in err) == (2, True)
    code, _, err = harness.run("maintenance create other --cabinet sn0-c09")
    assert (code, "target.cabinet" in err) == (1, True)
