"""Estimates for admission: how long a new request's answer would take to decode, and when there would be room for it.

Its KV moves first, together with that of all prompts finished in the same chunk; it joins at the next step boundary;
and with drafts the number of steps is random. All of this counts in the mean time per token, the more the shorter the
answer is. So the estimate is what 99 of 100 answers of its length take at most.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, sqrt

from infer_workload.engine.data_movement import port_gbps, transfer_start_s
from infer_workload.engine.decode_pool import DecodePool
from infer_workload.engine.prefill_instance import PrefillInstance
from infer_workload.engine.request import DecodeDie
from infer_workload.layout.deployment import Deployment

DEVIATIONS_99 = 2.326
"""Standard deviations above the mean that cover 99 of 100 of a normal distribution."""

FINISHES_EXAMINED = 64
"""How many decoding requests are examined for the room that they will leave."""


def transfer_s(
    deployment: Deployment, instance: PrefillInstance, die: DecodeDie, tokens: int, batch_tokens: int
) -> float:
    """Seconds to move the KV of a prompt of `tokens` to its die, while that of `batch_tokens` tokens leaves the
    instance."""
    rates = port_gbps(deployment, die), port_gbps(deployment, instance)
    if not all(rates):
        return inf
    size = deployment.model.kv_bytes_per_token / 1e9
    return transfer_start_s(deployment) + size * max(tokens / rates[0], batch_tokens / rates[1])


def max_steps(pool: DecodePool, tokens: int) -> float:
    """The most steps that 99 of 100 answers of that many tokens take, with the one under way if others decode."""
    boundary = 0.5 if pool.active else 0.0
    mean, variance = pool.step_statistics(tokens)
    return min(tokens, mean) + boundary + DEVIATIONS_99 * sqrt(variance + boundary / 6)


def current_step_s(pool: DecodePool) -> float:
    """Seconds of a step if everything with a place were decoding, at the lengths of those that decode now; 0 if
    nothing decodes."""
    batch, tokens = pool.max_load()
    most = max((die.reserved for die in pool.dies), default=0)
    if not batch:
        return 0.0
    return pool.timing.step_s(max(most, batch), tokens * max(most, batch) / batch)


def time_to_room_s(pool: DecodePool, fits: Callable[[DecodeDie, int, int], bool], now: float) -> float:
    """Seconds until a die has room for one more, as decoding requests finish. `fits(die, requests, tokens)` decides
    after that many requests, with that many reserved tokens, have left the die. Infinity if those that finish next do
    not leave enough."""
    left: dict[DecodeDie, tuple[int, int]] = {}
    for end_step, request in pool.next_finishes(FINISHES_EXAMINED):
        die = request.die
        if die is None:
            continue
        requests, tokens = left.get(die, (0, 0))
        left[die] = requests + 1, tokens + request.reserved
        if fits(die, *left[die]):
            return max(0.0, pool.time_of_step(end_step) - now)
    return inf


def time_to_finish_s(pool: DecodePool, share: float, now: float) -> float:
    """Seconds until that share of the decoding requests has finished."""
    ends = pool.sample_finish_steps(FINISHES_EXAMINED)
    if not ends:
        return 0.0
    return max(0.0, pool.time_of_step(ends[min(len(ends) - 1, int(share * len(ends)))]) - now)
