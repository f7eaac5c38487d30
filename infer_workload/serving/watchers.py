"""Watchers of what deployments depend on: the fabric, node power, cache memory, and the traffic of others on their
ports.

Each method is one check, repeated as long as the process lives; it returns a sentence on what it found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from infer_workload.layout.machines import other_machine
from infer_workload.serving.cache_memory import CacheMemory
from infer_workload.serving.instance_nodes import Successors, beside, on_instance, parts_of
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.node_readiness import hold_for_unpowered
from infer_workload.serving.player import Player
from infer_workload.serving.ports import FabricViews, Hardware
from infer_workload.serving.status import settle_machine
from infer_workload.serving.store import InferStore
from infer_workload.serving.workload_traffic import WorkloadTraffic
from infer_workload.timing.calibration import Calibration
from infer_workload.timing.fabric import Fabric
from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Unavailable

HOLD_S = (3.0, 1.0)
"""How long one check of the hardware pauses a pool (emulated seconds, minimum of wall seconds): about three checks."""


class Watchers:
    """The watchers of one process's deployments. Without hardware, no node is without power and nobody else sends."""

    def __init__(
        self,
        live: Mapping[str, LiveDeployment],
        store: InferStore,
        clock: Clock,
        player: Player,
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

    async def follow_fabric(self) -> str:
        """Read every instance's view once, and lay out again if it has changed."""
        if self._hardware is not None and self._live:
            with suppress(Unavailable):  # keep the last known answer
                self._up, self._off = await self._hardware.up_and_off()
        for instance in dict.fromkeys(live.spec.instance for live in list(self._live.values())):
            view = await self._views.fabric_view(instance)
            follows: Mapping[str, str] = {}
            if view is not None and len(self._on(instance)) > 1:
                shown = frozenset(node for plane in view.planes.values() for node in plane.nodes)
                follows = await self._successors.on(instance, shown)
            self._serve_on(self._on(instance), view, follows)
        self._player.nudge()
        return f"{len(self._live)} deployments follow their fabric"

    async def observe_power(self) -> str:
        """Apply the immediate effect of power loss: while a decode rank has no power, no step finishes.

        Each check pauses the affected decode pools until well after the next one.
        """
        if self._hardware is None or not self._live:
            return "no deployment to watch"
        dark = await self._hardware.unpowered()
        now = self._clock.now()
        current = sum(
            hold_for_unpowered(live, dark, now, now + self._clock.at_least_wall(*HOLD_S))
            for live in self._live.values()
        )
        if current:
            self._player.nudge()
        return f"{current} decode pools paused by ranks without power"

    async def hold_memory(self) -> str:
        """Reconcile the memory of the caches."""
        if self._cache_memory is None:
            return "memory is not allocated"
        return await self._cache_memory.reconcile()

    async def show_traffic(self) -> str:
        """Put the deployments' traffic on the emulated ports, and time it with the contention found there."""
        if self._traffic is None:
            return "no emulated hardware"
        reported = await self._traffic.tell(list(self._live.values()), self._clock.now())
        changed = await self._traffic.listen(list(self._live.values()), self._clock.now())
        if changed:
            self._player.nudge()
        return f"{reported} loads reported, timing of {changed} deployments changed"

    def _on(self, instance: str) -> list[LiveDeployment]:
        return on_instance(self._live.values(), instance)

    def _serve_on(self, lives: Sequence[LiveDeployment], view: Any | None, follows: Mapping[str, str]) -> None:
        """Let the deployments of an instance serve on this FabricView, each on its part, if that is of its machine.
        Roles on nodes that a deployment no longer has are forgotten first, so that no node is ever recorded for two
        deployments."""
        fabrics, others = dict[str, Fabric](), dict[str, str]()
        for live in lives:
            settle_machine(self._store, live, view, self._machines)
            others[live.name] = other_machine(live.spec.machine, view, self._machines)
            if view is not None and not others[live.name]:
                whole = Fabric.of(view, live.layout.calibration)
                fabrics[live.name] = whole.leaving_out(self._off)  # a node that is switched off cannot be used
        there = [live for live in lives if live.name in fabrics]
        parts = parts_of(fabrics[there[0].name], there, follows) if there else {}
        for live in there:
            live.forget_beyond(parts[live.name].nodes)
        for live in lives:
            fabric = fabrics.get(live.name)
            words = "" if fabric is None else beside(live, parts, len(fabric.nodes))
            live.take_view(fabric, self._clock.now(), self._up, others[live.name], parts.get(live.name), words)
