"""The same with two replicas of MatrixCompute, any of which may stand still, wake up and find another leading."""

from __future__ import annotations

import pytest

from tests.simulation.whole_stack.seeds import SEEDS, lived
from tests.simulation.whole_stack.simulation import EVENTS


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(1, SEEDS, 2))
def test_simulation_with_two_computes_keeps_every_invariant(seed: int) -> None:
    assert len(lived(seed).events) == EVENTS
