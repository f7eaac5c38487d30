"""Nouns as fixtures."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import chain

import pytest

from services.chassis.garbage import keep_what_is_there
from services.testing import validators
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

LONG_FIRST = ("simulation", "stories", "e2e")
"""Folders of few and long tests: begun last, one of their files would keep one worker busy while the others are idle."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not any(folder in item.path.parts for folder in LONG_FIRST))
    for item in items:
        if item.get_closest_marker("looptime"):
            item.add_marker(pytest.mark.looptime(noop_cycles=NOOP_CYCLES))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is loaded by now stays to the end: a collection of garbage need not look at it again, as in the services."""
    gc.collect()
    keep_what_is_there()


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
