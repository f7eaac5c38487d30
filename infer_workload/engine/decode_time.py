"""How long the answer of a request that came now would take to decode, and when there would be room for it.

Its KV moves first, with that of all prompts that are through with its own; it joins at the next boundary of a step; and
how many steps it takes is chance where drafts are accepted or not. All that is part of the mean time of its tokens, and
the shorter an answer is the more of it. So it is judged by what 99 of 100 answers of its length take at most.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, sqrt

from infer_workload.engine.decode_pool import DecodePool
from infer_workload.engine.moving import port_gbps, transfer_start_s
from infer_workload.engine.prefill_instance import PrefillInstance
from infer_workload.engine.request import DecodeDie
from infer_workload.layout.deployment import Deployment

ABOVE = 2.326
"""So many standard deviations above the mean are 99 of 100."""

FINISHES = 64
"""So many of those that decode are looked at for the room that they leave."""


def transfer_s(deployment: Deployment, instance: PrefillInstance, die: DecodeDie, tokens: int, together: int) -> float:
    """Until the KV of a prompt of so many tokens is on its die, where that of so many leaves the instance at once."""
    rates = port_gbps(deployment, die), port_gbps(deployment, instance)
    if not all(rates):
        return inf
    size = deployment.model.kv_bytes_per_token / 1e9
    return transfer_start_s(deployment) + size * max(tokens / rates[0], together / rates[1])


def most_steps(pool: DecodePool, tokens: int) -> float:
    """Steps until an answer has so many tokens, at most, for 99 of 100; where others decode, the one under way too."""
    boundary = 0.5 if pool.active else 0.0
    mean, variance = pool.steps_for(tokens)
    return min(tokens, mean) + boundary + ABOVE * sqrt(variance + boundary / 6)


def present_step_s(pool: DecodePool) -> float:
    """A step of all that has a place and one request more, at the lengths that those have which decode already."""
    batch, tokens = pool.fullest()
    most = max((die.reserved for die in pool.dies), default=0)
    if not batch:
        return 0.0
    return pool.timing.step_s(max(most, batch), tokens * max(most, batch) / batch)


def room_in_s(pool: DecodePool, fits: Callable[[DecodeDie, int, int], bool], now: float) -> float:
    """When the first die has room for one more, as those that decode finish: `fits(die, requests, tokens)` where so
    many have left it, with so many tokens set aside. Infinity where none of those that finish next leaves enough."""
    left: dict[DecodeDie, tuple[int, int]] = {}
    for end_step, request in pool.next_ends(FINISHES):
        die = request.die
        if die is None:
            continue
        requests, tokens = left.get(die, (0, 0))
        left[die] = requests + 1, tokens + request.reserved
        if fits(die, *left[die]):
            return max(0.0, pool.reached_at(end_step) - now)
    return inf


def finish_in_s(pool: DecodePool, share: float, now: float) -> float:
    """Until that share of those that decode has finished."""
    ends = pool.sampled_ends(FINISHES)
    if not ends:
        return 0.0
    return max(0.0, pool.reached_at(ends[min(len(ends) - 1, int(share * len(ends)))]) - now)
