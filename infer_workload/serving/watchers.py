"""What deployments follow besides requests: the fabric, the power of their nodes, the memory of their caches, and what
others send on their ports.

Each verb is one look, made again and again for as long as the process lives; it returns a sentence on what it found.
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
"""A look at the hardware holds a pool this long, emulated and at least of the wall: about three looks."""


class Watchers:
    """Of the deployments of one process. Where there is no hardware, nothing is dark and nobody else sends."""

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
        """Look at every instance's view once; lay out again where its generation has moved."""
        if self._hardware is not None and self._live:
            with suppress(Unavailable):  # what was up last is up still, as far as anybody knows
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
        """What loss of power does to the workload at once: with a decode rank dark, no step ends.

        Each look holds the decode pools of the nodes concerned until well after the next one.
        """
        if self._hardware is None or not self._live:
            return "nothing runs"
        dark = await self._hardware.unpowered()
        now = self._clock.now()
        current = sum(
            hold_for_unpowered(live, dark, now, now + self._clock.at_least_wall(*HOLD_S))
            for live in self._live.values()
        )
        if current:
            self._player.nudge()
        return f"{current} decode pools are held by ranks without power"

    async def hold_memory(self) -> str:
        """Have the memory that caches need, and no other."""
        if self._cache_memory is None:
            return "nobody is asked for memory"
        return await self._cache_memory.reconcile()

    async def show_traffic(self) -> str:
        """Put what the deployments send on the emulated ports, and take the time that it takes there beside others."""
        if self._traffic is None:
            return "there is no hardware"
        reported = await self._traffic.tell(list(self._live.values()), self._clock.now())
        changed = await self._traffic.listen(list(self._live.values()), self._clock.now())
        if changed:
            self._player.nudge()
        return f"{reported} loads reported, {changed} deployments at another pace"

    def _on(self, instance: str) -> list[LiveDeployment]:
        return on_instance(self._live.values(), instance)

    def _serve_on(self, lives: Sequence[LiveDeployment], view: Any | None, follows: Mapping[str, str]) -> None:
        """Have all that is on an instance serve on what this FabricView shows, each on its part and where that is of
        its machine. Roles that nobody plays any more are forgotten first: no node is ever written down as two
        deployments'."""
        fabrics, others = dict[str, Fabric](), dict[str, str]()
        for live in lives:
            settle_machine(self._store, live, view, self._machines)
            others[live.name] = other_machine(live.spec.machine, view, self._machines)
            if view is not None and not others[live.name]:
                whole = Fabric.of(view, live.layout.calibration)
                fabrics[live.name] = whole.leaving_out(self._off)  # what is switched off is as good as gone
        there = [live for live in lives if live.name in fabrics]
        parts = parts_of(fabrics[there[0].name], there, follows) if there else {}
        for live in there:
            live.forget_beyond(parts[live.name].nodes)
        for live in lives:
            fabric = fabrics.get(live.name)
            words = "" if fabric is None else beside(live, parts, len(fabric.nodes))
            live.take_view(fabric, self._clock.now(), self._up, others[live.name], parts.get(live.name), words)
