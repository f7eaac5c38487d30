"""WorkloadTraffic: puts a deployment's traffic on the emulated ports, and reads back the bandwidth it gets there.

The flows are dispatch and combine of decode and of each prefill instance, KV transfers from prefill to decode, and
reads of cached blocks. The mean rate of each is put on the ports of the nodes, where MatrixLink's counters see it. A
rate is reported again only when it changed by a tenth, because the fabric recomputes its rates each time. The flows
come in bursts, so the answer is the bandwidth of a burst beside the others' traffic. That determines the time of
tokens: this is the only way in which neighbours, floors and lost links affect it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from infer_workload.engine.engine import Engine
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.ports import Hardware, WorkloadLoad, contention_of
from infer_workload.timing.fabric import RDMA
from matrixcommon.model.hardware_names import NPUS_PER_NODE
from matrixcommon.model.resource_key import name_of, sibling_key

PREFIX = "infer-"
MEAN_S = 30.0
"""Intermittent traffic (prefill, KV, cache) is averaged over at least that many emulated seconds."""


@dataclass
class MeanRates:
    """Rates per second of an engine's counters, between two samples at least MEAN_S apart."""

    at: float
    counted: dict[str, float]
    rates: dict[str, float] = field(default_factory=dict)

    def sample(self, now: float, counted: dict[str, float]) -> dict[str, float]:
        """Update the rates if the last sample is old enough, and return them."""
        elapsed = now - self.at
        if elapsed >= MEAN_S:
            before = self.counted
            self.rates = {name: max(0.0, total - before.get(name, 0.0)) / elapsed for name, total in counted.items()}
            self.at, self.counted = now, counted
        return self.rates


def decode_gbps(engine: Engine) -> float:
    """GB/s that a decode node sends to others, per NPU."""
    dies, machine = len(engine.pool.dies), engine.deployment.calibration
    if engine.pool.step_s <= 0 or engine.pool.active == 0:
        return 0.0
    sent = engine.pool.timing.leaving_bytes(engine.pool.active / dies)
    return machine.dies_per_npu * sent / engine.pool.step_s / 1e9


def bytes_moved(engine: Engine) -> dict[str, float]:
    """Bytes moved so far by each kind of traffic: per die for the exchange of a prefill instance with other nodes,
    in total for KV and cache."""
    found = {"kv": engine.transferred_bytes, "cache": engine.prefill.fetched_bytes}
    for instance in engine.prefill.instances:
        found[f"p{instance.number}"] = instance.prefilled_tokens * instance.timing.leaving_bytes_per_token
    return found


def loads_of(live: LiveDeployment, means: dict[str, float]) -> dict[str, WorkloadLoad]:
    """The traffic of a deployment, by the load's name; empty while it does not serve."""
    engine = live.engine
    if engine is None or not live.serves:
        return {}
    instance, pools = live.spec.instance, engine.deployment.pools
    found: dict[str, WorkloadLoad] = {}

    def add(kind: str, load: WorkloadLoad) -> None:
        name = f"{PREFIX}{name_of(live.name)}"
        found[sibling_key(live.name, f"{name}-{kind}" if kind else name)] = load

    decode = tuple(pools.decode)
    plane, dies_per_npu = engine.pool.timing.exchange.plane, engine.deployment.calibration.dies_per_npu
    if engine.pool.timing.leaving_bytes(1.0):
        add("", WorkloadLoad(instance, plane, "all-to-all", decode, decode_gbps(engine)))
    for each in engine.prefill.instances:
        if each.timing.leaving_bytes_per_token:
            rate = dies_per_npu * means.get(f"p{each.number}", 0.0) / 1e9
            add(f"prefill-{each.number}", WorkloadLoad(instance, plane, "all-to-all", each.nodes, rate))
    prefill = tuple(node for nodes in pools.prefill for node in nodes)
    if prefill:
        rate = means.get("kv", 0.0) / 1e9 / (len(prefill) * NPUS_PER_NODE)
        add("kv", WorkloadLoad(instance, RDMA, "pull", prefill, rate, decode))
    caching = engine.cache.nodes
    if prefill and caching and engine.cache.capacity > 0:
        rate = means.get("cache", 0.0) / 1e9 / (len(caching) * NPUS_PER_NODE)
        plane = engine.deployment.cache_plane
        add("cache", WorkloadLoad(instance, plane, "pull", tuple(caching), rate, prefill))
    return found


class WorkloadTraffic:
    """Keeps the loads on the hardware equal to what deployments send. The first call after a start finds the loads that
    a former process left there."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._offered: dict[str, WorkloadLoad | None] | None = None
        self._means: dict[Engine, MeanRates] = {}
        """By engine rather than name, since a deployment's next engine counts from zero."""

    async def sync_loads(self, deployments: Iterable[LiveDeployment], now: float) -> int:
        """Bring the loads up to date. Return how many were reported. Raises Unavailable if the hardware does not
        answer."""
        known, self._means, loads = self._means, {}, dict[str, WorkloadLoad]()
        for live in deployments:
            if (engine := live.engine) is not None:
                moved = bytes_moved(engine)
                means = self._means[engine] = known.get(engine) or MeanRates(now, moved)
                loads |= loads_of(live, means.sample(now, moved))
        if self._offered is None:
            self._offered = {
                name: None for name in await self._hardware.traffic_names() if name_of(name).startswith(PREFIX)
            }
        reported = 0
        for name, load in loads.items():
            if not load.close_to(self._offered.get(name)):
                await self._hardware.offer(name, load)
                self._offered[name] = load
                reported += 1
        for name in [name for name in self._offered if name not in loads]:
            await self._hardware.offer(name, None)
            del self._offered[name]
            reported += 1
        return reported

    async def observe_contention(self, deployments: Iterable[LiveDeployment], now: float) -> int:
        """Time the deployments' flows with the present contention. Return how many changed. Raises Unavailable if the
        hardware does not answer."""
        offered = {name: load for name, load in (self._offered or {}).items() if load is not None}
        if not offered:
            return 0
        bursts = await self._hardware.bursts()
        changed = 0
        for live in deployments:
            names = loads_of(live, {})
            own = {name: offered[name] for name in names if name in offered}
            if own:
                changed += live.apply_contention(contention_of(own, bursts), now)
        return changed
