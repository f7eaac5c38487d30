"""Nouns as fixtures."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.stack import Stack


@pytest.fixture
async def stack(tmp_path) -> AsyncIterator[Stack]:
    """Resource, link, compute and 48 nodes, all up. Use with @pytest.mark.looptime."""
    async with Stack(tmp_path) as running:
        yield running
