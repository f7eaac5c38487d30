"""WorkloadTraffic: what decoding sends over UB, put on the emulated ports so that MatrixLink's counters see it.

Dispatch and combine move so many bytes per layer and step; over the time a step takes that is a rate, and the part of
it that leaves a node goes over its ports. It is reported again only when it changed by a tenth: the fabric works its
rates out again each time. Nothing comes back from it: how fast tokens come is decided by the FabricView alone. What
prefill sends, and caches that move over RDMA and VPC, are not put there.
"""

from __future__ import annotations

from collections.abc import Iterable

from infer_workload.serving.live_deployment import LiveDeployment
from infer_workload.serving.ports import DecodeTraffic, Hardware
from infer_workload.timing.fabric import DIES_PER_NODE
from matrixcommon.model.resource_key import name_of, sibling

PREFIX = "infer-"
DIES_PER_NPU = 2


def decode_traffic(live: LiveDeployment) -> DecodeTraffic | None:
    """What a deployment's decode pool sends now; None while nothing leaves a node."""
    engine = live.engine
    if engine is None or not live.serves or engine.pool.step_s <= 0 or engine.pool.active == 0:
        return None
    nodes, dies = tuple(engine.deployment.pools.decode), len(engine.pool.dies)
    away = (dies - DIES_PER_NODE) / max(1, dies - 1)
    if away <= 0:
        return None
    sent = engine.pool.timing.sent_bytes(engine.pool.active / dies)
    gbps = DIES_PER_NPU * away * sent / engine.pool.step_s / 1e9
    return DecodeTraffic(live.spec.instance, nodes, gbps)


class WorkloadTraffic:
    """Keeps the loads on the hardware to what deployments send. After a start the first look finds those that an
    earlier life left there."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._offered: dict[str, DecodeTraffic | None] | None = None

    async def tell(self, lives: Iterable[LiveDeployment]) -> int:
        """Bring the loads up to date; how many were reported. Raises Unavailable where the hardware cannot be asked."""
        now = {
            sibling(live.name, PREFIX + name_of(live.name)): found for live in lives if (found := decode_traffic(live))
        }
        if self._offered is None:
            self._offered = {
                name: None for name in await self._hardware.traffic_names() if name_of(name).startswith(PREFIX)
            }
        reported = 0
        for name, traffic in now.items():
            if not traffic.close_to(self._offered.get(name)):
                await self._hardware.offer(name, traffic)
                self._offered[name] = traffic
                reported += 1
        for name in [name for name in self._offered if name not in now]:
            await self._hardware.offer(name, None)
            del self._offered[name]
            reported += 1
        return reported
