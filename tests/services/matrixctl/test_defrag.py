"""defrag on the command line, against MatrixResource itself: planned, looked at, approved and awaited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from matrixcommon.model.errors import Unavailable
from services.matrixctl.clients.api_client import ApiClient
from services.matrixctl.output import waiting
from services.matrixctl.supervisor.state_folder import StateFolder
from services.resource.main import ResourceSettings, build
from tests.matrixresource.test_defragmentations import ScatteredMachine
from tests.services.matrixctl.inprocess import connect_matrixctl, run_line_normalised


class CliHarness:
    """matrixctl and a machine with scattered nodes on which everybody does as asked whenever matrixctl waits."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.machine = ScatteredMachine(folder)
        self.capsys = capsys
        self.machine.database.shared = True  # the machine writes beside the application
        app = build(ResourceSettings(state=folder), self.machine.clock, self.machine.database)
        self.client = TestClient(app)

    def reconcile(self, _wall_s: float) -> None:
        self.machine.run_workflows()
        self.machine.report_all()

    def run(self, line: str) -> tuple[int, str, str]:
        return run_line_normalised(self.capsys, line)


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CliHarness:
    made = CliHarness(tmp_path, capsys)

    connect_matrixctl(monkeypatch, {"resource": made.client})
    monkeypatch.setattr(waiting.time, "sleep", made.reconcile)
    return made


def test_from_a_plan_to_the_room(harness: CliHarness) -> None:
    code, out, _ = harness.run("defrag plan --nodes 4 --name p")
    assert code == 0
    assert "p is Proposed: 0 of 2 members moved, 0 of 16 NPUs" in out
    assert "the largest block in one cabinet goes from 2 to 4 nodes" in out
    code, out, text = harness.run("defrag approve p --wait -o json")
    assert (code, json.loads(out)["state"]) == (0, "Done")
    assert "0 of 2 moved" in text
    assert "1 of 2 moved" in text
    code, out, _ = harness.run("defrag get")
    assert (code, out.split()[:1], "p Done 2" in out) == (0, ["NAME"], True)


def test_top_shows_every_cabinet(harness: CliHarness) -> None:
    harness.machine.approve()
    code, out, _ = harness.run("top capacity")
    assert code == 0
    assert "1 of 48 nodes free (8 NPUs), 90% of the NPUs in use, 0 spares" in out, "what a plan needs is kept"
    assert "largest block: 1 nodes in a cabinet" in out
    assert "sn0-c00 Open 4 4 0 4 0 0 100% 0" in out
    assert "sn0-c10 Open 4 0 0 2 0 4" in out
    code, out, _ = harness.run("top capacity -o json")
    assert sum(cabinet["kept"] for cabinet in json.loads(out)["cabinets"]) == 6


def test_top_without_a_terminal_prints_the_machine_once(harness: CliHarness) -> None:
    code, out, err = harness.run("top --ascii")
    assert (code, err) == (0, "")
    assert out.startswith("5/48 nodes free NPUs 40 free, 344 held of 384 faulty 0 largest block 2/5")
    assert "c00 " in out
    assert "instances none busiest links none events, the newest first none" in out


def test_what_does_not_go_as_requested_has_another_exit_code(harness: CliHarness) -> None:
    assert harness.run("defrag plan --nodes 4 --name p")[0] == 0
    assert harness.run("defrag approve p")[:1] == (0,)
    harness.machine.run_workflows()
    assert harness.run("defrag cancel p --wait")[:1] == (0,)
    code, out, _ = harness.run("defrag get p --wait")
    assert (code, "p is Cancelled: 1 of 2 members moved" in out) == (1, True)
    code, _, text = harness.run("defrag approve p")
    assert (code, text.startswith("Conflict")) == (1, True)
    code, _, text = harness.run("defrag plan --nodes 4 --level planet")
    assert (code, text.startswith("InvalidField")) == (1, True)
    code, _, text = harness.run("defrag get --wait")
    assert (code, "[field --wait]" in text) == (2, True)


def test_a_plan_whose_answer_was_lost_is_asked_for_again_and_made_once(
    harness: CliHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, lost = harness.client.request, []

    def losing(method: str, *path: str, **more: Any) -> httpx.Response:
        answer = ask(method, *path, **more)
        if method == "POST" and not lost:
            lost.append(answer.json()["name"])
            raise Unavailable("the connection has gone")
        return answer

    monkeypatch.setattr(harness.client, "request", losing)
    client = ApiClient.of(StateFolder(Path("nowhere")))
    client.timeout_wall_s = 5.0
    made = client.call("resource", "POST", "/v1/defragmentations", body={"nodes": 4, "level": "cabinet"})
    assert [each["name"] for each in client.list("resource", "/v1/defragmentations")] == lost == [made["name"]]
