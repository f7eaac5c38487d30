"""The engine: carries requests through prefill, cache and decode in emulated time.

It is a discrete-event simulation without a clock of its own: `submit` adds a request, `advance(until)` processes
everything up to that moment, `next_event_at` is the time of the next event. An experiment calls them with the times of
a trace, the service with the scaled wall clock; nothing else differs. Nothing sleeps and all randomness is seeded: the
same seed and the same calls give the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from random import Random

from infer_workload.engine.cache_placement import adapt_cache, drop_orphaned_blocks, set_granted_memory
from infer_workload.engine.data_movement import new_dies, port_gbps, transfer_start_s
from infer_workload.engine.decode_pool import DecodePool
from infer_workload.engine.event_queue import EventQueue
from infer_workload.engine.kv_transfers import Transfers
from infer_workload.engine.placement import Placement
from infer_workload.engine.prefill_instance import PrefillInstance
from infer_workload.engine.prefill_pool import PrefillPool
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
from infer_workload.engine.scheduler import choose_instance, choose_overflow
from infer_workload.engine.waiting_queue import WaitingQueue
from infer_workload.layout.deployment import Deployment, Pools
from infer_workload.timing.fabric import Contention


class Engine:
    """Serves one deployment. `finished(request)` is called for each request that has its last token, and
    `given_up(request, tokens)` for each that ends before, with the tokens generated so far.

    `emitted(start_s, end_s, tokens)` is called with tokens as they are generated, for throughput over time, and
    `arrived(at, tokens)` with each prompt accepted.
    """

    def __init__(
        self,
        deployment: Deployment,
        seed: int = 0,
        now: float = 0.0,
        on_finished: Callable[[InferenceRequest], None] | None = None,
        on_tokens: Callable[[float, float, float], None] | None = None,
        on_arrival: Callable[[float, int], None] | None = None,
        on_aborted: Callable[[InferenceRequest, int], None] | None = None,
    ) -> None:
        self.deployment = deployment
        self.now = now
        self.waiting = WaitingQueue()
        self.in_flight: dict[int, InferenceRequest] = {}
        self.preemptions = 0
        """Number of times that a request was requeued, by a loss or for one of higher priority."""
        self.dropped = 0  # requests that no longer fit a die after a change of layout
        self.transferred_bytes = 0.0
        """KV sent to decode dies since the start."""
        self.cache = deployment.context_cache()
        self._on_finished = on_finished or (lambda request: None)
        self._on_tokens = on_tokens or (lambda start, end, tokens: None)
        self._on_arrival = on_arrival or (lambda at, tokens: None)
        self._on_aborted = on_aborted or (lambda request, tokens: None)
        self._events = EventQueue()
        self.transfers = Transfers(lambda port: port_gbps(self.deployment, port))
        self.prefill = PrefillPool(deployment, self.cache, now, self._events, self._prefilled, self._assign)
        self.pool = DecodePool(
            deployment.decode_timing(), new_dies(deployment, deployment.pools.decode), Random(seed), self._on_tokens
        )
        self.placement = Placement(deployment, self.prefill, self.pool, self.in_flight)

    # Methods for callers.

    def submit(self, request: InferenceRequest) -> None:
        """Accept a request now. Raises ContextTooLong if it does not fit any die."""
        total = request.input_tokens + request.output_tokens
        if total > self.deployment.context_length:
            raise ContextTooLong(total, self.deployment.context_length)
        self.in_flight[request.number] = request
        self.waiting.push(request)
        self._on_arrival(self.now, request.input_tokens)
        self._assign()

    def cancel(self, request: InferenceRequest) -> None:
        """Cancel a request whose client disconnected, and free what it holds. Does nothing if it is done."""
        if not request.done:
            self._detach([request])
            request.move(CANCELLED)
            self._abort(request)
            self._assign()

    def next_event_at(self) -> float:
        """When the next event is due if nothing is submitted; infinity if there is none."""
        at, moved, planned = self.pool.due, self.transfers.due, self._events.due
        if moved < at:  # faster than min(), as this runs at every event
            at = moved
        return planned if planned < at else at

    def advance(self, until: float) -> None:
        """Process all events up to and including that moment."""
        while (at := self.next_event_at()) <= until and at < inf:
            self.now = max(self.now, at)
            if self.pool.due <= at:
                for request in self.pool.run(self.now):
                    self._finish(request)
                self._assign()
            elif self.transfers.due <= at:
                joins_at = self.now + transfer_start_s(self.deployment)
                for transfer in self.transfers.pop_finished(self.now):
                    self._events.schedule(joins_at, self._transferred, transfer.request, transfer.attempt)
            else:
                self._events.run(self.now)
        if until < inf:
            self.now = max(self.now, until)

    def sync_counters(self) -> None:
        """Bring counters up to date between events."""
        self.pool.sync_counters(self.now)

    @property
    def queued(self) -> int:
        """The number of requests that no prefill instance has begun."""
        begun = (request.state == PREFILLING and request.prefill_started_at < 0 for request in self.in_flight.values())
        return len(self.waiting) + sum(begun)

    def tokens_of(self, request: InferenceRequest) -> int:
        """Tokens of the answer generated by now."""
        return self.pool.tokens_of(request, self.now)

    def tokens_in_flight(self) -> tuple[int, int]:
        """Over requests in flight: tokens of prompts that have been prefilled, and tokens generated."""
        begun = [(each, tokens) for each in self.in_flight.values() if (tokens := self.tokens_of(each))]
        return sum(each.input_tokens for each, _ in begun), sum(tokens for _, tokens in begun)

    def cordon_outside(self, target: Pools | None) -> int:
        """Begin nothing more on decode nodes and prefill instances that are not in `target`; None opens all. Return how
        many requests still need what is closed."""
        self.placement.cordon_outside(target)
        self._assign()
        return self.placement.count_on_cordoned()

    def adopt(self, deployment: Deployment) -> None:
        """Use this deployment's spec and fabric from now on; pools change only with `apply_layout`."""
        self.deployment = deployment
        self.placement.deployment = deployment
        self.prefill.deployment = deployment

    def set_granted_memory(self, granted_bytes: Mapping[str, float] | None) -> None:
        """Set the bytes on each node that the context cache may use; None: as the layout says."""
        set_granted_memory(self.cache, self.deployment, granted_bytes)
        self.prefill.refresh_cached()

    def apply_contention(self, contention: Contention, now: float) -> None:
        """Apply new contention on the same nodes: steps, chunks and transfers take other times from now on."""
        self.advance(now)
        self.pool.sync_counters(self.now)
        self.adopt(replace(self.deployment, fabric=self.deployment.fabric.with_contention(contention)))
        self.prefill.update_timing(self.deployment, self.now)
        self.transfers.update_rates(self.now)
        self.pool.rebuild(self.deployment.decode_timing(), self.pool.dies, self.now)

    def apply_layout(self, deployment: Deployment, pause_s: float, start_s: float) -> int:
        """Switch to another layout: decode pauses for `pause_s`, new prefill instances start after `start_s`.

        Requests on dies or instances that are gone are requeued, with their generated tokens as part of their prompt,
        and so are the latest on dies whose memory has become too small. Waiting requests that no longer fit any die are
        dropped. Return how many were requeued.
        """
        self.pool.sync_counters(self.now)
        self.adopt(deployment)
        self.placement.cordon_outside(None)
        removed_instances = self.prefill.instances_outside(deployment.pools)
        lost = self._requests_on_removed(deployment.pools, removed_instances)
        lost += choose_overflow(self.in_flight.values(), lost, deployment.kv_tokens_per_die)
        self._requeue(lost)
        for instance in removed_instances:
            self.cache.drop_producer(instance.number)
        self.cache = adapt_cache(self.cache, deployment)
        self.prefill.rebuild(deployment, self.cache, self.now, start_s)
        self.transfers.update_rates(self.now)
        self._rebuild_decode(deployment)
        if pause_s > 0:
            self.pool.pause(self.now + pause_s)
        self._drop_too_long()
        self._assign()
        return len(lost)

    def _requests_on_removed(
        self, pools: Pools, removed_instances: Sequence[PrefillInstance]
    ) -> list[InferenceRequest]:
        """Requests on dies outside those pools, or on prefill instances that are gone."""
        decode = set(pools.decode)
        return [
            request
            for request in self.in_flight.values()
            if (request.die is not None and request.die.node not in decode)
            or (request.state in (PREFILLING, TRANSFERRING) and request.instance in removed_instances)
        ]

    def _rebuild_decode(self, deployment: Deployment) -> None:
        decode = deployment.pools.decode
        surviving = [die for die in self.pool.dies if die.node in decode]
        known = {die.node for die in surviving}
        added = new_dies(deployment, [node for node in decode if node not in known])
        self.pool.rebuild(deployment.decode_timing(), surviving + added, self.now)

    def _drop_too_long(self) -> None:
        limit = self.deployment.context_length
        for request in [each for each in self.waiting if each.input_tokens + each.output_tokens > limit]:
            self.waiting.remove(request)
            self._abort(request)
            self.dropped += 1

    def abort_all(self) -> int:
        """Cut off all requests, as there is nothing left to serve on. Return how many there were."""
        aborted = list(self.in_flight.values())
        for request in aborted:
            self._abort(request)
        return len(aborted)

    def _abort(self, request: InferenceRequest) -> None:
        """Forget a request that ends before its last token."""
        del self.in_flight[request.number]
        self._on_aborted(request, self.tokens_of(request))

    # The path of a request.

    def _assign(self) -> None:
        """Assign waiting requests to a die and a prefill instance, in order, as long as there is room."""
        if not self.waiting:
            return
        _, instances = self.placement.schedulable()
        while self.waiting and instances:
            request = self.waiting.first
            tokens = request.input_tokens + request.output_tokens
            place = self.placement.find_place(request.priority, tokens)
            if place is None:
                return
            die, preempted = place
            self._requeue(preempted)
            self.waiting.pop()
            self.placement.reserve(request, die, tokens)
            match = self.cache.match(request.blocks, request.prompt)
            instance = choose_instance(instances, match, request.priority)
            self.cache.add_in_flight(request.blocks, instance.number, request.project)
            request.instance = instance
            request.matched, request.cached_ssd = match.tokens, match.ssd_tokens
            request.cached = request.prefilled = min(match.tokens, request.prompt - 1)
            if request.attempts == 1:
                request.cached_first = match.tokens
            request.move(PREFILLING)
            self.prefill.enqueue(request, instance, self.now)

    def _prefilled(self, now: float, request: InferenceRequest, instance: PrefillInstance) -> None:
        """The prompt is prefilled, which yields a token: transfer its KV for decoding, if more tokens are due."""
        self.cache.store(request.blocks, instance.number)
        request.generated += 1
        if request.first_token_at < 0:
            request.first_token_at = now
        self._on_tokens(now, now, 1)
        if request.generated >= request.output_tokens:
            self._finish(request)
            return
        request.move(TRANSFERRING)
        assert request.die is not None
        size = request.prompt * self.deployment.model.kv_bytes_per_token
        self.transferred_bytes += size
        self.transfers.start(now, request, (instance, request.die), size)

    def _transferred(self, now: float, request: InferenceRequest, attempt: int) -> None:
        if request.attempts == attempt and request.state == TRANSFERRING:
            self.pool.join(request, now)

    def _finish(self, request: InferenceRequest) -> None:
        request.generated = request.output_tokens
        request.finished_at = self.now
        request.move(FINISHED)
        self.placement.release(request)
        self.in_flight.pop(request.number, None)
        self._on_finished(request)

    # Requeueing.

    def _requeue(self, requests: list[InferenceRequest]) -> None:
        """Requeue requests, to be placed and prefilled again."""
        if not requests:
            return
        self._detach(requests)
        for request in requests:
            request.move(WAITING)
            request.attempts += 1
            self.waiting.push(request)
        self.preemptions += len(requests)

    def _detach(self, requests: list[InferenceRequest]) -> None:
        """Take requests off their dies and instances; their generated tokens become part of their prompt."""
        self.pool.sync_counters(self.now)
        withdrawn: dict[Prefiller, set[int]] = {}
        for request in requests:
            if request.state == DECODING:
                request.generated = max(request.generated, min(self.tokens_of(request), request.output_tokens - 1))
            if request.state == WAITING:
                self.waiting.remove(request)
            if request.state == PREFILLING and request.instance is not None:
                request.instance.backlog_tokens -= request.prompt - request.prefilled
                withdrawn.setdefault(request.instance, set()).update(request.blocks)
                request.instance = None
        drop_orphaned_blocks(self.cache, withdrawn)
        self.pool.remove(requests, self.now)
        self.transfers.drop(self.now, requests)
        for request in requests:
            self.placement.release(request)
            request.prompt = request.input_tokens + request.generated
            request.instance = None
            request.cached = 0
            request.prefilled = 0
