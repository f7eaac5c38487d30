"""kill -9 of the processes that ask others for changes, while the chain is at work (`chain.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import RealStack
from tests.e2e.survives_kill.chain import ASKERS, survives

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.mark.parametrize("victim", ASKERS)
def test_the_chain_survives_the_death_of(victim: str, real_stack: RealStack, tmp_path: Path) -> None:
    survives(victim, real_stack, tmp_path)
