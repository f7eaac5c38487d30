"""what-if and drain on the command line, against MatrixLink itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from services.chassis.database import DatabaseEngine
from services.link.main import MIGRATIONS, LinkSettings, build
from tests.clocks import FixedClock
from tests.matrixlink.fleet import NODES, slice_request
from tests.services.matrixctl.inprocess import connect_matrixctl, run_line


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> TestClient:
    """matrixctl's way to the services ends in a MatrixLink of this process."""
    database = DatabaseEngine(f"sqlite:///{tmp_path / 'link.db'}")
    database.migrate(MIGRATIONS)
    client = TestClient(build(LinkSettings(state=tmp_path), FixedClock(), database))

    connect_matrixctl(monkeypatch, {"link": client})
    return client


def test_what_if_tells_floors_and_says_with_its_exit_code_whether_they_hold(
    link: TestClient, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = run_line(capsys, "what-if --fail sn0-l2p3-k11")
    assert (code, "every floor holds" in text, "no slice is affected" in text) == (0, True, True)
    request = slice_request(members=NODES[:2], floor_gbps_per_npu=392.0)
    assert link.put("/v1/slices/a-ub", json=request.wire()).status_code == 200
    code, text = run_line(capsys, "what-if --fail sn0-l2p3-k11 --drain sn0-c00-n0.ub-p2")
    assert (code, "floors would break" in text, "a-ub" in text) == (1, True, True)
    code, text = run_line(capsys, "what-if --repair sn0-c00-n0 -o json")
    assert (code, '"floorsHold": true' in text) == (0, True)
    code, text = run_line(capsys, "what-if --fail nonsense")
    assert (code, "fail[0]" in text) == (1, True)


def test_drains_on_the_command_line(link: TestClient, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run_line(capsys, "drain put d1 sn0-l2p3-k11 sn0-c00-n0.ub-p2 --reason optics")
    assert (code, text) == (0, "d1 is Draining: 64 ports; no route crosses it\n")
    code, text = run_line(capsys, "get drains")
    assert (code, "optics" in text) == (0, True)
    request = slice_request(members=NODES[:2], floor_gbps_per_npu=300.0)
    assert link.put("/v1/slices/a-ub", json=request.wire()).status_code == 200
    code, text = run_line(capsys, "drain put d2 sn0-ub-p5 sn0-ub-p6")
    assert (code, "InsufficientBandwidth" in text) == (1, True)
    code, text = run_line(capsys, "drain put d2 sn0-ub-p5 sn0-ub-p6 --even-if-floors-break --dry-run")
    assert (code, "floors would break" in text) == (0, True)
    assert run_line(capsys, "drain delete d1")[0] == 0
    assert [each["name"] for each in link.get("/v1/drains").json()["items"]] == []
