"""When a prompt that came now would be in KV, as far as what is known now says.

The queue of the instance that would take it is worked off as it will be: the chunk under way to its end, then chunks
filled up to the token budget, each as long as its prompts take, with what they have to fetch first. A prompt's first
token comes when the chunk that it ends in is through, so it also delays those that end there with it: they are
`beside` it. Nothing is changed by asking.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from math import inf

from infer_workload.ems.context_cache import Match
from infer_workload.engine.moving import fetch_s
from infer_workload.engine.prefill_instance import PrefillInstance
from infer_workload.engine.request import InferenceRequest
from infer_workload.layout.deployment import Deployment


@dataclass(slots=True)
class ExpectedChunk:
    """A chunk to come: its parts as the timing takes them, what is fetched first, and whose prompts end in it."""

    starts_at: float
    parts: list[tuple[int, int]]
    tokens: int
    blocks: int
    cold_tokens: int
    through: list[InferenceRequest]


@dataclass(frozen=True)
class FirstToken:
    """Of a prompt that would be taken now. `joins_at`: when the chunk starts that it would begin in, with `beside` it
    those that end there, at `beside_at`, and without it at what `beside_before` says."""

    instance: PrefillInstance
    at: float
    alone_s: float
    joins_at: float
    beside: Sequence[InferenceRequest]
    beside_at: float
    beside_before: Callable[[], float]
    kv_tokens: int
    """Of all prompts that would be through with it, its own too: their KV leaves the instance at once."""


def first_token(
    deployment: Deployment,
    nodes: Sequence[str],
    instance: PrefillInstance,
    request: InferenceRequest,
    match: Match,
    now: float,
    leaving: Collection[InferenceRequest] = (),
) -> FirstToken:
    """What that instance would do for a request of which the cache on those nodes holds so much. `leaving` make room
    for it."""
    block_tokens = deployment.spec.block_tokens
    cached = min(match.tokens, request.prompt - 1)
    queue = [
        (each, each.prompt - each.prefilled - take, each.prefilled + take)
        for each, life, take in instance.chunk
        if instance.holds(each, life) and each.prefilled + take < each.prompt
    ]
    place = instance.place_of(request, cached, block_tokens)
    waiting = list(instance.queue)
    before = [each for each, life in waiting[:place] if instance.holds(each, life) and each not in leaving]
    behind = [each for each, life in waiting[place:] if instance.holds(each, life) and each not in leaving]
    queue += [(each, each.prompt - each.prefilled, each.prefilled) for each in before]
    own = len(queue)
    queue.append((request, request.prompt - cached, cached))
    queue += [(each, each.prompt - each.prefilled, each.prefilled) for each in behind]

    def begins_with(each: InferenceRequest, past: int) -> tuple[int, int]:
        """Tokens that it has from the cache where it begins there, and those of them on solid state."""
        if each is request:
            return (cached, match.ssd_tokens) if past == cached else (0, 0)
        return (each.cached, each.cached_ssd) if past == each.cached else (0, 0)

    def takes(chunk: ExpectedChunk) -> float:
        fetching = fetch_s(deployment, nodes, instance.nodes, chunk.tokens, chunk.blocks, chunk.cold_tokens)
        return instance.timing.planned_s(chunk.parts) + fetching

    at, index, joined = instance.free_at(now), 0, None
    while at < inf:
        chunk, room = ExpectedChunk(at, [], 0, 0, 0, []), instance.token_budget
        while index < len(queue) and room:
            each, left, past = queue[index]
            if index == own and joined is None:
                joined = chunk
                without = replace(chunk, parts=list(chunk.parts), through=list(chunk.through))
            take = min(room, left)
            tokens, cold = begins_with(each, past)
            chunk.parts.append((take, past))
            chunk.tokens += tokens
            chunk.blocks += -(-tokens // block_tokens)
            chunk.cold_tokens += cold
            room -= take
            if take < left:
                queue[index] = each, left - take, past + take
            else:
                chunk.through.append(each)
                index += 1
        ends_at = at + takes(chunk)
        if joined is chunk:
            beside_at = ends_at
        if index > own:
            break
        at = ends_at
    else:
        return FirstToken(instance, inf, inf, inf, (), inf, lambda: inf, 0)
    alone = ExpectedChunk(
        0.0, [(request.prompt - cached, cached)], cached, -(-cached // block_tokens), match.ssd_tokens, []
    )
    kv_tokens = sum(each.prompt for each in chunk.through)
    return FirstToken(
        instance,
        ends_at,
        takes(alone),
        without.starts_at,
        without.through,
        beside_at,
        lambda: without.starts_at + takes(without),
        kv_tokens,
    )
