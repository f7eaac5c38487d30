"""One prefill instance: a queue of prompts and the chunk its dies work on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from infer_workload.engine.request import PREFILLING, InferenceRequest
from infer_workload.timing.prefill import PrefillTiming


@dataclass(slots=True, eq=False)
class PrefillInstance:
    """One prefill instance: its dies work on one chunk at a time."""

    number: int
    nodes: tuple[str, ...]
    timing: PrefillTiming
    token_budget: int
    ready_at: float = 0.0
    queue: deque[tuple[InferenceRequest, int]] = field(default_factory=deque)
    chunk: list[tuple[InferenceRequest, int, int]] = field(default_factory=list)
    chunk_number: int = 0
    backlog_tokens: int = 0
    busy_s: float = 0.0

    def holds(self, request: InferenceRequest, life: int) -> bool:
        """Whether that entry of the queue still stands: the request may have been sent back or cancelled since."""
        return request.attempts == life and request.instance is self and request.state == PREFILLING

    def fill(self, now: float, block_tokens: int) -> tuple[int, int]:
        """Fill the chunk from the queue up to the token budget; a long prompt goes through in several.

        Returns the tokens and blocks that have to be fetched from the context cache first.
        """
        room, fetched, blocks = self.token_budget, 0, 0
        while self.queue and room > 0:
            request, life = self.queue.popleft()
            if not self.holds(request, life):
                continue
            if request.prefilled == request.cached and request.cached:
                fetched += request.cached
                blocks += -(-request.cached // block_tokens)
            if request.prefill_started_at < 0:
                request.prefill_started_at = now
            take = min(room, request.prompt - request.prefilled)
            self.chunk.append((request, life, take))
            room -= take
        return fetched, blocks
