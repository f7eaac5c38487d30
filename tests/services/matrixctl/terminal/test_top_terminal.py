"""`matrixctl top` in a real pseudo-terminal: it takes the screen over, shows the machine, and gives it back at `q`."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.services.matrixctl.conftest import SupervisedStack

ALTERNATE, NORMAL = b"\x1b[?1049h", b"\x1b[?1049l"
TIMEOUT_WALL_S = 30.0


def test_the_screen_opens_and_closes_again(supervised_stack: SupervisedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over stand-ins, which have nothing to show: their silence is said in the header, and nothing breaks."""
    supervised_stack.up()
    root = Path(__file__).resolve().parents[4]
    environment = os.environ | {"TERM": "xterm-256color", "LINES": "30", "COLUMNS": "100", "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "services.matrixctl", "top", "--state", str(supervised_stack.folder.path)]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, command, environment)
    try:
        seen = _until(terminal, b"", ALTERNATE)
        seen = _until(terminal, seen, b"q quit")
        os.write(terminal, b"q")
        _until(terminal, seen, NORMAL)
        assert os.waitstatus_to_exitcode(_ended(pid, terminal)) == 0
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise


def _until(terminal: int, seen: bytes, wanted: bytes) -> bytes:
    until = time.monotonic() + TIMEOUT_WALL_S
    while wanted not in seen:
        assert time.monotonic() < until, seen[-2000:]
        if select.select([terminal], [], [], 0.5)[0]:
            seen += os.read(terminal, 65536)
    return seen


def _ended(pid: int, terminal: int) -> int:
    """Its status; what it still prints is read, so that it can end."""
    until = time.monotonic() + TIMEOUT_WALL_S
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.1)[0]:
            with suppress(OSError):  # the other end is closed
                os.read(terminal, 65536)
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
    raise AssertionError("it does not end")
