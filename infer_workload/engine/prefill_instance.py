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
    work: tuple[list[tuple[int, int]], int, int] = ([], 0, 0)
    """The chunk as (new, earlier) tokens of each prompt, and the tokens and blocks to fetch first."""
    work_began: bool = False
    whole_s: float = 0.0
    """Duration of the whole chunk at the present pace."""
    left: float = 1.0
    """The fraction of the chunk that was left at `paced_at`."""
    paced_at: float = 0.0
    backlog_tokens: int = 0
    busy_s: float = 0.0
    prefilled_tokens: int = 0
    """Since the start."""

    def holds(self, request: InferenceRequest, life: int) -> bool:
        """Whether that queue entry is still valid: the request may have been requeued or cancelled since."""
        return request.attempts == life and request.instance is self and request.state == PREFILLING

    def enqueue(self, request: InferenceRequest, block_tokens: int) -> None:
        """Insert behind prompts that have begun, are not of lower priority, or compute blocks that this one needs."""
        self.queue.insert(self.place_of(request, request.cached, block_tokens), (request, request.attempts))

    def place_of(self, request: InferenceRequest, cached: int, block_tokens: int) -> int:
        """Its position in the queue if `cached` of its tokens come from the cache."""
        at = len(self.queue)
        while at and _overtakes(request, cached, self.queue[at - 1][0], block_tokens):
            at -= 1
        return at

    def free_at(self, now: float) -> float:
        """When the next chunk can start, at the present pace."""
        if not self.chunk:
            return max(now, self.ready_at)
        return max(now, self.paced_at + self._takes(self.left)) if self.whole_s < inf else inf

    def tokens_before(self, priority: int) -> int:
        """Tokens to be computed before a new prompt of that priority."""
        before = self.backlog_tokens
        for request, life in reversed(self.queue):
            if request.priority <= priority:
                break
            if self.holds(request, life) and request.prefilled == request.cached:
                before -= request.prompt - request.prefilled
        return before

    def still_due(self, owed: set[int], block_tokens: int) -> set[int]:
        """Of the blocks owed by withdrawn prompts, those that other prompts here will compute instead.

        The first prompt that relied on a block computes it itself, and those behind rely on that one. In the chunk
        under way nothing changes, since the withdrawn prompt's part of it is still computed.
        """
        due: set[int] = set()
        begun = {request.number for request, _, _ in self.chunk}
        for request, life in [*((request, life) for request, life, _ in self.chunk), *self.queue]:
            if not owed or not self.holds(request, life) or owed.isdisjoint(request.blocks):
                continue
            first = next((at for at, key in enumerate(request.blocks) if key in owed and key not in due), None)
            if first is not None and request.number not in begun and request.prefilled == request.cached:
                self._count_on(request, min(request.cached, first * block_tokens))
            due.update(owed.intersection(request.blocks))
        return due

    def recount(self, cache: ContextCache) -> None:
        """Make queued prompts compute blocks themselves that have gone from the cache."""
        for request, life in self.queue:
            if not request.cached or request.prefilled > request.cached or not self.holds(request, life):
                continue
            known = cache.peek(request.blocks, request.prompt).tokens
            if known < request.cached:
                self._count_on(request, known)
                cache.promise(request.blocks, self.number, request.project)

    def _count_on(self, request: InferenceRequest, tokens: int) -> None:
        """Reduce what a queued prompt takes from the context cache to that many tokens."""
        self.backlog_tokens += request.cached - tokens
        request.cached = request.prefilled = request.matched = tokens
        request.cached_ssd = min(request.cached_ssd, tokens)
        if request.attempts == 1:
            request.cached_first = min(request.cached_first, tokens)

    def pace(self, now: float, whole_s: float) -> float | None:
        """Set the pace at which the whole chunk takes `whole_s`. Return when it ends, or None if the pace is unchanged.

        The part already done stays done.
        """
        if self.work_began:
            if isclose(whole_s, self.whole_s):
                return None
            done = (now - self.paced_at) / self.whole_s if self.whole_s > 0 else self.left
            self.busy_s -= self._takes(self.left)
            self.left = max(0.0, self.left - done)
            self.busy_s += now - self.paced_at
        else:
            self.left, self.work_began = 1.0, True
        self.whole_s, self.paced_at = whole_s, now
        self.busy_s += self._takes(self.left)
        self.chunk_number += 1
        return now + self.left * whole_s if self.left else now

    def _takes(self, left: float) -> float:
        return left * self.whole_s if self.whole_s < inf else 0.0

    @property
    def cold_tokens(self) -> int:
        """Tokens of the chunk that have to be fetched from solid state first."""
        return sum(each.cached_ssd for each, _, _ in self.chunk if each.cached_ssd and each.prefilled == each.cached)

    def fill(self, now: float, block_tokens: int) -> tuple[int, int]:
        """Fill the chunk from the queue up to the token budget; a long prompt is split over several chunks.

        Return the tokens and blocks to fetch from the context cache first.
        """
        room, fetched, blocks = self.token_budget, 0, 0
        self.work_began = False
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
        self.work = [(take, request.prefilled) for request, _, take in self.chunk], fetched, blocks
        return fetched, blocks


def _overtakes(request: InferenceRequest, cached: int, other: InferenceRequest, block_tokens: int) -> bool:
    """Whether a new request goes before `other` in the queue. It does not if part of that prompt is in KV already: as
    in vLLM, that one continues first."""
    if request.priority >= other.priority or other.prefilled > other.cached:
        return False
    computed, counted = -(-other.cached // block_tokens), -(-cached // block_tokens)
    both = min(counted, len(other.blocks))
    return computed >= both or request.blocks[computed] != other.blocks[computed]
