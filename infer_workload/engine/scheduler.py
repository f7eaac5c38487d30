"""Scheduler: chooses the decode die and the prefill instance of a request.

Decode room comes first, as in the paper: KV memory is reserved before a prefill instance is chosen. Among the dies with
room, the one with the fewest reserved tokens is chosen, since all dies step together and the fullest sets the pace.
Among the prefill instances, the one with the least queued work, unless one has yet to compute a block that the prompt
reuses.

With a target for time per token the batch adapts (`keeps_tpot_target`): there is room only if a step would still meet
the target with everything placed at its final length. A request without room preempts others of lower priority: the
lowest priority first, and of these the latest, as in vLLM. When a layout on fewer dies leaves each less memory beside
its experts, the requests that no longer fit are chosen in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from infer_workload.ems.context_cache import STORED, Match
from infer_workload.engine.request import PREFILLING, TRANSFERRING

if TYPE_CHECKING:
    from infer_workload.engine.decode_pool import DecodeDie, DecodePool
    from infer_workload.engine.prefill_instance import PrefillInstance
    from infer_workload.engine.request import InferenceRequest


RESERVED, RESERVED_TOKENS = attrgetter("reserved"), attrgetter("reserved_tokens")


def choose_die(dies: Sequence[DecodeDie], tokens: int, batch_max: int, kv_max: int) -> DecodeDie | None:
    """The emptiest die with room for that many tokens, the first of equals, or None."""
    for die in dies:  # under little load, one of the first dies is empty
        if not die.reserved_tokens:
            return die if tokens <= kv_max else None
    best = min(dies, key=RESERVED_TOKENS, default=None)
    if best is not None and best.reserved >= batch_max:  # many short requests
        best = min((die for die in dies if die.reserved < batch_max), key=RESERVED_TOKENS, default=None)
    return best if best is not None and best.reserved_tokens + tokens <= kv_max else None


def choose_instance(instances: Sequence[PrefillInstance], match: Match, priority: int = 0) -> PrefillInstance:
    """The instance that has yet to compute a block of the match, else the one with the least work ahead of a prompt of
    that priority. `instances` is not empty."""
    if match.producer != STORED:
        for instance in instances:
            if instance.number == match.producer:
                return instance
    return min(instances, key=lambda instance: (instance.tokens_before(priority), instance.number))


def occupies(request: InferenceRequest, decode: frozenset[str], prefill: frozenset[tuple[str, ...]]) -> bool:
    """Whether the request still needs one of these decode nodes, or of these prefill instances (given by nodes)."""
    if request.die is not None and request.die.node in decode:
        return True
    instance = request.instance if request.state in (PREFILLING, TRANSFERRING) else None
    return instance is not None and instance.nodes in prefill


def tpot_s(pool: DecodePool, die: DecodeDie, tokens: int, without: Sequence[InferenceRequest] = ()) -> float:
    """Time per token, in seconds, if everything with a place were decoding, and a request of that many tokens on `die`
    in place of that die's requests in `without`."""
    fullest, longest = _max_reserved(pool)
    batch, together = _reserved_with(die, tokens, without)
    return pool.timing.step_s(max(fullest, batch), max(longest, together)) / pool.timing.tokens_per_step


def keeps_tpot_target(
    target_s: float, pool: DecodePool, die: DecodeDie, tokens: int, without: Sequence[InferenceRequest] = ()
) -> bool:
    """Whether the batch may take one more request, given a target for time per token.

    It may if the target is met with it. If the target is missed anyway, after a loss, it may if it makes no step longer
    and its die either would meet the target by itself, so that the batch shrinks towards the target, or is empty. The
    first request of a pool always may: it could not be served faster.
    """
    fullest, longest = _max_reserved(pool)
    if not fullest or tpot_s(pool, die, tokens, without) <= target_s:
        return True
    batch, together = _reserved_with(die, tokens, without)
    if batch > fullest or together > longest:
        return False
    return batch == 1 or pool.timing.step_s(batch, together) <= target_s * pool.timing.tokens_per_step


def _max_reserved(pool: DecodePool) -> tuple[int, int]:
    """The most requests, and the most tokens, reserved on one die."""
    return max(map(RESERVED, pool.dies)), max(map(RESERVED_TOKENS, pool.dies))


def _reserved_with(die: DecodeDie, tokens: int, without: Sequence[InferenceRequest]) -> tuple[int, int]:
    """Requests and tokens of a die with one more request of that many tokens, and without those in `without`."""
    preempted_tokens = sum(each.reserved for each in without)
    return die.reserved + 1 - len(without), die.reserved_tokens + tokens - preempted_tokens


def choose_overflow(
    placed: Iterable[InferenceRequest], leaving: Iterable[InferenceRequest], kv_max: int
) -> list[InferenceRequest]:
    """The requests that have to leave dies which hold at most `kv_max` tokens from now on, beside those `leaving`
    anyway: the latest on each die."""
    excluded = set(leaving)
    staying: dict[DecodeDie, list[InferenceRequest]] = {}
    for request in placed:
        if request.die is not None and request not in excluded:
            staying.setdefault(request.die, []).append(request)
    chosen = []
    for on_die in staying.values():
        excess = sum(each.reserved for each in on_die) - kv_max
        for request in sorted(on_die, key=lambda each: each.queue_key, reverse=True):
            if excess <= 0:
                break
            excess -= request.reserved
            chosen.append(request)
    return chosen


def choose_preempted(
    lower_priority: Iterable[InferenceRequest],
    dies: Iterable[DecodeDie],
    tokens: int,
    batch_max: int,
    kv_max: int,
    meets_target: Callable[[DecodeDie, int, Sequence[InferenceRequest]], bool],
) -> tuple[DecodeDie, list[InferenceRequest]] | None:
    """The die that is first to have room for a request of that many tokens as requests of lower priority
    (`lower_priority`) are preempted one by one, and the requests preempted there; None if there is no room even without
    all of them."""
    open_dies = set(dies)
    preempted_by_die: dict[DecodeDie, list[InferenceRequest]] = {}
    for request in sorted(lower_priority, key=lambda each: each.queue_key, reverse=True):
        die = request.die
        if die is None or die not in open_dies:
            continue
        preempted = preempted_by_die.setdefault(die, [])
        preempted.append(request)
        left = die.reserved_tokens - sum(each.reserved for each in preempted)
        if (
            left + tokens <= kv_max
            and die.reserved - len(preempted) < batch_max
            and meets_target(die, tokens, preempted)
        ):
            return die, preempted
    return None
