"""Predict when a new prompt would be prefilled, from what is known now.

The prediction works off the queue of the instance that would get it: the chunk under way, then chunks filled up to the
token budget, each with the duration of its prompts and of the blocks to fetch first. A prompt's first token comes at
the end of its last chunk, so it also delays the prompts that end in a chunk with it: these are `finishing_with` it. A
prediction changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import inf

from infer_workload.ems.context_cache import Match
from infer_workload.engine.data_movement import fetch_s
from infer_workload.engine.prefill_instance import PrefillInstance
from infer_workload.engine.request import InferenceRequest
from infer_workload.layout.deployment import Deployment


@dataclass(slots=True)
class ExpectedChunk:
    """A future chunk: its parts as input for the timing, what is fetched first, and the requests whose prompts end in
    it (`finishing`)."""

    starts_at: float
    parts: list[tuple[int, int]] = field(default_factory=list)
    tokens: int = 0
    blocks: int = 0
    ssd_tokens: int = 0
    finishing: list[InferenceRequest] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a queue has been worked off: whole prompts, and tokens of the next one."""

    prompts: int = 0
    tokens: int = 0

    def has_started(self, place: int) -> bool:
        """Whether any of the prompt at that place is done."""
        return self.prompts > place or (self.prompts == place and self.tokens > 0)


class ExpectedQueue:
    """The prompts of an instance in the order in which they will be computed, with a new `request` among them. The
    cache has `match` of its prompt; the `leaving` requests would be preempted for it."""

    def __init__(
        self,
        deployment: Deployment,
        nodes: Sequence[str],
        instance: PrefillInstance,
        request: InferenceRequest,
        match: Match,
        leaving: Collection[InferenceRequest],
    ) -> None:
        self.deployment = deployment
        self.nodes = nodes
        self.instance = instance
        self.request = request
        self.match = match
        self.cached = min(match.tokens, request.prompt - 1)
        waiting = list(instance.queue)
        place = instance.queue_position(request, self.cached, deployment.spec.block_tokens)
        self.prompts = [
            (each, each.prompt - each.prefilled - take, each.prefilled + take)
            for each, attempt, take in instance.chunk
            if instance.is_current(each, attempt) and each.prefilled + take < each.prompt
        ]
        """(request, tokens left, tokens done) for each prompt."""
        self.prompts += self._valid_entries(waiting[:place], leaving)
        self.own_index = len(self.prompts)
        self.prompts.append((request, request.prompt - self.cached, self.cached))
        self.prompts += self._valid_entries(waiting[place:], leaving)

    def _valid_entries(
        self, entries: Sequence[tuple[InferenceRequest, int]], leaving: Collection[InferenceRequest]
    ) -> list[tuple[InferenceRequest, int, int]]:
        return [
            (each, each.prompt - each.prefilled, each.prefilled)
            for each, attempt in entries
            if self.instance.is_current(each, attempt) and each not in leaving
        ]

    def next_chunk(
        self, at: float, progress: QueueProgress, *, without_own: bool = False
    ) -> tuple[ExpectedChunk, QueueProgress]:
        """The next chunk, filled up to the token budget, and how far the queue is worked off after it."""
        chunk, room, block_tokens = ExpectedChunk(at), self.instance.token_budget, self.deployment.spec.block_tokens
        index, begun = progress.prompts, progress.tokens
        while index < len(self.prompts) and room:
            if without_own and index == self.own_index:
                index += 1
                continue
            each, left, done = self.prompts[index]
            left, done = left - begun, done + begun
            take = min(room, left)
            tokens, ssd_tokens = self._fetched_tokens(each, done)
            chunk.parts.append((take, done))
            chunk.tokens += tokens
            chunk.blocks += -(-tokens // block_tokens)
            chunk.ssd_tokens += ssd_tokens
            room -= take
            if take < left:
                begun += take
            else:
                chunk.finishing.append(each)
                index, begun = index + 1, 0
        return chunk, QueueProgress(index, begun)

    def _fetched_tokens(self, request: InferenceRequest, done: int) -> tuple[int, int]:
        """Tokens of a prompt to fetch from the cache, if it begins at `done`, and those of them on solid state."""
        if request is self.request:
            return (self.cached, self.match.ssd_tokens) if done == self.cached else (0, 0)
        return (request.cached, request.cached_ssd) if done == request.cached else (0, 0)

    def duration_s(self, chunk: ExpectedChunk) -> float:
        """Seconds of a chunk, with the fetch before it; infinity if the blocks cannot be fetched."""
        instance = self.instance
        fetching_s = fetch_s(self.deployment, self.nodes, instance.nodes, chunk.tokens, chunk.blocks, chunk.ssd_tokens)
        return instance.timing.planned_s(chunk.parts) + fetching_s

    def alone_s(self) -> float:
        """Seconds of the new request in a chunk of its own."""
        blocks = -(-self.cached // self.deployment.spec.block_tokens)
        parts = [(self.request.prompt - self.cached, self.cached)]
        return self.duration_s(ExpectedChunk(0.0, parts, self.cached, blocks, self.match.ssd_tokens))


@dataclass(frozen=True)
class FirstToken:
    """The prediction for a new prompt. `joins_at` is when its first chunk starts; `finishing_with` are the requests
    that end in that chunk, which would be at `finishing_with_at` with the new prompt, and at `finishing_without_at()`
    without it."""

    instance: PrefillInstance
    at: float
    alone_s: float
    joins_at: float
    finishing_with: Sequence[InferenceRequest]
    finishing_with_at: float
    finishing_without_at: Callable[[], float]
    kv_tokens: int
    """Tokens of all prompts that end in its last chunk, its own included: their KV leaves the instance at once."""


def predict_first_token(
    deployment: Deployment,
    nodes: Sequence[str],
    instance: PrefillInstance,
    request: InferenceRequest,
    match: Match,
    now: float,
    leaving: Collection[InferenceRequest] = (),
) -> FirstToken:
    """Predict the first token of a request on that instance. The cache, on `nodes`, has `match` of its prompt; the
    `leaving` requests would be preempted for it."""
    queue = ExpectedQueue(deployment, nodes, instance, request, match, leaving)
    at, progress = instance.free_at(now), QueueProgress()
    joined, joined_from, joined_ends_at = None, progress, inf
    while at < inf:
        chunk, next_progress = queue.next_chunk(at, progress)
        ends_at = at + queue.duration_s(chunk)
        if joined is None and next_progress.has_started(queue.own_index):
            joined, joined_from, joined_ends_at = chunk, progress, ends_at
        if joined is not None and next_progress.prompts > queue.own_index:
            break
        at, progress = ends_at, next_progress
    else:
        return FirstToken(instance, inf, inf, inf, (), inf, lambda: inf, 0)

    def without() -> float:
        chunk_without, _ = queue.next_chunk(joined.starts_at, joined_from, without_own=True)
        return joined.starts_at + queue.duration_s(chunk_without)

    return FirstToken(
        instance=instance,
        at=ends_at,
        alone_s=queue.alone_s(),
        joins_at=joined.starts_at,
        finishing_with=[each for each in joined.finishing if each is not request],
        finishing_with_at=joined_ends_at,
        finishing_without_at=without,
        kv_tokens=sum(each.prompt for each in chunk.finishing),
    )
