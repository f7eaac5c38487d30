"""The prefill pool: its instances, and the chunks that they work on, each at its own pace."""

from __future__ import annotations

from collections.abc import Callable

from infer_workload.ems.context_cache import ContextCache
from infer_workload.engine.event_queue import EventQueue
from infer_workload.engine.moving import fetch_s
from infer_workload.engine.prefill_instance import PrefillInstance
from infer_workload.engine.request import InferenceRequest
from infer_workload.layout.deployment import Deployment, Pools
from matrixcommon.model.hardware_names import NPUS_PER_NODE


class PrefillPool:
    """The instances of one deployment. `through(now, request, instance)` is called for each request whose prompt is in
    KV, and `freed` at each end of a chunk, before the next one begins."""

    def __init__(
        self,
        deployment: Deployment,
        cache: ContextCache,
        now: float,
        events: EventQueue,
        through: Callable[[float, InferenceRequest, PrefillInstance], None],
        freed: Callable[[], None],
    ) -> None:
        self.deployment = deployment
        self.cache = cache
        self.fetched_bytes = 0.0
        """Blocks read out of the caching pool, ever since."""
        self._events = events
        self._through = through
        self._freed = freed
        self._made = 0
        self.instances = [self._new_instance(nodes, now) for nodes in deployment.pools.prefill]

    def take(self, request: InferenceRequest, instance: PrefillInstance, now: float) -> None:
        """Have that instance work on the request, as far as its prompt is not in KV already."""
        instance.enqueue(request, self.cache.block_tokens)
        instance.backlog_tokens += request.prompt - request.cached
        if not instance.chunk:
            self._start_chunk(now, instance)

    def beyond(self, pools: Pools) -> list[PrefillInstance]:
        """The instances that are none of those pools."""
        return [instance for instance in self.instances if instance.nodes not in pools.prefill]

    def rebuild(self, deployment: Deployment, cache: ContextCache, now: float, start_s: float) -> None:
        """Have the instances of that layout; those that are new are ready after `start_s`."""
        self.deployment = deployment
        self.cache = cache
        prefill = deployment.pools.prefill
        present = {instance.nodes: instance for instance in self.instances}
        added = {nodes: self._new_instance(nodes, now + start_s) for nodes in prefill if nodes not in present}
        self.instances = [present[nodes] if nodes in present else added[nodes] for nodes in prefill]
        self.recount()
        self.retime(deployment, now)

    def recount(self) -> None:
        """Blocks may have gone from the cache, with a node or with its memory."""
        for instance in self.instances:
            instance.recount(self.cache)

    def retime(self, deployment: Deployment, now: float) -> None:
        """The same instances beside other traffic: chunks under way go on at another pace."""
        self.deployment = deployment
        for at, instance in enumerate(self.instances):
            instance.timing = deployment.prefill_timing(at)
            if instance.chunk:
                self._pace(now, instance)

    # The chunks of an instance.

    def _start_chunk(self, now: float, instance: PrefillInstance) -> None:
        """Work on what waits, as much as a chunk takes."""
        if now < instance.ready_at:
            self._events.at(instance.ready_at, self._wake, instance)
            return
        fetched, _ = instance.fill(now, self.cache.block_tokens)
        if not instance.chunk:
            return
        for request, _, _ in instance.chunk:
            if request.prefilled == request.cached:
                self.cache.count(request.blocks, request.prompt, request.matched, request.cached_ssd)
        self.fetched_bytes += fetched * self.deployment.model.kv_bytes_per_token
        self._pace(now, instance)

    def _pace(self, now: float, instance: PrefillInstance) -> None:
        """Have the chunk end when it is through at the pace of now."""
        parts, fetched, blocks = instance.work
        fetching_s = fetch_s(self.deployment, self.cache.nodes, instance.nodes, fetched, blocks, instance.cold_tokens)
        whole_s = instance.timing.chunk_s(parts) + fetching_s
        end_at = instance.pace(now, whole_s)
        if end_at is not None:
            self._events.at(end_at, self._end_chunk, instance, instance.chunk_number)

    def _wake(self, now: float, instance: PrefillInstance) -> None:
        if instance in self.instances and not instance.chunk and now >= instance.ready_at:
            self._start_chunk(now, instance)

    def _end_chunk(self, now: float, instance: PrefillInstance, number: int) -> None:
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
                self._through(now, request, instance)
        instance.queue.extendleft(reversed(unfinished))
        self._freed()
        if not instance.chunk:
            self._start_chunk(now, instance)

    def _new_instance(self, nodes: tuple[str, ...], ready_at: float) -> PrefillInstance:
        self._made += 1
        budget = self.deployment.calibration.prefill_tokens_per_npu * NPUS_PER_NODE * len(nodes)
        timing = self.deployment.prefill_timing(self.deployment.pools.prefill.index(nodes))
        return PrefillInstance(self._made, nodes, timing, budget, ready_at)
