"""Nouns as fixtures."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from services.chassis.interpreter import freeze_heap
from services.testing import validators
from services.testing.prepared import share
from tests import column_bounds
from tests.clocks import NOOP_CYCLES
from tests.figures import PROPERTY, Figures, printed
from tests.stack import Stack

MEMORY, MEMORY_LEAST_BYTES = "/dev/shm", 2 << 30  # a whole run writes some 300 MB

if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_LEAST_BYTES:
    # Every commit of every database is synced; what is tested is the end of a process, and never of the machine.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)
    tempfile.tempdir = os.environ["PYTEST_DEBUG_TEMPROOT"]

validators.install()
column_bounds.install()
# How long an example takes says something of the machine, and nothing of a property.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

LONG_FIRST = (
    "e2e/pages/test_pages.py",
    "e2e/test_snapshots.py",
    "e2e/survives_kill",
    "e2e/test_package.py",
    "e2e/test_scenarios_on_processes.py",
    "e2e/load_generators/test_load_generators.py",
    "e2e/console",
    "simulation/whole_stack/test_two_computes.py",
    "simulation/whole_stack/test_one_compute.py",
    "simulation/test_crash_anywhere.py",
    "simulation/workflows",
    "simulation/test_rest_machines.py",
    "simulation/whole_stack",
    "stories/autoscaling",
    "stories/instances",
    "stories/topology",
    "stories/test_move.py",
    "stories/test_many_pages.py",
    "simulation",
    "stories",
    "e2e",
    "services/openapi",
    "services/matrixctl/supervisor",
    "observability/test_catalogue.py",
    "services/testing",
    "upkeep/test_generated.py",
    "screenshots",
)
"""Files, and folders of files, that take long, the longest first: begun last, one of them would keep one worker busy while
the others are idle."""
TESTS = Path(__file__).parent
PREPARED = pytest.StashKey[tempfile.TemporaryDirectory]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Before a worker of a parallel run starts: where all of them leave the stacks that others start from."""
    config = node.config
    if PREPARED not in config.stash:
        config.stash[PREPARED] = tempfile.TemporaryDirectory(prefix="cloudmatrix-prepared-")
    node.workerinput["prepared"] = config.stash[PREPARED].name


def pytest_configure(config: pytest.Config) -> None:
    if folder := getattr(config, "workerinput", {}).get("prepared"):
        share(Path(folder))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    turns = {path: _turn(path) for path in {item.path for item in items}}
    items.sort(key=lambda item: turns[item.path])
    for item in items:
        if item.get_closest_marker("looptime"):
            item.add_marker(pytest.mark.looptime(noop_cycles=NOOP_CYCLES))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is loaded by now stays to the end: a collection of garbage need not look at it again, as in the services."""
    gc.collect()
    freeze_heap()


def _turn(path: Path) -> int:
    """Its place among those that take long."""
    name = f"{path.relative_to(TESTS).as_posix()}/" if path.is_relative_to(TESTS) else ""
    return next((at for at, long in enumerate(LONG_FIRST) if name.startswith(f"{long}/")), len(LONG_FIRST))


@pytest.fixture
async def stack(tmp_path) -> AsyncIterator[Stack]:
    """Resource, link, compute and 48 nodes, all up. Use with @pytest.mark.looptime."""
    async with Stack(tmp_path) as running:
        yield running


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Iterator[Figures]:
    """To be filled in with what the test measures; see `tests/figures.py`."""
    measured = Figures()
    yield measured
    record_property(PROPERTY, str(measured))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = sorted(printed(chain.from_iterable(terminalreporter.stats.values())))
    if lines:
        terminalreporter.section("figures")
        terminalreporter.write_line("\n".join(lines))
