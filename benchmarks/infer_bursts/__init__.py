"""The error from letting a deployment's pools see each other's traffic as a mean instead of as bursts.

On the ports, decode's exchanges compete with the blocks that prefill instances read from the memory of decode nodes.
Pools are on separate nodes, so nothing else of one deployment competes over UB. The same core that moves traffic over
the ports computes decode's rate while 0 to 6 instances read at the full rate of a fetch, and beside the mean of their
reading. The share of time in which an instance reads is taken from the Mooncake trace if available, else from seeded
traffic; and a tenth, which is more than any reuse of prompts leads to. Instances are independent, so the number that
read at one moment is binomial.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import comb

from benchmarks import Figure
from benchmarks.infer_replay import MOONCAKE
from infer_workload.engine.engine import Engine
from infer_workload.engine.request import InferenceRequest
from infer_workload.experiments.conditions import shape_of
from infer_workload.experiments.experiment import generate_arrivals, healthy_fabric
from infer_workload.layout.deployment import lay_out
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.collectives import fetch_gbps
from infer_workload.timing.contention import MeasuredContention
from infer_workload.timing.fabric import UB
from infer_workload.timing.model import load_model
from infer_workload.traffic.generator import read_trace
from matrixcommon.model.hardware_names import NPUS_PER_NODE
from matrixlink.fabric.contention.offers import Offer
from matrixlink.fabric.contention.port_groups import PortGroups
from matrixlink.fabric.contention.programs import PortCondition, Program, Tenant
from matrixlink.fabric.contention.shared_ports import SharedPorts

OWN = "own"
BATCH, CONTEXT = 48, 4224.0
"""Requests per die and tokens of each: the paper's 96 per NPU at 4K, the row with the largest exchanges."""


class PaperDeployment:
    """The paper's deployment on 32 nodes, and its decode steps beside reading prefill instances."""

    def __init__(self) -> None:
        self.machine = load_calibration()
        self.deployment = lay_out(healthy_fabric(32), load_model(), self.machine)
        self.nodes = tuple(self.deployment.fabric.nodes)
        self.condition = PortCondition.whole(shape_of(self.machine), self.nodes)
        self.instances = self.deployment.pools.prefill
        self.fetch_gbps = fetch_gbps(
            self.deployment.fabric, self.machine, self.instances[0], self.deployment.pools.caching, UB
        )

    @cache  # noqa: B019 one of them lives as long as the benchmark
    def step_s(self, readers: float) -> float:
        """The time of a decode step while that many instances read; a fraction is a mean spread over all instances."""
        groups = PortGroups(self.condition.shape, self.condition.share, self.condition.die_share)
        reading = self.instances[: int(readers)] if readers == int(readers) else self.instances
        targets = tuple(node for nodes in reading for node in nodes)
        offers = []
        if targets:
            per_npu = readers * self.fetch_gbps / (len(self.nodes) * NPUS_PER_NODE)
            offers.append(Offer(OWN, "pull", per_npu, self._programs(self.nodes), self.nodes, targets))
        ports = SharedPorts(groups, self.nodes, offers)
        decode = self.deployment.pools.decode
        gbps = ports.exchange_gbps(OWN, self._programs(decode))
        fabric = self.deployment.fabric.with_contention(MeasuredContention({frozenset(decode): gbps}))
        return replace(self.deployment, fabric=fabric).decode_timing().exact_step_s(BATCH, BATCH * CONTEXT)

    def _programs(self, members: tuple[str, ...]) -> dict[str, Program]:
        return self.condition.programs(Tenant(OWN, UB, tuple(sorted(members)), 1.0, 0.0, None))

    def reading_share(self) -> float:
        """The share of time in which an instance reads blocks, from a replay."""
        arrivals = read_trace(MOONCAKE) if MOONCAKE.exists() else generate_arrivals(4000, seed=0)
        engine = Engine(self.deployment)
        for number, arrival in enumerate(arrivals):
            engine.advance(arrival.at_s)
            engine.submit(
                InferenceRequest(number, arrival.at_s, arrival.input_tokens, arrival.output_tokens, arrival.blocks)
            )
        read_s = engine.prefill.fetched_bytes / (self.fetch_gbps * 1e9) / len(self.instances)
        return read_s / arrivals[-1].at_s


def measure() -> Iterator[Figure]:
    pools = PaperDeployment()
    count = len(pools.instances)
    alone = pools.step_s(0)
    for readers in range(1, count + 1):
        longer = pools.step_s(readers) / alone - 1.0
        yield Figure(f"a step while {readers} of {count} read", longer * 100, "%", "longer than alone; batch 96, 4K")
    for part, whose in ((pools.reading_share(), "the trace's reading"), (0.1, "reading a tenth of the time")):
        odds = [comb(count, at) * part**at * (1 - part) ** (count - at) for at in range(count + 1)]
        exact = sum(rng * pools.step_s(at) for at, rng in enumerate(odds))
        mean = pools.step_s(count * part)
        worst = max(abs(pools.step_s(at) / mean - 1) for at in range(count + 1))
        method = f"an instance reads {part:.3%} of the time; steps beside bursts against those beside their mean"
        yield Figure(f"mean step, {whose}", abs(exact / mean - 1) * 100, "%", method, 2.0)
        yield Figure(f"worst step, {whose}", worst * 100, "%", "all instances read at once, or none does")
