"""Runs one seed, and says what came of it: `python -m tests.simulation.whole_stack --help`."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from contextlib import nullcontext

from services.testing import validators
from tests.simulation.whole_stack.mutations import MUTATIONS
from tests.simulation.whole_stack.simulation import EVENTS, shrunk, simulate


def main() -> int:
    parser = argparse.ArgumentParser(description="Live the life of a seed again.")
    parser.add_argument("seed", type=int)
    parser.add_argument("--to", type=int, help="the lives of all seeds from the first up to this one")
    parser.add_argument("--events", type=int, default=EVENTS, help=f"how many ({EVENTS})")
    parser.add_argument("--mutation", choices=MUTATIONS, help="with this fault put into the product, until it is found")
    parser.add_argument("--shrink", action="store_true", help="look for fewer events after which it fails as well")
    parser.add_argument("--trace", action="store_true", help="print every event")
    asked = parser.parse_args()
    validators.install()
    logging.disable(logging.WARNING)
    failed = 0
    for seed in range(asked.seed, (asked.to if asked.to is not None else asked.seed) + 1):
        began = time.process_time()
        with MUTATIONS[asked.mutation]() if asked.mutation else nullcontext():
            outcome = simulate(seed, asked.events)
        if asked.shrink and outcome.failure is not None:
            outcome = shrunk(outcome)
        if asked.trace:
            print("\n".join(outcome.events))
        cpu_s = time.process_time() - began
        print(
            f"seed {seed}: {len(outcome.events)} events, {outcome.commits} commits, {outcome.virtual_s:.0f} s of theirs, "
            f"{cpu_s:.2f} s of CPU, {outcome.hash[:16]}", flush=True
        )  # fmt: skip
        if outcome.failure is not None:
            failed += 1
            traceback.print_exception(outcome.failure, limit=-6)
            print(f"Replay it: {outcome.replay}\n{outcome.scenario}", flush=True)
            if asked.mutation:
                return 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
