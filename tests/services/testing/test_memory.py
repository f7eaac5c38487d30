"""A stack that has ended is gone from memory: hundreds of them are begun in one process of tests."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from tests.stack import Stack


async def services_of_a_stack(folder: Path) -> list[weakref.ref[Any]]:
    async with Stack(folder) as stack:
        return [weakref.ref(seat.transport.app) for seat in stack.seats.values()]


@pytest.mark.looptime
async def test_services_that_have_ended_are_forgotten(tmp_path: Path) -> None:
    services = await services_of_a_stack(tmp_path)
    gc.collect()
    assert len(services) == 4
    assert [each() for each in services if each() is not None] == []
