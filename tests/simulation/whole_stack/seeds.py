"""How many seeds the tests live, of how many events each, and how one that fails is reported."""

from __future__ import annotations

import os

from tests.simulation.whole_stack.simulation import EVENTS, Outcome, simulate

SEEDS = int(os.environ.get("WHOLE_STACK_SEEDS", "200"))
"""In `make simulation`, as many as fit into what CI has: even ones with one MatrixCompute, odd ones with two replicas."""
SOAK_SEEDS, SOAK_EVENTS = (int(each) for each in os.environ.get("WHOLE_STACK_SOAK", "10000x1000").split("x"))
"""In `make soak`, hours of all cores."""


def lived(seed: int, events: int = EVENTS) -> Outcome:
    """The life of that seed. What fails it is raised with the command that replays it."""
    outcome = simulate(seed, events)
    if outcome.failure is not None:
        outcome.failure.add_note(f"Replay it: {outcome.replay}")
        outcome.failure.add_note(outcome.scenario)
        raise outcome.failure
    return outcome
