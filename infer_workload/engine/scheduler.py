"""Picks the decode die and the prefill instance of a request.

Decode room comes first, as in the paper: KV memory is set aside before a prefill instance is asked. Among the dies with
room the one with the fewest tokens set aside is taken, since all dies step together and the fullest sets the pace.
Among the instances the one with the least work waiting, unless one of them still owes a block that the prompt reuses.

With a target for the time of a token the batch adapts (`keeps`): room is only where the step would still be in time
when all that has a place is decoded at its final length. A request for which there is none takes that of others with a
later priority: the latest priority first, and of those who came last, as vLLM preempts. Where a layout on fewer dies
leaves each less memory beside its experts, who no longer fits is chosen in the same order.
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
    """The emptiest die with room for that many tokens, the first of several, or None."""
    for die in dies:  # while there is little to do, one of the first has nothing
        if not die.reserved_tokens:
            return die if tokens <= kv_max else None
    best = min(dies, key=RESERVED_TOKENS, default=None)
    if best is not None and best.reserved >= batch_max:  # many short requests
        best = min((die for die in dies if die.reserved < batch_max), key=RESERVED_TOKENS, default=None)
    return best if best is not None and best.reserved_tokens + tokens <= kv_max else None


def choose_instance(instances: Sequence[PrefillInstance], match: Match, priority: int = 0) -> PrefillInstance:
    """The instance that owes a block of the match, else the one with least before a prompt of that priority.

    There is at least one.
    """
    if match.maker != STORED:
        for instance in instances:
            if instance.number == match.maker:
                return instance
    return min(instances, key=lambda instance: (instance.tokens_before(priority), instance.number))


def needs(request: InferenceRequest, decode: frozenset[str], prefill: frozenset[tuple[str, ...]]) -> bool:
    """Whether the request still needs one of these decode nodes, or prefill instances by their nodes."""
    if request.die is not None and request.die.node in decode:
        return True
    instance = request.instance if request.state in (PREFILLING, TRANSFERRING) else None
    return instance is not None and instance.nodes in prefill


def tpot_s(pool: DecodePool, die: DecodeDie, tokens: int, without: Sequence[InferenceRequest] = ()) -> float:
    """Seconds of a token once all that has a place is decoded and a request of so many tokens besides.

    It is decoded on `die` in place of that one's requests in `without`.
    """
    fullest, longest = _most(pool)
    batch, together = _with(die, tokens, without)
    return pool.timing.step_s(max(fullest, batch), max(longest, together)) / pool.timing.tokens_per_step


def keeps(
    target_s: float, pool: DecodePool, die: DecodeDie, tokens: int, without: Sequence[InferenceRequest] = ()
) -> bool:
    """Whether the batch may have that request more with a target for the time of a token.

    It may where tokens are in time with it. Where they are late anyway, after a loss, it may as long as it makes no
    step longer and either its die by itself would be in time, so that the batch shrinks to what would be, or has
    nobody. The first request of a pool always may: it cannot be had faster.
    """
    fullest, longest = _most(pool)
    if not fullest or tpot_s(pool, die, tokens, without) <= target_s:
        return True
    batch, together = _with(die, tokens, without)
    if batch > fullest or together > longest:
        return False
    return batch == 1 or pool.timing.step_s(batch, together) <= target_s * pool.timing.tokens_per_step


def _most(pool: DecodePool) -> tuple[int, int]:
    """The most requests, and the most tokens, that have a place on one die."""
    return max(map(RESERVED, pool.dies)), max(map(RESERVED_TOKENS, pool.dies))


def _with(die: DecodeDie, tokens: int, without: Sequence[InferenceRequest]) -> tuple[int, int]:
    """Requests and tokens of a die with one of so many more."""
    leaving = sum(each.reserved for each in without)
    return die.reserved + 1 - len(without), die.reserved_tokens + tokens - leaving


def choose_beyond_room(
    placed: Iterable[InferenceRequest], leaving: Iterable[InferenceRequest], kv_max: int
) -> list[InferenceRequest]:
    """Of requests that have a place, beside those that leave anyway, who has to leave dies that hold no more than so
    many tokens from now on: the latest of each."""
    gone = set(leaving)
    staying: dict[DecodeDie, list[InferenceRequest]] = {}
    for request in placed:
        if request.die is not None and request not in gone:
            staying.setdefault(request.die, []).append(request)
    chosen = []
    for there in staying.values():
        beyond = sum(each.reserved for each in there) - kv_max
        for request in sorted(there, key=lambda each: each.turn, reverse=True):
            if beyond <= 0:
                break
            beyond -= request.reserved
            chosen.append(request)
    return chosen


def choose_preempted(
    later: Iterable[InferenceRequest],
    dies: Iterable[DecodeDie],
    tokens: int,
    batch_max: int,
    kv_max: int,
    in_time: Callable[[DecodeDie, int, Sequence[InferenceRequest]], bool],
) -> tuple[DecodeDie, list[InferenceRequest]] | None:
    """The die on which a request of so many tokens has room first when those of later priorities go one by one, and
    who of them goes from there; None where it has none without all of them."""
    open_dies = set(dies)
    going: dict[DecodeDie, list[InferenceRequest]] = {}
    for request in sorted(later, key=lambda each: each.turn, reverse=True):
        die = request.die
        if die is None or die not in open_dies:
            continue
        gone = going.setdefault(die, [])
        gone.append(request)
        left = die.reserved_tokens - sum(each.reserved for each in gone)
        if left + tokens <= kv_max and die.reserved - len(gone) < batch_max and in_time(die, tokens, gone):
            return die, gone
    return None
