"""Runs the commands of a page as a reader would, one after the other, in a home of their own."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from services.matrixctl.supervisor.state_folder import StateFolder
from services.matrixctl.supervisor.up import stop_stack

ROOT = Path(__file__).resolve().parents[2]
SETUP = "make setup && . .venv/bin/activate"
PORT = "http://127.0.0.1:8404"

needs_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="tours use kubectl, and there is none on the PATH"
)


def commands(page: str) -> str:
    """All `sh` blocks of a page's text, without the set-up (the tests run in one)."""
    found = "\n".join(re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    assert SETUP in found
    assert PORT in found
    return found.replace(SETUP, "")


def at_endpoint_of(name: str, words: str) -> str:
    """The model is served elsewhere when the usual port was taken, as it may be on a machine that runs tests."""
    endpoint = f"$(kubectl get cminf {name} -o jsonpath='{{.status.endpoint}}' | sed s,/v1$,,)"
    return words.replace(PORT, endpoint)


def stop_stacks(below: Path) -> None:
    """Stop every stack with a state folder below this one: a page may start several, and may be cut off before it stops
    them."""
    for stack in sorted(below.rglob("stack.json")):
        stop_stack(StateFolder(stack.parent))


def walk(words: str, home: Path, timeout_wall_s: float) -> str:
    """What the commands print; fails at the first that does."""
    shim = home / "bin" / "matrixctl"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m services.matrixctl "$@"\n')
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    environment = {
        "HOME": str(home),
        "PATH": f"{shim.parent}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    try:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-x", "-c", words],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_wall_s,
        )
    finally:
        stop_stacks(home)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout + done.stderr
