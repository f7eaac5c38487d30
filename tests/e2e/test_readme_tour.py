"""README's five-minute tour works as written."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SETUP = "make setup && . .venv/bin/activate"
PORT = "http://127.0.0.1:8404"
ENDPOINT = "$(kubectl get cminf deepseek-r1 -o jsonpath='{.status.endpoint}' | sed s,/v1$,,)"
"""Where the model is served when the usual port was taken, as it may be on a machine that runs tests."""


def tour() -> str:
    """The commands, without the set-up (the tests run in one) and with an end to the watch a person would interrupt."""
    readme = (ROOT / "README.md").read_text()
    block = re.search(r"## Five minutes\n\n```sh\n(.*?)```", readme, re.DOTALL)
    assert block is not None
    commands = block.group(1)
    assert SETUP in commands
    assert PORT in commands
    commands = commands.replace(SETUP, "").replace(PORT, ENDPOINT)
    return re.sub(r"^kubectl get cmi -w.*$", "timeout 10 kubectl get cmi -w || true", commands, flags=re.MULTILINE)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="the tour uses kubectl, and there is none on the PATH")
def test_the_tour_works_as_written(tmp_path: Path) -> None:
    shim = tmp_path / "bin" / "matrixctl"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m services.matrixctl "$@"\n')
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    environment = {
        "HOME": str(tmp_path),
        "PATH": f"{shim.parent}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    try:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-x", "-c", tour()],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
    finally:
        subprocess.run([str(shim), "down"], env=environment, cwd=ROOT, check=False, capture_output=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "Active" in done.stdout
    assert '"choices"' in done.stdout
    assert "NodeReplaced" in done.stdout
    assert "deleted" in done.stdout
