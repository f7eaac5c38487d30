"""One prefill instance: a queue of prompts and the chunk its dies work on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf, isclose

from infer_workload.ems.context_cache import ContextCache
from infer_workload.engine.request import PREFILLING, InferenceRequest
from infer_workload.timing.prefill import PrefillTiming


@dataclass(slots=True, eq=False)
class PrefillInstance:
    """One prefill instance; its dies compute one chunk at a time."""

    number: int
    nodes: tuple[str, ...]
    timing: PrefillTiming
    token_budget: int
    ready_at: float = 0.0
    queue: deque[tuple[InferenceRequest, int]] = field(default_factory=deque)
    chunk: list[tuple[InferenceRequest, int, int]] = field(default_factory=list)
    chunk_number: int = 0
    chunk_work: tuple[list[tuple[int, int]], int, int] = ([], 0, 0)
    """The chunk as (new, earlier) tokens of each prompt, and the tokens and blocks to fetch first."""
    chunk_paced: bool = False
    chunk_s: float = 0.0
    """Duration of the whole chunk at the present pace."""
    chunk_left: float = 1.0
    """The fraction of the chunk that was left at `paced_at`."""
    paced_at: float = 0.0
    backlog_tokens: int = 0
    busy_s: float = 0.0
    prefilled_tokens: int = 0
    """Since the start."""

    def is_current(self, request: InferenceRequest, attempt: int) -> bool:
        """Whether that queue entry is still valid: the request may have been requeued or cancelled since."""
        return request.attempts == attempt and request.instance is self and request.state == PREFILLING

    def enqueue(self, request: InferenceRequest, block_tokens: int) -> None:
        """Insert behind prompts that have begun, are not of lower priority, or compute blocks that this one needs."""
        self.queue.insert(self.queue_position(request, request.cached, block_tokens), (request, request.attempts))

    def queue_position(self, request: InferenceRequest, cached: int, block_tokens: int) -> int:
        """Its position in the queue if `cached` of its tokens come from the cache."""
        at = len(self.queue)
        while at and _overtakes(request, cached, self.queue[at - 1][0], block_tokens):
            at -= 1
        return at

    def free_at(self, now: float) -> float:
        """When the next chunk can start, at the present pace."""
        if not self.chunk:
            return max(now, self.ready_at)
        return max(now, self.paced_at + self._duration_of(self.chunk_left)) if self.chunk_s < inf else inf

    def tokens_before(self, priority: int) -> int:
        """Tokens to be computed before a new prompt of that priority."""
        before = self.backlog_tokens
        for request, attempt in reversed(self.queue):
            if request.priority <= priority:
                break
            if self.is_current(request, attempt) and request.prefilled == request.cached:
                before -= request.prompt - request.prefilled
        return before

    def blocks_recomputed(self, in_flight: set[int], block_tokens: int) -> set[int]:
        """Of the blocks owed by withdrawn prompts, those that other prompts here will compute instead.

        The first prompt that relied on a block computes it itself, and those behind rely on that one. In the chunk
        under way nothing changes, since the withdrawn prompt's part of it is still computed.
        """
        recomputed: set[int] = set()
        begun = {request.number for request, _, _ in self.chunk}
        for request, attempt in [*((request, attempt) for request, attempt, _ in self.chunk), *self.queue]:
            if not in_flight or not self.is_current(request, attempt) or in_flight.isdisjoint(request.blocks):
                continue
            first = next(
                (at for at, key in enumerate(request.blocks) if key in in_flight and key not in recomputed), None
            )
            if first is not None and request.number not in begun and request.prefilled == request.cached:
                self._reduce_cached(request, min(request.cached, first * block_tokens))
            recomputed.update(in_flight.intersection(request.blocks))
        return recomputed

    def refresh_cached(self, cache: ContextCache) -> None:
        """Make queued prompts compute blocks themselves that have gone from the cache."""
        for request, attempt in self.queue:
            if not request.cached or request.prefilled > request.cached or not self.is_current(request, attempt):
                continue
            known = cache.peek(request.blocks, request.prompt).tokens
            if known < request.cached:
                self._reduce_cached(request, known)
                cache.add_in_flight(request.blocks, self.number, request.project)

    def _reduce_cached(self, request: InferenceRequest, tokens: int) -> None:
        """Reduce what a queued prompt takes from the context cache to that many tokens."""
        self.backlog_tokens += request.cached - tokens
        request.cached = request.prefilled = request.matched = tokens
        request.cached_ssd = min(request.cached_ssd, tokens)
        if request.attempts == 1:
            request.cached_first = min(request.cached_first, tokens)

    def set_pace(self, now: float, chunk_s: float) -> float | None:
        """Set the pace at which the whole chunk takes `chunk_s`. Return when it ends, or None if the pace is unchanged.

        The part already done stays done.
        """
        if self.chunk_paced:
            if isclose(chunk_s, self.chunk_s):
                return None
            done = (now - self.paced_at) / self.chunk_s if self.chunk_s > 0 else self.chunk_left
            self.busy_s -= self._duration_of(self.chunk_left)
            self.chunk_left = max(0.0, self.chunk_left - done)
            self.busy_s += now - self.paced_at
        else:
            self.chunk_left, self.chunk_paced = 1.0, True
        self.chunk_s, self.paced_at = chunk_s, now
        self.busy_s += self._duration_of(self.chunk_left)
        self.chunk_number += 1
        return now + self.chunk_left * chunk_s if self.chunk_left else now

    def _duration_of(self, fraction: float) -> float:
        return fraction * self.chunk_s if self.chunk_s < inf else 0.0

    @property
    def ssd_tokens(self) -> int:
        """Tokens of the chunk that have to be fetched from solid state first."""
        return sum(each.cached_ssd for each, _, _ in self.chunk if each.cached_ssd and each.prefilled == each.cached)

    def fill_chunk(self, now: float, block_tokens: int) -> tuple[int, int]:
        """Fill the chunk from the queue up to the token budget; a long prompt is split over several chunks.

        Return the tokens and blocks to fetch from the context cache first.
        """
        room, fetched, blocks = self.token_budget, 0, 0
        self.chunk_paced = False
        while self.queue and room > 0:
            request, attempt = self.queue.popleft()
            if not self.is_current(request, attempt):
                continue
            if request.prefilled == request.cached and request.cached:
                fetched += request.cached
                blocks += -(-request.cached // block_tokens)
            if request.prefill_started_at < 0:
                request.prefill_started_at = now
            take = min(room, request.prompt - request.prefilled)
            self.chunk.append((request, attempt, take))
            room -= take
        self.chunk_work = [(take, request.prefilled) for request, _, take in self.chunk], fetched, blocks
        return fetched, blocks


def _overtakes(request: InferenceRequest, cached: int, other: InferenceRequest, block_tokens: int) -> bool:
    """Whether a new request goes before `other` in the queue. It does not if part of that prompt is in KV already: as
    in vLLM, that one continues first."""
    if request.priority >= other.priority or other.prefilled > other.cached:
        return False
    computed, counted = -(-other.cached // block_tokens), -(-cached // block_tokens)
    both = min(counted, len(other.blocks))
    return computed >= both or request.blocks[computed] != other.blocks[computed]
