"""CacheMemory: the memory of a deployment's caches, an allocation at MatrixResource.

A deployment that caches requests memory on each caching node, and uses no more than it was granted: first for the
weights of its models, the rest for blocks of the context cache. The allocation follows the layout: nodes that leave are
removed from it, nodes that join are added, and a deployment without a layout, or deleted, has none. Memory requested on
a former instance of the same name is released and requested again. A refusal shows in the condition `CacheMemory`, and
the deployment serves without that memory.

`reconcile` compares what is allocated with what is needed and requests the difference. It keeps no state that it cannot
find again, so the process may die after any of its requests. Allocations labelled with a deployment that is gone are
released here; while this process is down, MatrixCompute releases those whose instance, named by a label, is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil

from infer_workload.ems.memory_grant import GIB, GRANTED, MemoryGrant, allocation_key
from infer_workload.ems.model_cache import weights_gb
from infer_workload.layout.recovery import cold_start_s
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.ports import ServerMemory
from infer_workload.serving.states import LOADING, PENDING
from infer_workload.timing.model import ServedModel
from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Conflict, InvalidField, MatrixError
from matrixcommon.model.resource_key import name_of, project_of
from matrixresource.contract.allocations import (
    CACHING_ON_LABEL,
    DEPLOYMENT_LABEL,
    AllocationRequest,
    AllocationView,
    belongs_to_earlier_instance,
)

CHECK_S, SWEEP_S = 30.0, 60.0
"""Emulated seconds between checks of granted memory, and between sweeps for allocations left behind."""
SWEEP_EMPTY_S = 600.0
"""Seconds between sweeps while nothing is deployed: a sweep followed the last deletion."""


def configure_model_cache(live: LiveDeployment, models: Mapping[str, ServedModel]) -> None:
    """Configure the model cache from the spec. A warm cache holds all its models from the start."""
    spec, weights = live.spec, live.layout.weights
    weights.wanted = tuple(models[name] for name in dict.fromkeys((spec.model, *spec.model_cache_models)))
    weights.gb_per_node, weights.ssd_gb_per_node = spec.model_cache_gb_per_node, spec.model_cache_ssd_gb_per_node
    if spec.warm_model_cache:
        weights.record_read(*weights.wanted)


def required_gib(live: LiveDeployment) -> dict[str, int] | None:
    """The GiB that it needs on each node now; None while that is not known yet."""
    engine = live.engine
    if engine is None:
        return None if live.state == PENDING and live.layout.roles() else {}
    nodes = engine.deployment.pools.caching
    each = engine.deployment.cache_gb_per_node * 1e9 + live.layout.weights.node_bytes(len(nodes))
    return dict.fromkeys(nodes, ceil(each / GIB)) if each > 0 else {}


def apply_grant(live: LiveDeployment, grant: MemoryGrant, now: float) -> None:
    """Use this allocation from now on: weights first, blocks in the rest."""
    live.advance(now)
    live.memory_grant = grant
    nodes = len(grant.allocated) if live.engine is None else len(live.engine.deployment.pools.caching)
    share = live.layout.weights.node_bytes(nodes)
    live.layout.weights.granted_bytes, live.layout.granted_bytes = (
        grant.model_cache_bytes(share),
        grant.context_cache_bytes(share),
    )
    if live.engine is not None:
        live.engine.set_granted_memory(live.layout.granted_bytes)
        if live.state == LOADING:
            took_s = cold_start_s(live.engine.deployment, live.layout.weights)
            live.layout.loading.serves_from = live.layout.loading.since + took_s


class CacheMemory:
    """Keeps the allocation of each deployment at what it needs. `deployments` are the deployments of this process;
    `on_changed` is called for each whose memory changed."""

    def __init__(
        self,
        memory: ServerMemory,
        clock: Clock,
        deployments: Mapping[str, LiveDeployment],
        on_changed: Callable[[LiveDeployment], None],
    ) -> None:
        self._memory, self._clock, self._deployments, self._on_changed = memory, clock, deployments, on_changed
        self._swept_at = float("-inf")
        self._reading: dict[str, tuple[str, float]] = {}
        """The model that each deployment's cache is reading from the object store, and when it will be done."""

    async def reconcile(self) -> str:
        """Reconcile every deployment once, and from time to time sweep up allocations left behind."""
        allocated = 0
        for live in list(self._deployments.values()):
            self._read_models(live)
            await self._reconcile_one(live)
            allocated += 0 if live.memory_grant is None else sum(live.memory_grant.allocated.values())
        if (
            self._clock.now() >= self._swept_at + (SWEEP_S if self._deployments else SWEEP_EMPTY_S)
            and await self._sweep()
        ):
            self._swept_at = self._clock.now()
        return f"{allocated} GiB of memory allocated for {len(self._deployments)} deployments"

    def sweep_soon(self) -> None:
        """Release allocations left behind at the next `reconcile`, as a deployment is gone."""
        self._swept_at = float("-inf")

    def needs_check(self, live: LiveDeployment) -> bool:
        """Whether a deployment needs other memory than it has, was refused some, or has not been checked for long."""
        wanted, lending = required_gib(live), live.memory_grant
        if wanted is None:
            return False
        if lending is None or wanted != lending.requested or not lending.granted:
            return True
        return self._clock.now() >= lending.at + CHECK_S

    async def _reconcile_one(self, live: LiveDeployment) -> None:
        required, before = required_gib(live), live.memory_grant
        if required is None or not self.needs_check(live):
            return
        try:
            grant = await self._allocate(live, required)
        except MatrixError as refused:  # any error: it must not keep the next deployment waiting
            allocated = before.allocated if before is not None else {}
            kept = {node: gib for node, gib in allocated.items() if node in required}
            grant = MemoryGrant(
                allocation_key(live.name), required, kept, refused.reason, refused.message, self._clock.now()
            )
        if self._deployments.get(live.name) is not live:
            self.sweep_soon()
            return
        apply_grant(live, grant, self._clock.now())
        if before is None or (before.allocated, before.reason, before.message) != (
            grant.allocated, grant.reason, grant.message,
        ):  # fmt: skip
            self._on_changed(live)

    async def _allocate(self, live: LiveDeployment, required: dict[str, int]) -> MemoryGrant:
        """Allocate what is wanted; if that is refused, keep what is already allocated and still wanted."""
        name, now = allocation_key(live.name), self._clock.now()
        current = await self._memory.find_allocation(name)
        if current is not None and not _is_owned_by(current, live.name):
            why = f"allocation {name_of(name)!r} exists and does not belong to this deployment"
            return MemoryGrant(name, required, {}, "NameTaken", why, now)
        if not required:
            if current is not None:
                await self._memory.release(name)
            return MemoryGrant(name, {}, {}, GRANTED, "", now)
        if current is not None and await self._is_stale(current, live) and not await self._memory.release(name):
            why = f"releasing the memory allocated for a former instance {name_of(live.spec.instance)} first"
            return MemoryGrant(name, required, {}, "Releasing", why, now)
        try:
            return MemoryGrant(name, required, await self._reserve(live, required), GRANTED, "", now)
        except (Conflict, InvalidField) as refused:
            had = {} if current is None or current.state == "Releasing" else _memory_of(current)
            kept = {node: min(gib, required[node]) for node, gib in had.items() if node in required}
            if kept != had:
                if kept:
                    kept = await self._reserve(live, kept)
                else:
                    await self._memory.release(name)
            return MemoryGrant(name, required, kept, refused.reason, refused.message, now)

    async def _is_stale(self, current: AllocationView, live: LiveDeployment) -> bool:
        """Whether the memory was allocated before the instance's nodes, thus for a former instance of that name."""
        nodes = await self._memory.find_allocation(live.spec.instance)
        return nodes is not None and belongs_to_earlier_instance(current, nodes.created_at)

    async def _reserve(self, live: LiveDeployment, gib: Mapping[str, int]) -> dict[str, int]:
        request = AllocationRequest.model_validate(
            {
                "project": project_of(live.name),
                "labels": {DEPLOYMENT_LABEL: live.name, CACHING_ON_LABEL: live.spec.instance},
                "memoryGibByNode": dict(gib),
            }
        )
        return _memory_of(await self._memory.reserve(allocation_key(live.name), request))

    async def _sweep(self) -> bool:
        """Release allocations labelled with a deployment that is gone. False if some could not be released."""
        try:
            allocations = await self._memory.allocations()
        except MatrixError:
            return False
        swept = True
        for each in allocations:
            owner = each.labels.get(DEPLOYMENT_LABEL)
            if owner is not None and owner not in self._deployments and each.key == allocation_key(owner):
                try:
                    await self._memory.release(each.key)
                except MatrixError:
                    swept = False
        return swept

    def _read_models(self, live: LiveDeployment) -> None:
        """Read further models from the object store while the deployment serves, one after the other."""
        if not live.serves:
            self._reading.pop(live.name, None)
            return
        now, weights = self._clock.now(), live.layout.weights
        missing = [each for each in weights.wanted if each.name not in weights.models]
        name, until = self._reading.get(live.name, ("", 0.0))
        if name and now >= until:
            weights.record_read(*(each for each in missing if each.name == name))
            missing = [each for each in missing if each.name != name]
        if not missing:
            self._reading.pop(live.name, None)
        elif name != missing[0].name:
            took = weights_gb(missing[0]) / weights.calibration.obs_gbps
            self._reading[live.name] = missing[0].name, now + took


def _is_owned_by(allocation: AllocationView, deployment: str) -> bool:
    return allocation.labels.get(DEPLOYMENT_LABEL) == deployment


def _memory_of(allocation: AllocationView) -> dict[str, int]:
    return {member.node: member.memory_gib for member in allocation.members if member.memory_gib}
