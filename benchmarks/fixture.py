"""The pytest plugin as its users have it: how long a fixture takes to start, and what an hour of emulated time costs.

A session of pytest in an empty folder, with nothing but the plugin. The first test of a session also reads the modules
and makes the databases that later ones begin with, and is shown by itself. Times are of the wall.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import Figure

RUNS = 5
TESTS = f"""\
import pytest

@pytest.mark.parametrize("run", range({RUNS + 1}))
async def test_start(cloudmatrix, run): ...

@pytest.mark.parametrize("run", range({RUNS}))
async def test_hour(cloudmatrix, run):
    before = cloudmatrix.clock.now()
    await cloudmatrix.clock.advance("1h")
    assert cloudmatrix.clock.now() == before + 3600

@pytest.mark.parametrize("run", range({RUNS + 1}))
def test_kubernetes(kubernetes, run): ...
"""
CONFTEST = """\
import json

def pytest_runtest_logreport(report):
    with open("phases.jsonl", "a") as out:
        print(json.dumps([report.nodeid, report.when, report.duration]), file=out)
"""


def measure() -> Iterator[Figure]:
    took = phases()
    starts, kubernetes = (
        [each["setup"] for name, each in took.items() if of in name] for of in ("start", "kubernetes")
    )
    hours = [sum(each.values()) for name, each in took.items() if "hour" in name]
    rest = f"of {RUNS} after it, the median"
    yield Figure("cloudmatrix, first of a session", starts[0], "s", "modules and databases included")
    yield Figure("cloudmatrix, start", statistics.median(starts[1:]), "s", rest, 1)
    yield Figure("a test with an hour in it, start and end included", statistics.median(hours), "s", rest, 2)
    yield Figure("kubernetes, first of a session", kubernetes[0], "s", "a process of its own, ready on its port")
    yield Figure("kubernetes, start", statistics.median(kubernetes[1:]), "s", rest, 0.5)


def phases() -> dict[str, dict[str, float]]:
    """Seconds of each phase (setup, call, teardown) of each test, in the order in which they ran."""
    with tempfile.TemporaryDirectory(prefix="cm-bench-") as folder:
        for name, text in (("test_figures.py", TESTS), ("conftest.py", CONFTEST), ("pytest.ini", "[pytest]\n")):
            (Path(folder) / name).write_text(text)
        environ = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q"], cwd=folder, env=environ, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)
        took: dict[str, dict[str, float]] = {}
        for line in (Path(folder) / "phases.jsonl").read_text().splitlines():
            test, phase, seconds = json.loads(line)
            took.setdefault(test, {})[phase] = seconds
    return took
