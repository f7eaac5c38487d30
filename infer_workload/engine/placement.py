"""Placement of requests: the dies and prefill instances open to them, and the places taken on dies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from infer_workload.engine.decode_pool import DecodePool
from infer_workload.engine.prefill_instance import PrefillInstance
from infer_workload.engine.prefill_pool import PrefillPool
from infer_workload.engine.request import DecodeDie, InferenceRequest
from infer_workload.engine.scheduler import choose_beyond_room, choose_die, choose_preempted, keeps, needs
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
        self._closing: tuple[frozenset[str], frozenset[tuple[str, ...]]] = (frozenset(), frozenset())
        """Decode nodes, and prefill instances by their nodes, on which nothing new begins."""
        self._room: float = inf
        """Tokens that will fit on a die once those are gone."""

    def place_for(self, priority: int, tokens: int) -> tuple[DecodeDie, list[InferenceRequest]] | None:
        """The die for a request of that priority and size, and the requests of lower priority to preempt there; None
        if there is no place. If dies are about to have less memory, a request that fits the smaller size keeps within
        it; one that would not is served while there is more."""
        limit, room = self.deployment.batch_per_die, self.deployment.kv_tokens_per_die
        if tokens <= self._room < room:
            room = int(self._room)
        dies, _ = self.open_places()
        die = choose_die(dies, tokens, limit, room)
        if die is not None and self._in_time(die, tokens):
            return die, []
        if not self.placed or max(self.placed) <= priority:
            return None
        later = [each for each in self._in_flight.values() if each.die is not None and each.priority > priority]
        return choose_preempted(later, dies, tokens, limit, room, self._in_time)

    def _in_time(self, die: DecodeDie, tokens: int, without: Sequence[InferenceRequest] = ()) -> bool:
        """Whether a request of that many tokens more keeps the target for time per token."""
        target_s = self.deployment.tpot_target_s
        return target_s is None or keeps(target_s, self._pool, die, tokens, without)

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

    def open_places(self) -> tuple[list[DecodeDie], list[PrefillInstance]]:
        """The dies and prefill instances on which new work may begin."""
        decode, prefill = self._closing
        dies, instances = self._pool.dies, self._prefill.instances
        if decode:
            dies = [die for die in dies if die.node not in decode]
        if prefill:
            instances = [each for each in instances if each.nodes not in prefill]
        return dies, instances

    def close(self, target: Pools | None) -> None:
        """Begin nothing more on decode nodes and prefill instances outside `target`, nor in memory that the dies of
        fewer decode nodes will need for experts; None opens everything."""
        pools = self.deployment.pools
        self._closing, self._room = pools.beyond(target or pools), self._room_in(target)

    def on_closing(self, target: Pools | None = None) -> int:
        """The number of requests that still need what is closed, or what would be closed for that target."""
        decode, prefill = self._closing if target is None else self.deployment.pools.beyond(target)
        room = self._room if target is None else self._room_in(target)
        leaving = [each for each in self._in_flight.values() if needs(each, decode, prefill)]
        if room >= self.deployment.kv_tokens_per_die:
            return len(leaving)
        return len(leaving) + len(choose_beyond_room(self._in_flight.values(), leaving, int(room)))

    def _room_in(self, target: Pools | None) -> float:
        if target is None or not target.decode:
            return inf
        return kv_tokens_per_die(self.deployment.model, self.deployment.calibration, len(target.decode))
