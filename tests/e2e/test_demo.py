"""The demo's story holds on a real stack, whole, and cleans up after itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.matrixctl.demo.run import run_demo
from services.matrixctl.demo.steps import STEPS
from services.matrixctl.folder import Folder
from services.matrixctl.up import look

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_the_demo_tells_every_step_and_leaves_nothing_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_demo(tmp_path / "demo", keep=False)
    told = capsys.readouterr().out
    assert code == 0, told
    for step in STEPS:
        assert step.title in told
    assert "every step held" in told
    assert not look(Folder(tmp_path / "demo")).running


def test_the_demo_without_kubectl_uses_the_python_client(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.matrixctl.cluster.shutil.which", lambda name: None)
    code = run_demo(tmp_path / "demo", keep=False)
    told = capsys.readouterr().out
    assert code == 0, told
    assert "cloudmatrixinstance deepseek-r1 applied" in told
