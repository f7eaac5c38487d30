"""A stack that has ended is gone from memory: hundreds of them are begun in one process of tests."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

from services.testing.cloudmatrix import WORLDS_PER_COLLECTION
from tests.stack import Stack


async def services_of_a_stack(folder: Path) -> list[weakref.ref[Any]]:
    async with Stack(folder) as stack:
        return [weakref.ref(slot.transport.app) for slot in stack.slots.values()]


@pytest.mark.looptime
async def test_services_that_have_ended_are_forgotten(tmp_path: Path) -> None:
    services = await services_of_a_stack(tmp_path)
    gc.collect()
    assert len(services) == 4
    assert [each() for each in services if each() is not None] == []


WORLDS = f"""\\
import weakref
import pytest

ended = []

@pytest.mark.parametrize("run", range({WORLDS_PER_COLLECTION} + 1))
async def test_world(cloudmatrix, run):
    if run == {WORLDS_PER_COLLECTION}:
        assert len([stack for stack in ended if stack() is not None]) <= 1, "the fixture still has the last one"
    ended.append(weakref.ref(cloudmatrix.stack))
"""


def test_worlds_of_a_session_are_forgotten_after_some(tmp_path: Path) -> None:
    (tmp_path / "test_worlds.py").write_text(WORLDS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    environ = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    command = [sys.executable, "-m", "pytest", "-q"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert f"{WORLDS_PER_COLLECTION + 1} passed" in done.stdout
