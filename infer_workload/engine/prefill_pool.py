"""The prefill pool: its instances, each working on chunks at its own pace."""

from __future__ import annotations

from collections.abc import Callable

from infer_workload.ems.context_cache import ContextCache
from infer_workload.engine.data_movement import fetch_s
from infer_workload.engine.event_queue import EventQueue
from infer_workload.engine.prefill_instance import PrefillInstance
from infer_workload.engine.request import InferenceRequest
from infer_workload.layout.deployment import Deployment, Pools
from matrixcommon.model.hardware_names import NPUS_PER_NODE


class PrefillPool:
    """The prefill instances of one deployment. `on_prefilled(now, request, instance)` is called for each request whose
    prompt is prefilled, and `on_chunk_end` at each end of a chunk, before the next one begins."""

    def __init__(
        self,
        deployment: Deployment,
        cache: ContextCache,
        now: float,
        events: EventQueue,
        on_prefilled: Callable[[float, InferenceRequest, PrefillInstance], None],
        on_chunk_end: Callable[[], None],
    ) -> None:
        self.deployment = deployment
        self.cache = cache
        self.fetched_bytes = 0.0
        """Bytes read from the caching pool since the start."""
        self._events = events
        self._on_prefilled = on_prefilled
        self._on_chunk_end = on_chunk_end
        self._instances_created = 0
        self.instances = [self._new_instance(nodes, now) for nodes in deployment.pools.prefill]

    def enqueue(self, request: InferenceRequest, instance: PrefillInstance, now: float) -> None:
        """Enqueue the request on that instance, which computes the part of its prompt that is not cached."""
        instance.enqueue(request, self.cache.block_tokens)
        instance.backlog_tokens += request.prompt - request.cached
        if not instance.chunk:
            self._start_chunk(now, instance)

    def instances_outside(self, pools: Pools) -> list[PrefillInstance]:
        """The instances that are not in those pools."""
        return [instance for instance in self.instances if instance.nodes not in pools.prefill]

    def rebuild(self, deployment: Deployment, cache: ContextCache, now: float, start_s: float) -> None:
        """Switch to the instances of that layout; new ones are ready after `start_s`."""
        self.deployment = deployment
        self.cache = cache
        prefill = deployment.pools.prefill
        present = {instance.nodes: instance for instance in self.instances}
        added = {nodes: self._new_instance(nodes, now + start_s) for nodes in prefill if nodes not in present}
        self.instances = [present[nodes] if nodes in present else added[nodes] for nodes in prefill]
        self.refresh_cached()
        self.update_timing(deployment, now)

    def refresh_cached(self) -> None:
        """Update queued prompts, as blocks may have gone from the cache with a node or its memory."""
        for instance in self.instances:
            instance.refresh_cached(self.cache)

    def update_timing(self, deployment: Deployment, now: float) -> None:
        """Update timings after a change of the fabric; chunks under way continue at the new pace."""
        self.deployment = deployment
        for at, instance in enumerate(self.instances):
            instance.timing = deployment.prefill_timing(at)
            if instance.chunk:
                self._pace(now, instance)

    # The chunks of an instance.

    def _start_chunk(self, now: float, instance: PrefillInstance) -> None:
        """Start a chunk from the queue, if there is anything to do."""
        if now < instance.ready_at:
            self._events.schedule(instance.ready_at, self._wake, instance)
            return
        fetched, _ = instance.fill_chunk(now, self.cache.block_tokens)
        if not instance.chunk:
            return
        for request, _, _ in instance.chunk:
            if request.prefilled == request.cached:
                self.cache.count(request.blocks, request.prompt, request.matched, request.cached_ssd)
        self.fetched_bytes += fetched * self.deployment.model.kv_bytes_per_token
        self._pace(now, instance)

    def _pace(self, now: float, instance: PrefillInstance) -> None:
        """Schedule the end of the chunk at the present pace."""
        parts, fetched, blocks = instance.chunk_work
        fetching_s = fetch_s(self.deployment, self.cache.nodes, instance.nodes, fetched, blocks, instance.ssd_tokens)
        whole_s = instance.timing.chunk_s(parts) + fetching_s
        end_at = instance.set_pace(now, whole_s)
        if end_at is not None:
            self._events.schedule(end_at, self._end_chunk, instance, instance.chunk_number)

    def _wake(self, now: float, instance: PrefillInstance) -> None:
        if instance in self.instances and not instance.chunk and now >= instance.ready_at:
            self._start_chunk(now, instance)

    def _end_chunk(self, now: float, instance: PrefillInstance, number: int) -> None:
        if instance not in self.instances or instance.chunk_number != number:
            return
        chunk, instance.chunk = instance.chunk, []
        unfinished = []
        for request, attempt, take in chunk:
            if not instance.is_current(request, attempt):
                continue
            instance.backlog_tokens -= take
            instance.prefilled_tokens += take
            request.prefilled += take
            if request.prefilled < request.prompt:
                unfinished.append((request, attempt))
            else:
                self._on_prefilled(now, request, instance)
        instance.queue.extendleft(reversed(unfinished))
        self._on_chunk_end()
        if not instance.chunk:
            self._start_chunk(now, instance)

    def _new_instance(self, nodes: tuple[str, ...], ready_at: float) -> PrefillInstance:
        self._instances_created += 1
        budget = self.deployment.calibration.prefill_tokens_per_npu * NPUS_PER_NODE * len(nodes)
        timing = self.deployment.prefill_timing(self.deployment.pools.prefill.index(nodes))
        return PrefillInstance(self._instances_created, nodes, timing, budget, ready_at)
