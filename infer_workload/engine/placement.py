"""Placement of requests: the dies and prefill instances open to them, and the places taken on dies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from infer_workload.engine.decode_pool import DecodePool
from infer_workload.engine.prefill_instance import PrefillInstance
from infer_workload.engine.prefill_pool import PrefillPool
from infer_workload.engine.request import DecodeDie, InferenceRequest
from infer_workload.engine.scheduler import choose_die, choose_overflow, choose_preempted, keeps_tpot_target, occupies
from infer_workload.layout.deployment import Deployment, Pools, kv_tokens_per_die


class Placement:
    """The places of one deployment's requests (`in_flight`)."""

    def __init__(
        self,
        deployment: Deployment,
        prefill: PrefillPool,
        pool: DecodePool,
        in_flight: Mapping[int, InferenceRequest],
    ) -> None:
        self.deployment = deployment
        self._prefill = prefill
        self._pool = pool
        self._in_flight = in_flight
        self.placed: dict[int, int] = {}
        """Requests that have a place on a die, by priority."""
        self._cordoned: tuple[frozenset[str], frozenset[tuple[str, ...]]] = (frozenset(), frozenset())
        """Decode nodes, and prefill instances by their nodes, on which nothing new begins."""
        self._future_kv_tokens: float = inf
        """Tokens that will fit on a die once those are gone."""

    def find_place(self, priority: int, tokens: int) -> tuple[DecodeDie, list[InferenceRequest]] | None:
        """The die for a request of that priority and size, and the requests of lower priority to preempt there; None
        if there is no place. If dies are about to have less memory, a request that fits the smaller size keeps within
        it; one that would not is served while there is more."""
        limit, room = self.deployment.batch_per_die, self.deployment.kv_tokens_per_die
        if tokens <= self._future_kv_tokens < room:
            room = int(self._future_kv_tokens)
        dies, _ = self.schedulable()
        die = choose_die(dies, tokens, limit, room)
        if die is not None and self._meets_target(die, tokens):
            return die, []
        if not self.placed or max(self.placed) <= priority:
            return None
        lower_priority = [
            each for each in self._in_flight.values() if each.die is not None and each.priority > priority
        ]
        return choose_preempted(lower_priority, dies, tokens, limit, room, self._meets_target)

    def _meets_target(self, die: DecodeDie, tokens: int, without: Sequence[InferenceRequest] = ()) -> bool:
        """Whether a request of that many tokens more keeps the target for time per token."""
        target_s = self.deployment.tpot_target_s
        return target_s is None or keeps_tpot_target(target_s, self._pool, die, tokens, without)

    def reserve(self, request: InferenceRequest, die: DecodeDie, tokens: int) -> None:
        die.reserved += 1
        die.reserved_tokens += tokens
        request.die = die
        request.reserved = tokens
        self.placed[request.priority] = self.placed.get(request.priority, 0) + 1

    def release(self, request: InferenceRequest) -> None:
        if request.die is None:
            return
        request.die.reserved -= 1
        request.die.reserved_tokens -= request.reserved
        request.die = None
        if self.placed[request.priority] == 1:
            del self.placed[request.priority]
        else:
            self.placed[request.priority] -= 1

    # Open and closed places.

    def schedulable(self) -> tuple[list[DecodeDie], list[PrefillInstance]]:
        """The dies and prefill instances on which new work may begin."""
        decode, prefill = self._cordoned
        dies, instances = self._pool.dies, self._prefill.instances
        if decode:
            dies = [die for die in dies if die.node not in decode]
        if prefill:
            instances = [each for each in instances if each.nodes not in prefill]
        return dies, instances

    def cordon_outside(self, target: Pools | None) -> None:
        """Begin nothing more on decode nodes and prefill instances outside `target`, nor in memory that the dies of
        fewer decode nodes will need for experts; None opens everything."""
        pools = self.deployment.pools
        self._cordoned, self._future_kv_tokens = pools.outside(target or pools), self._kv_tokens_after(target)

    def count_on_cordoned(self, target: Pools | None = None) -> int:
        """The number of requests that still need what is closed, or what would be closed for that target."""
        decode, prefill = self._cordoned if target is None else self.deployment.pools.outside(target)
        room = self._future_kv_tokens if target is None else self._kv_tokens_after(target)
        leaving = [each for each in self._in_flight.values() if occupies(each, decode, prefill)]
        if room >= self.deployment.kv_tokens_per_die:
            return len(leaving)
        return len(leaving) + len(choose_overflow(self._in_flight.values(), leaving, int(room)))

    def _kv_tokens_after(self, target: Pools | None) -> float:
        if target is None or not target.decode:
            return inf
        return kv_tokens_per_die(self.deployment.model, self.deployment.calibration, len(target.decode))
