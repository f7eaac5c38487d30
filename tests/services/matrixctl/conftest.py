"""A stack of stand-ins under a supervisor, in a folder of its own; whatever a test leaves running is ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.catalogue import Process
from services.matrixctl.supervisor.probe import free_port
from services.matrixctl.supervisor.stack_request import StackRequest
from services.matrixctl.supervisor.state_folder import Stack, StateFolder
from services.matrixctl.supervisor.up import start_supervisor, stop_stack, watch_until_ready

STANDIN = "tests.services.matrixctl.standin"
TIMEOUT_WALL_S = 20.0


def standins() -> tuple[Process, ...]:
    """Two of them, on ports that were free a moment ago: `alpha`, and `beta` which calls it."""
    return (
        Process("alpha", STANDIN, free_port("127.0.0.1"), (), "stands in"),
        Process("beta", STANDIN, free_port("127.0.0.1"), ("alpha",), "stands in and calls"),
    )


def eventually(what: Callable[[], Any], message: str = "") -> Any:
    """The first truthy answer; fails when there is none in time."""
    until = time.monotonic() + TIMEOUT_WALL_S
    while time.monotonic() < until:
        try:
            if seen := what():
                return seen
        except (httpx.HTTPError, OSError, AssertionError):  # what is looked at may not be there yet
            pass
        time.sleep(0.02)
    raise AssertionError(f"never came true: {message or what}")


class SupervisedStack:
    """One stack under test."""

    def __init__(self, path: Path) -> None:
        self.folder = StateFolder(path)
        self.processes = standins()

    def up(self, **desired: Any) -> Stack:
        desired = {"processes": self.processes, "shared": ()} | desired
        supervisor = start_supervisor(self.folder, StackRequest(**desired).to_json())
        for stack in watch_until_ready(self.folder, supervisor, TIMEOUT_WALL_S):
            last = stack
        return last

    def stack(self) -> Stack:
        """As last written: the supervisor takes its seat a moment before it writes for the first time."""
        stack: Stack = eventually(self.folder.read)
        return stack

    def settings(self, name: str) -> dict[str, Any]:
        current: dict[str, Any] = httpx.get(self.stack().children[name].url + "/settings", trust_env=False).json()
        return current

    def pid(self, name: str) -> int:
        """Of the living process of that name, 0 where there is none."""
        holder = self.folder.process_lock(name).holder()
        return holder.pid if holder else 0


@contextmanager
def start_supervised_stack(folder: Path) -> Iterator[SupervisedStack]:
    root = Path(__file__).resolve().parents[3]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]))
        supervised_stack = SupervisedStack(folder)
        yield supervised_stack
        stop_stack(supervised_stack.folder)


@pytest.fixture
def supervised_stack(tmp_path: Path) -> Iterator[SupervisedStack]:
    with start_supervised_stack(tmp_path / "state") as supervised_stack:
        yield supervised_stack


@pytest.fixture(scope="module")
def running_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SupervisedStack]:
    """One that is up, for all tests of a module that change nothing about it."""
    with start_supervised_stack(tmp_path_factory.mktemp("running") / "state") as supervised_stack:
        supervised_stack.up(scale=1.0)
        yield supervised_stack
