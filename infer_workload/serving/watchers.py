"""Watchers of what deployments depend on: the fabric, node power, cache memory, and the traffic of others on their
ports.

Each method is one check, repeated as long as the process lives; it returns a sentence on what it found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from infer_workload.layout.machines import machine_mismatch
from infer_workload.serving.cache_memory import CacheMemory
from infer_workload.serving.engine_driver import EngineDriver
from infer_workload.serving.instance_nodes import Successors, deployments_on, describe_others, divide_instance
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.node_readiness import pause_for_unpowered
from infer_workload.serving.ports import FabricViews, Hardware
from infer_workload.serving.status import record_machine
from infer_workload.serving.store import InferStore
from infer_workload.serving.workload_traffic import WorkloadTraffic
from infer_workload.timing.calibration import Calibration
from infer_workload.timing.fabric import Fabric
from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Unavailable

PAUSE_S = (3.0, 1.0)
"""How long one check of the hardware pauses a pool (emulated seconds, minimum of wall seconds): about three checks."""


class Watchers:
    """The watchers of one process's deployments. Without hardware, no node is without power and nobody else sends."""

    def __init__(
        self,
        live: Mapping[str, LiveDeployment],
        store: InferStore,
        clock: Clock,
        player: EngineDriver,
        machines: Mapping[str, Calibration],
        views: FabricViews,
        hardware: Hardware | None,
        cache_memory: CacheMemory | None,
        successors: Successors,
    ) -> None:
        self._live = live
        self._store = store
        self._clock = clock
        self._player = player
        self._machines = machines
        self._views = views
        self._hardware = hardware
        self._traffic = None if hardware is None else WorkloadTraffic(hardware)
        self._cache_memory = cache_memory
        self._successors = successors
        self._up: frozenset[str] | None = None
        self._off: frozenset[str] = frozenset()

    async def observe_fabric(self) -> str:
        """Read every instance's view once, and lay out again if it has changed."""
        if self._hardware is not None and self._live:
            with suppress(Unavailable):  # keep the last known answer
                self._up, self._off = await self._hardware.up_and_off()
        for instance in dict.fromkeys(live.spec.instance for live in list(self._live.values())):
            view = await self._views.fabric_view(instance)
            follows: Mapping[str, str] = {}
            if view is not None and len(self._deployments_on(instance)) > 1:
                shown = frozenset(node for plane in view.planes.values() for node in plane.nodes)
                follows = await self._successors.find_predecessors(instance, shown)
            self._apply_view(self._deployments_on(instance), view, follows)
        self._player.wake()
        return f"{len(self._live)} deployments follow their fabric"

    async def observe_power(self) -> str:
        """Apply the immediate effect of power loss: while a decode rank has no power, no step finishes.

        Each check pauses the affected decode pools until well after the next one.
        """
        if self._hardware is None or not self._live:
            return "no deployment to watch"
        unpowered = await self._hardware.unpowered()
        now = self._clock.now()
        current = sum(
            pause_for_unpowered(live, unpowered, now, now + self._clock.at_least_wall(*PAUSE_S))
            for live in self._live.values()
        )
        if current:
            self._player.wake()
        return f"{current} decode pools paused by ranks without power"

    async def reconcile_memory(self) -> str:
        """Reconcile the memory of the caches."""
        if self._cache_memory is None:
            return "memory is not allocated"
        return await self._cache_memory.reconcile()

    async def sync_traffic(self) -> str:
        """Put the deployments' traffic on the emulated ports, and time it with the contention found there."""
        if self._traffic is None:
            return "no emulated hardware"
        reported = await self._traffic.sync_loads(list(self._live.values()), self._clock.now())
        changed = await self._traffic.observe_contention(list(self._live.values()), self._clock.now())
        if changed:
            self._player.wake()
        return f"{reported} loads reported, timing of {changed} deployments changed"

    def _deployments_on(self, instance: str) -> list[LiveDeployment]:
        return deployments_on(self._live.values(), instance)

    def _apply_view(
        self, deployments: Sequence[LiveDeployment], view: Any | None, predecessors: Mapping[str, str]
    ) -> None:
        """Let the deployments of an instance serve on this FabricView, each on its part, if that is of its machine.
        Roles on nodes that a deployment no longer has are forgotten first, so that no node is ever recorded for two
        deployments."""
        fabrics, others = dict[str, Fabric](), dict[str, str]()
        for live in deployments:
            record_machine(self._store, live, view, self._machines)
            others[live.name] = machine_mismatch(live.spec.machine, view, self._machines)
            if view is not None and not others[live.name]:
                whole = Fabric.of(view, live.layout.calibration)
                fabrics[live.name] = whole.excluding(self._off)  # a node that is switched off cannot be used
        there = [live for live in deployments if live.name in fabrics]
        parts = divide_instance(fabrics[there[0].name], there, predecessors) if there else {}
        for live in there:
            live.forget_roles_outside(parts[live.name].nodes)
        for live in deployments:
            fabric = fabrics.get(live.name)
            words = "" if fabric is None else describe_others(live, parts, len(fabric.nodes))
            live.apply_view(fabric, self._clock.now(), self._up, others[live.name], parts.get(live.name), words)
