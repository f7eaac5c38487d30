"""The engine: carries requests through prefill, cache and decode in the time it is given.

It is a discrete-event machine without a clock of its own: `submit` puts a request in, `advance(until)` plays everything
that happens up to that moment, `next_at` says when there is something to do. An experiment calls them with the times of
a trace, the service with the scaled wall clock; nothing else differs. Nothing here sleeps or draws from hidden chance:
the same seed and the same calls give the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from math import inf
from random import Random

from infer_workload.engine.cache_placement import adapted_cache, forget_owed
from infer_workload.engine.decode_pool import DecodeDie, DecodePool
from infer_workload.engine.kv_transfers import Transfers
from infer_workload.engine.moving import fetch_s, new_dies, port_gbps, transfer_start_s
from infer_workload.engine.prefill_instance import PrefillInstance
from infer_workload.engine.request import (
    CANCELLED,
    DECODING,
    FINISHED,
    PREFILLING,
    TRANSFERRING,
    WAITING,
    ContextTooLong,
    InferenceRequest,
    Prefiller,
)
from infer_workload.engine.scheduler import choose_die, choose_instance, choose_preempted, keeps, needs
from infer_workload.engine.waiting_queue import WaitingQueue
from infer_workload.layout.deployment import Deployment, Pools
from infer_workload.timing.fabric import Contention
from matrixcommon.model.hardware_names import NPUS_PER_NODE

Event = tuple[float, int, Callable[..., None], tuple[object, ...]]


class Engine:
    """Serves one deployment. `finished(request)` is called for each request when its last token is there.

    `emitted(start_s, end_s, tokens)` hears of decode tokens as they come, for a view of throughput over time, and
    `arrived(at, tokens)` of each prompt that is taken.
    """

    def __init__(
        self,
        deployment: Deployment,
        seed: int = 0,
        now: float = 0.0,
        finished: Callable[[InferenceRequest], None] | None = None,
        emitted: Callable[[float, float, float], None] | None = None,
        arrived: Callable[[float, int], None] | None = None,
    ) -> None:
        self.deployment = deployment
        self.now = now
        self.waiting = WaitingQueue()
        self.in_flight: dict[int, InferenceRequest] = {}
        self.preemptions = 0
        """Times that a request was sent back, by a loss or for one of an earlier priority."""
        self.dropped = 0  # requests that no die could hold any more after a change of the layout
        self._placed: dict[int, int] = {}
        """Requests that have a place on a die, by priority."""
        self.transferred_bytes = self.fetched_bytes = 0.0
        """KV sent to decode dies, and blocks read out of the caching pool, ever since."""
        self._closing: tuple[frozenset[str], frozenset[tuple[str, ...]]] = (frozenset(), frozenset())
        self.cache = deployment.context_cache()
        self._finished = finished or (lambda request: None)
        self._emitted = emitted or (lambda start, end, tokens: None)
        self._arrived = arrived or (lambda at, tokens: None)
        self._events: list[Event] = []
        self._sequence = self._instances_made = 0
        self.transfers = Transfers(lambda port: port_gbps(self.deployment, port))
        self.instances = [self._new_instance(nodes, now) for nodes in deployment.pools.prefill]
        self.pool = DecodePool(
            deployment.decode_timing(), new_dies(deployment, deployment.pools.decode), Random(seed), self._emitted
        )
        self._time_instances()

    # What a caller does.

    def submit(self, request: InferenceRequest) -> None:
        """Take a request at the present moment. Raises ContextTooLong when no die could ever hold it."""
        total = request.input_tokens + request.output_tokens
        if total > self.deployment.context_length:
            raise ContextTooLong(total, self.deployment.context_length)
        self.in_flight[request.number] = request
        self.waiting.push(request)
        self._arrived(self.now, request.input_tokens)
        self._assign()

    def cancel(self, request: InferenceRequest) -> None:
        """The client went away: free what the request holds. A finished one is left alone."""
        if not request.done:
            self._withdraw([request])
            request.move(CANCELLED)
            self.in_flight.pop(request.number, None)
            self._assign()

    def next_at(self) -> float:
        """When something happens next if nothing is submitted; infinity when all is quiet."""
        at, moved = self.pool.due, self.transfers.due
        if moved < at:
            at = moved
        return self._events[0][0] if self._events and self._events[0][0] < at else at

    def advance(self, until: float) -> None:
        """Play everything up to and including that moment."""
        while (at := self.next_at()) <= until and at < inf:
            self.now = max(self.now, at)
            if self.pool.due <= at:
                for request in self.pool.run(self.now):
                    self._finish(request)
                self._assign()
            elif self.transfers.due <= at:
                for transfer in self.transfers.finish(self.now):
                    self._at(
                        self.now + transfer_start_s(self.deployment), self._transferred, transfer.request, transfer.life
                    )
            else:
                _, _, action, arguments = heappop(self._events)
                action(*arguments)
        if until < inf:
            self.now = max(self.now, until)

    def settle(self) -> None:
        """Bring counters up to the present moment, between events."""
        self.pool.settle(self.now)

    @property
    def queued(self) -> int:
        """Requests that no instance has begun to work on."""
        begun = (request.state == PREFILLING and request.prefill_started_at < 0 for request in self.in_flight.values())
        return len(self.waiting) + sum(begun)

    def tokens_of(self, request: InferenceRequest) -> int:
        """Tokens of the answer that exist at the present moment."""
        return self.pool.tokens_of(request, self.now)

    def close(self, target: Pools | None) -> int:
        """Begin nothing on decode nodes and prefill instances that are not in `target`; None opens all of them.
        Returns how many requests still need what is closed."""
        self._closing = (pools := self.deployment.pools).beyond(target or pools)
        self._assign()
        return self.on_closing()

    def on_closing(self, target: Pools | None = None) -> int:
        """Requests that still need what is closed, or what were closed for that target."""
        decode, prefill = self._closing if target is None else self.deployment.pools.beyond(target)
        return sum(needs(request, decode, prefill) for request in self.in_flight.values())

    def retime(self, contention: Contention, now: float) -> None:
        """The same nodes beside other traffic from now on: the next steps, chunks and transfers take the time that
        says."""
        self.advance(now)
        self.pool.settle(self.now)
        self.deployment = replace(self.deployment, fabric=self.deployment.fabric.beside(contention))
        self._time_instances()
        self.transfers.reprice(self.now)
        self.pool.rebuild(self.deployment.decode_timing(), self.pool.dies, self.now)

    def apply_layout(self, deployment: Deployment, pause_s: float, start_s: float) -> int:
        """Go on with another layout: decode pauses, new prefill instances start after `start_s`.

        Requests on dies or instances that are gone go back to the queue with what they had generated as part of their
        prompt; those that wait and that no die can hold any more are dropped. Returns how many were sent back.
        """
        self.pool.settle(self.now)
        self.deployment = deployment
        self._closing = (frozenset(), frozenset())
        pools = deployment.pools
        kept = [instance for instance in self.instances if instance.nodes in pools.prefill]
        gone = [instance for instance in self.instances if instance not in kept]
        current = {instance.nodes for instance in kept}
        added = [self._new_instance(nodes, self.now + start_s) for nodes in pools.prefill if nodes not in current]
        decode = set(pools.decode)
        surviving = [die for die in self.pool.dies if die.node in decode]
        known = {die.node for die in surviving}
        lost = [
            request
            for request in self.in_flight.values()
            if (request.die is not None and request.die.node not in decode)
            or (request.state in (PREFILLING, TRANSFERRING) and request.instance in gone)
        ]
        self._send_back(lost)
        for instance in gone:
            self.cache.break_promises(instance.number)
        self.cache = adapted_cache(self.cache, deployment)
        self.instances = sorted(kept + added, key=lambda instance: pools.prefill.index(instance.nodes))
        self._time_instances()
        self.transfers.reprice(self.now)
        self.pool.rebuild(
            deployment.decode_timing(),
            surviving + new_dies(deployment, [node for node in pools.decode if node not in known]),
            self.now,
        )
        if pause_s > 0:
            self.pool.pause(self.now + pause_s)
        self._drop_too_long()
        self._assign()
        return len(lost)

    def _drop_too_long(self) -> None:
        limit = self.deployment.context_length
        for request in [each for each in self.waiting if each.input_tokens + each.output_tokens > limit]:
            self.waiting.remove(request)
            del self.in_flight[request.number]
            self.dropped += 1

    # How a request goes through.

    def _assign(self) -> None:
        """From the queue to a die and an instance, in order, as long as there is room."""
        if not self.waiting:
            return
        _, instances = self.open_places()
        while self.waiting and instances:
            request = self.waiting.first
            tokens = request.input_tokens + request.output_tokens
            place = self.place_for(request.priority, tokens)
            if place is None:
                return
            die, preempted = place
            self._send_back(preempted)
            self.waiting.pop()
            die.reserved += 1
            die.reserved_tokens += tokens
            request.die, request.reserved = die, tokens
            self._placed[request.priority] = self._placed.get(request.priority, 0) + 1
            match = self.cache.match(request.blocks, request.prompt)
            instance = choose_instance(instances, match, request.priority)
            self.cache.promise(request.blocks, instance.number, request.project)
            request.instance, request.cached_ssd = instance, match.ssd_tokens
            request.cached = request.prefilled = min(match.tokens, request.prompt - 1)
            if request.attempts == 1:
                request.cached_first = match.tokens
            request.move(PREFILLING)
            instance.enqueue(request, self.cache.block_tokens)
            instance.backlog_tokens += request.prompt - request.cached
            if not instance.chunk:
                self._start_chunk(instance)

    def place_for(self, priority: int, tokens: int) -> tuple[DecodeDie, list[InferenceRequest]] | None:
        """The die for a request of that priority and so many tokens, and whoever of later priorities has to make room
        on it; None where there is none."""
        limit, room = self.deployment.batch_per_die, self.deployment.kv_tokens_per_die
        dies, _ = self.open_places()
        die = choose_die(dies, tokens, limit, room)
        if die is not None and self._in_time(die, tokens):
            return die, []
        if not self._placed or max(self._placed) <= priority:
            return None
        later = [each for each in self.in_flight.values() if each.die is not None and each.priority > priority]
        return choose_preempted(later, dies, tokens, limit, room, self._in_time)

    def _in_time(self, die: DecodeDie, tokens: int, without: Sequence[InferenceRequest] = ()) -> bool:
        """Whether the batch may have a request of so many tokens more, by the target for the time of a token."""
        target_s = self.deployment.tpot_target_s
        return target_s is None or keeps(target_s, self.pool, die, tokens, without)

    def open_places(self) -> tuple[list[DecodeDie], list[PrefillInstance]]:
        """Where something new may begin."""
        decode, prefill = self._closing
        dies = [die for die in self.pool.dies if die.node not in decode] if decode else self.pool.dies
        return dies, [each for each in self.instances if each.nodes not in prefill] if prefill else self.instances

    def _start_chunk(self, instance: PrefillInstance) -> None:
        """Work on what waits, as much as a chunk takes."""
        if self.now < instance.ready_at:
            self._at(instance.ready_at, self._wake, instance)
            return
        fetched, _ = instance.fill(self.now, self.cache.block_tokens)
        if not instance.chunk:
            return
        self.fetched_bytes += fetched * self.deployment.model.kv_bytes_per_token
        self._pace(instance)

    def _pace(self, instance: PrefillInstance) -> None:
        """Have the chunk end when it is through at the pace of now."""
        parts, fetched, blocks = instance.work
        whole_s = instance.timing.chunk_s(parts) + fetch_s(self.deployment, self.cache.nodes, instance, fetched, blocks)
        end_at = instance.pace(self.now, whole_s)
        if end_at is not None:
            self._at(end_at, self._end_chunk, instance, instance.chunk_number)

    def _wake(self, instance: PrefillInstance) -> None:
        if instance in self.instances and not instance.chunk and self.now >= instance.ready_at:
            self._start_chunk(instance)

    def _end_chunk(self, instance: PrefillInstance, number: int) -> None:
        if instance not in self.instances or instance.chunk_number != number:
            return
        chunk, instance.chunk = instance.chunk, []
        unfinished = []
        for request, life, take in chunk:
            if not instance.holds(request, life):
                continue
            instance.backlog_tokens -= take
            instance.prefilled_tokens += take
            request.prefilled += take
            if request.prefilled < request.prompt:
                unfinished.append((request, life))
            else:
                self._prefilled(request, instance)
        instance.queue.extendleft(reversed(unfinished))
        self._assign()
        if not instance.chunk:
            self._start_chunk(instance)

    def _prefilled(self, request: InferenceRequest, instance: PrefillInstance) -> None:
        """The prompt is in KV: the next token is there, and the rest is decode's."""
        self.cache.keep(request.blocks, instance.number)
        request.generated += 1
        if request.first_token_at < 0:
            request.first_token_at = self.now
        self._emitted(self.now, self.now, 1)
        if request.generated >= request.output_tokens:
            self._finish(request)
            return
        request.move(TRANSFERRING)
        assert request.die is not None
        size = request.prompt * self.deployment.model.kv_bytes_per_token
        self.transferred_bytes += size
        self.transfers.start(self.now, request, (instance, request.die), size)

    def _transferred(self, request: InferenceRequest, life: int) -> None:
        if request.attempts == life and request.state == TRANSFERRING:
            self.pool.join(request, self.now)

    def _finish(self, request: InferenceRequest) -> None:
        request.generated = request.output_tokens
        request.finished_at = self.now
        request.move(FINISHED)
        self._free(request)
        self.in_flight.pop(request.number, None)
        self._finished(request)

    # Small helpers.

    def _send_back(self, requests: list[InferenceRequest]) -> None:
        """Have requests wait again, for all that they need."""
        if not requests:
            return
        self._withdraw(requests)
        for request in requests:
            request.move(WAITING)
            request.attempts += 1
            self.waiting.push(request)
        self.preemptions += len(requests)

    def _withdraw(self, requests: list[InferenceRequest]) -> None:
        """Take requests off their dies and instances; what they generated stays theirs and joins their prompt."""
        self.pool.settle(self.now)
        left: dict[Prefiller, set[int]] = {}
        for request in requests:
            if request.state == DECODING:
                request.generated = max(request.generated, min(self.tokens_of(request), request.output_tokens - 1))
            if request.state == WAITING:
                self.waiting.remove(request)
            if request.state == PREFILLING and request.instance is not None:
                request.instance.backlog_tokens -= request.prompt - request.prefilled
                left.setdefault(request.instance, set()).update(request.blocks)
                request.instance = None
        forget_owed(self.cache, left)
        self.pool.remove(requests, self.now)
        self.transfers.drop(self.now, requests)
        for request in requests:
            self._free(request)
            request.prompt = request.input_tokens + request.generated
            request.instance, request.cached, request.prefilled = None, 0, 0

    def _free(self, request: InferenceRequest) -> None:
        if request.die is not None:
            request.die.reserved -= 1
            request.die.reserved_tokens -= request.reserved
            request.die = None
            if self._placed[request.priority] == 1:
                del self._placed[request.priority]
            else:
                self._placed[request.priority] -= 1

    def _new_instance(self, nodes: tuple[str, ...], ready_at: float) -> PrefillInstance:
        self._instances_made += 1
        budget = self.deployment.calibration.prefill_tokens_per_npu * NPUS_PER_NODE * len(nodes)
        timing = self.deployment.prefill_timing(self.deployment.pools.prefill.index(nodes))
        return PrefillInstance(self._instances_made, nodes, timing, budget, ready_at)

    def _time_instances(self) -> None:
        for at, instance in enumerate(self.instances):
            instance.timing = self.deployment.prefill_timing(at)
            if instance.chunk:
                self._pace(instance)

    def _at(self, moment: float, action: Callable[..., None], *arguments: object) -> None:
        if moment < inf:
            self._sequence += 1
            heappush(self._events, (moment, self._sequence, action, arguments))
