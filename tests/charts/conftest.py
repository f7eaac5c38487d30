"""Helm, or a loud word about what was not tested without it."""

from __future__ import annotations

import pytest

from tests.charts.helm.build import missing


@pytest.fixture(scope="session")
def helm_here() -> None:
    why = missing()
    if why is not None:
        pytest.skip(f"{why}: the chart was not rendered")
