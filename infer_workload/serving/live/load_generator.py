"""Built-in load: seeded conversation traffic for a live deployment, in emulated time, without a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

from infer_workload.contract.load import LoadRequest, LoadView
from infer_workload.engine.engine import Engine
from infer_workload.engine.request import ContextTooLong, InferenceRequest
from infer_workload.traffic.generator import Arrival, blocks_of, generate
from matrixcommon.model.errors import Overloaded

Admit = Callable[[Engine, InferenceRequest], None]
"""Admits a request. Raises ContextTooLong or Overloaded."""

ARRIVALS_PER_TURN = 64
"""Arrivals submitted before yielding to the event loop."""

LAG_S_MAX = 600.0
"""Emulated seconds of lag that are made up for when the host was too busy; older arrivals are skipped and counted."""


class BuiltInLoad:
    """One built-in load, restarted by `restart`; `view` counts its requests."""

    def __init__(self, request: LoadRequest, now: float, previous: BuiltInLoad | None = None) -> None:
        """`previous` is the load that it replaces; prompts of the two do not share blocks."""
        self.view = LoadView.from_stored(request.model_dump())
        self._first_block: int = 0 if previous is None else previous._next_block
        self._next_block: int = self._first_block
        self._arrivals: Iterator[Arrival] = iter(())
        self._next: Arrival | None = None
        self.restart(now)

    def restart(self, now: float) -> None:
        """Restart the traffic from its beginning."""
        view = self.view
        self._arrivals = generate(
            view.seed,
            view.requests_per_second,
            start_s=now,
            input_tokens_max=view.input_tokens_max,
            first_block=self._first_block,
        )
        self._next = next(self._arrivals)

    @property
    def next_arrival_at(self) -> float:
        return inf if self._next is None else self._next.at_s

    def submit_due(self, now: float, engine: Engine, numbers: Iterator[int], admit: Admit) -> bool:
        """Submit the arrivals up to `now`; True if some are left for the next turn."""
        for _ in range(ARRIVALS_PER_TURN):
            arrival = self.pop_due(now)
            if arrival is None:
                return False
            engine.advance(arrival.at_s)
            tokens = arrival.input_tokens, arrival.output_tokens
            blocks = blocks_of(arrival, engine.cache.block_tokens)
            try:
                admit(engine, InferenceRequest(next(numbers), arrival.at_s, *tokens, blocks))
                self.view.submitted += 1
            except (ContextTooLong, Overloaded):
                self.view.refused += 1
        return self.next_arrival_at <= now

    def pop_due(self, now: float) -> Arrival | None:
        """Remove and return the next arrival that is due; None if there is none."""
        while (arrival := self._next) is not None and arrival.at_s <= now:
            self._next = next(self._arrivals)
            self._next_block = max(self._next_block, arrival.blocks[-1] + 1)
            if arrival.at_s >= now - LAG_S_MAX:
                return arrival
            self.view.skipped += 1
        return None
