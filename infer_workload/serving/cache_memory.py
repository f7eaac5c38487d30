"""CacheMemory: the memory that a deployment's caches lie in, held as an allocation at MatrixResource.

A deployment that caches asks for so much memory of each node whose memory it is to use, and uses what it was granted
and no more: the weights of its models first, blocks of the context cache in the rest. Nodes that leave the layout take
their part of the allocation with them, nodes that join are asked for theirs, and a deployment that is laid out nowhere,
or is gone, holds nothing. What was asked for on a former instance of the same name is given back, and asked for anew.
What is refused shows in the condition `CacheMemory`, and the deployment serves without.

`reconcile` looks at what there is and asks for what there is to be; it keeps nothing that it could not find again, so
that it may end after any of its requests. An allocation that bears a deployment's label and outlived it is released;
while this process is away MatrixCompute releases those whose instance is gone, which a label names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil

from infer_workload.ems.lending import GIB, GRANTED, Lending, allocation_of
from infer_workload.ems.model_cache import weights_gb
from infer_workload.layout.recovery import first_start_s
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
    of_former,
)

CHECK_S, SWEEP_S = 30.0, 60.0
"""Emulated seconds after which what was granted is looked at again, and what deployments left behind."""
SWEEP_EMPTY_S = 600.0
"""The latter where nothing is deployed: it was looked for when the last one went."""


def keep_models(live: LiveDeployment, models: Mapping[str, ServedModel]) -> None:
    """Have its model cache keep what its spec names. Where the pool is warm it holds all of them from the start."""
    spec, weights = live.spec, live.layout.weights
    weights.wanted = tuple(models[name] for name in dict.fromkeys((spec.model, *spec.model_cache_models)))
    weights.gb_per_node, weights.ssd_gb_per_node = spec.model_cache_gb_per_node, spec.model_cache_ssd_gb_per_node
    if spec.warm_model_cache:
        weights.read(*weights.wanted)


def wanted_gib(live: LiveDeployment) -> dict[str, int] | None:
    """What it is to have of each node now; None while that is not known yet."""
    engine = live.engine
    if engine is None:
        return None if live.state == PENDING and live.layout.roles() else {}
    nodes = engine.deployment.pools.caching
    each = engine.deployment.cache_gb_per_node * 1e9 + live.layout.weights.node_bytes(len(nodes))
    return dict.fromkeys(nodes, ceil(each / GIB)) if each > 0 else {}


def lend(live: LiveDeployment, lending: Lending, now: float) -> None:
    """Use what is held from now on: weights first, blocks in what is left."""
    live.play(now)
    live.lending = lending
    nodes = len(lending.allocated) if live.engine is None else len(live.engine.deployment.pools.caching)
    share = live.layout.weights.node_bytes(nodes)
    live.layout.weights.lent, live.layout.lent = lending.of_weights(share), lending.of_blocks(share)
    if live.engine is not None:
        live.engine.lend_memory(live.layout.lent)
        if live.state == LOADING:
            took_s = first_start_s(live.engine.deployment, live.layout.weights)
            live.layout.loading.serves_from = live.layout.loading.since + took_s


class CacheMemory:
    """Keeps the allocations of all deployments to what they need. `lives` are the deployments of this process,
    `changed` hears of each whose memory is another."""

    def __init__(
        self,
        memory: ServerMemory,
        clock: Clock,
        lives: Mapping[str, LiveDeployment],
        changed: Callable[[LiveDeployment], None],
    ) -> None:
        self._memory, self._clock, self._lives, self._changed = memory, clock, lives, changed
        self._swept_at = float("-inf")
        self._reading: dict[str, tuple[str, float]] = {}
        """The model that a deployment's pool is reading from the object store, and until when."""

    async def reconcile(self) -> str:
        """One look at every deployment, and now and then at what was left behind."""
        allocated = 0
        for live in list(self._lives.values()):
            self._read_models(live)
            await self._one(live)
            allocated += 0 if live.lending is None else sum(live.lending.allocated.values())
        if self._clock.now() >= self._swept_at + (SWEEP_S if self._lives else SWEEP_EMPTY_S) and await self._sweep():
            self._swept_at = self._clock.now()
        return f"{allocated} GiB of memory are held for {len(self._lives)} deployments"

    def sweep_soon(self) -> None:
        """A deployment is gone: what it held is released at the next look."""
        self._swept_at = float("-inf")

    def due(self, live: LiveDeployment) -> bool:
        """Whether it is to have other memory than it has, or was refused some, or was not looked at for long."""
        wanted, lending = wanted_gib(live), live.lending
        if wanted is None:
            return False
        if lending is None or wanted != lending.asked or not lending.granted:
            return True
        return self._clock.now() >= lending.at + CHECK_S

    async def _one(self, live: LiveDeployment) -> None:
        wanted, before = wanted_gib(live), live.lending
        if wanted is None or not self.due(live):
            return
        try:
            lending = await self._allocate(live, wanted)
        except MatrixError as refused:  # whatever it is: the next deployment is not to wait for it
            allocated = before.allocated if before is not None else {}
            kept = {node: gib for node, gib in allocated.items() if node in wanted}
            lending = Lending(
                allocation_of(live.name), wanted, kept, refused.reason, refused.message, self._clock.now()
            )
        if self._lives.get(live.name) is not live:
            self.sweep_soon()
            return
        lend(live, lending, self._clock.now())
        if before is None or (before.allocated, before.reason, before.message) != (
            lending.allocated, lending.reason, lending.message,
        ):  # fmt: skip
            self._changed(live)

    async def _allocate(self, live: LiveDeployment, wanted: dict[str, int]) -> Lending:
        """Have what is wanted; where that is refused, of what is held already what is wanted still."""
        name, now = allocation_of(live.name), self._clock.now()
        current = await self._memory.find_allocation(name)
        if current is not None and not _owned(current, live.name):
            why = f"there is an allocation {name_of(name)!r} that is not this deployment's"
            return Lending(name, wanted, {}, "NameTaken", why, now)
        if not wanted:
            if current is not None:
                await self._memory.release(name)
            return Lending(name, {}, {}, GRANTED, "", now)
        if current is not None and await self._former(current, live) and not await self._memory.release(name):
            why = f"what there was of a former instance {name_of(live.spec.instance)} is given back first"
            return Lending(name, wanted, {}, "Releasing", why, now)
        try:
            return Lending(name, wanted, await self._reserve(live, wanted), GRANTED, "", now)
        except (Conflict, InvalidField) as refused:
            had = {} if current is None or current.state == "Releasing" else _memory_of(current)
            kept = {node: min(gib, wanted[node]) for node, gib in had.items() if node in wanted}
            if kept != had:
                if kept:
                    kept = await self._reserve(live, kept)
                else:
                    await self._memory.release(name)
            return Lending(name, wanted, kept, refused.reason, refused.message, now)

    async def _former(self, current: AllocationView, live: LiveDeployment) -> bool:
        """Whether the memory was asked for before the nodes it is to lie on: another instance had their name then."""
        nodes = await self._memory.find_allocation(live.spec.instance)
        return nodes is not None and of_former(current, nodes.created_at)

    async def _reserve(self, live: LiveDeployment, gib: Mapping[str, int]) -> dict[str, int]:
        request = AllocationRequest.model_validate(
            {
                "project": project_of(live.name),
                "labels": {DEPLOYMENT_LABEL: live.name, CACHING_ON_LABEL: live.spec.instance},
                "memoryGibByNode": dict(gib),
            }
        )
        return _memory_of(await self._memory.reserve(allocation_of(live.name), request))

    async def _sweep(self) -> bool:
        """Release what bears the label of a deployment that is gone. False where some of it could not be."""
        try:
            allocations = await self._memory.allocations()
        except MatrixError:
            return False
        swept = True
        for each in allocations:
            owner = each.labels.get(DEPLOYMENT_LABEL)
            if owner is not None and owner not in self._lives and each.key == allocation_of(owner):
                try:
                    await self._memory.release(each.key)
                except MatrixError:
                    swept = False
        return swept

    def _read_models(self, live: LiveDeployment) -> None:
        """The pool reads further models from the object store while it serves, one after the other."""
        if not live.serves:
            self._reading.pop(live.name, None)
            return
        now, weights = self._clock.now(), live.layout.weights
        missing = [each for each in weights.wanted if each.name not in weights.models]
        name, until = self._reading.get(live.name, ("", 0.0))
        if name and now >= until:
            weights.read(*(each for each in missing if each.name == name))
            missing = [each for each in missing if each.name != name]
        if not missing:
            self._reading.pop(live.name, None)
        elif name != missing[0].name:
            took = weights_gb(missing[0]) / weights.calibration.obs_gbps
            self._reading[live.name] = missing[0].name, now + took


def _owned(allocation: AllocationView, deployment: str) -> bool:
    return allocation.labels.get(DEPLOYMENT_LABEL) == deployment


def _memory_of(allocation: AllocationView) -> dict[str, int]:
    return {member.node: member.memory_gib for member in allocation.members if member.memory_gib}
