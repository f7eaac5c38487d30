"""Whatever a seed draws for the whole stack, no promise is broken after any event, and everything settles."""

from __future__ import annotations

import pytest

from tests.simulation.whole_stack.seeds import SEEDS, lived
from tests.simulation.whole_stack.simulation import EVENTS


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(0, SEEDS, 2))
def test_simulation_with_one_compute_keeps_every_invariant(seed: int) -> None:
    assert len(lived(seed).events) == EVENTS
