"""Picks the decode die and the prefill instance of a request.

Decode room comes first, as in the paper: KV memory is set aside before a prefill instance is asked. Among the dies with
room the one with the fewest tokens set aside is taken, since all dies step together and the fullest sets the pace.
Among the instances the one with the least work waiting, unless one of them still owes a block that the prompt reuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from infer_workload.ems.context_cache import STORED, Match

if TYPE_CHECKING:
    from infer_workload.engine.decode_pool import DecodeDie
    from infer_workload.engine.prefill_instance import PrefillInstance


def choose_die(dies: Iterable[DecodeDie], tokens: int, batch_max: int, kv_max: int) -> DecodeDie | None:
    """The emptiest die with room for that many tokens, or None."""
    best: DecodeDie | None = None
    least = kv_max - tokens + 1
    for die in dies:
        if die.reserved_tokens < least and die.reserved < batch_max:
            best, least = die, die.reserved_tokens
            if least == 0:
                break
    return best


def choose_instance(instances: Sequence[PrefillInstance], match: Match) -> PrefillInstance:
    """The instance that owes a block of the match, else the least busy one. There is at least one."""
    if match.maker != STORED:
        for instance in instances:
            if instance.number == match.maker:
                return instance
    return min(instances, key=lambda instance: (instance.backlog_tokens, instance.number))
