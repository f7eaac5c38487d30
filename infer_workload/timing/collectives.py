"""Communication times between dies: expert dispatch and combine, cache transfers, fetches from the context cache.

Each is a start-up time, an issue cost on the sending cores, and bytes over a port; a token costs more as the number of
ranks grows. The bytes move at the rate the fabric leaves beside other flows, so a lost link, a slower port or a
neighbour's traffic lengthens the exchange. No exchange is faster than its bytes over one die's ports. Bytes, seconds,
GB/s in one direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log2

from infer_workload.timing.calibration import Calibration
from infer_workload.timing.fabric import UB, VPC, Fabric
from infer_workload.timing.operators import EXPERTS, Operator
from infer_workload.timing.operators import UB as PORT


@dataclass(frozen=True)
class Exchange:
    """All-to-all among the dies of one pool: `ranks` dies on `nodes` over `fabric`."""

    fabric: Fabric
    calibration: Calibration
    nodes: tuple[str, ...]
    ranks: int

    @property
    def plane(self) -> str:
        """The plane that carries traffic to dies of other nodes."""
        return UB

    def _remote_share(self, ranks: int | None = None) -> float:
        """The share of a die's traffic to all other ranks (by default, of this exchange) that leaves its node."""
        ranks, inside = ranks or self.ranks, self.calibration.dies_per_node
        return max(0.0, (ranks - inside) / max(1, ranks - 1))

    def rate_gbps(self, efficiency: float = 1.0) -> float:
        """Payload rate of the slowest die."""
        key = (self.nodes, self.ranks)
        rate = self.fabric.reduced.get(key)
        if rate is None:
            rate = self.fabric.reduced[key] = self.fabric.exchange_gbps(
                self.nodes, self.ranks, self.calibration.dies_per_node
            )
        return rate * efficiency

    @property
    def rates_gbps(self) -> tuple[float, ...]:
        """Every rate of the fabric that the exchange's times depend on; a cache key for step times."""
        return (self.rate_gbps(),)

    def dispatch(self, tokens: float, copies: float | None = None) -> Operator:
        """Fused dispatch: tokens of each die to their experts, INT8 with scales, written by the vector cores."""
        current = self.calibration
        issue = tokens * current.dispatch_issue_us * 1e-6
        return self._fused("dispatch", tokens, copies, current.dispatch_token_bytes, issue)

    def combine(self, tokens: float, copies: float | None = None) -> Operator:
        """Fused combine: expert results back to the dies of their tokens, BF16, weighted and summed there."""
        return self._fused("combine", tokens, copies, self.calibration.combine_token_bytes, 0.0)

    def dispatch_s(self, tokens: float) -> float:
        """Time of a dispatch of `tokens` per die, using all cores."""
        return self.dispatch(tokens).seconds()

    def combine_s(self, tokens: float) -> float:
        """Time of a combine of `tokens` per die, using all cores."""
        return self.combine(tokens).seconds()

    def bulk_dispatch(self, tokens: float, copies: float) -> Operator:
        """A dispatch of thousands of tokens per die."""
        size = tokens * copies * self.calibration.dispatch_token_bytes
        return self.bulk("dispatch", EXPERTS, size, "bulk_dispatch_efficiency")

    def bulk_combine(self, tokens: float, copies: float) -> Operator:
        """The combine that answers a `bulk_dispatch`."""
        size = tokens * copies * self.calibration.combine_token_bytes
        return self.bulk("combine", EXPERTS, size, "bulk_combine_efficiency")

    def bulk(
        self, name: str, stream: str, size_bytes: float, rate: str = "ub_efficiency", ranks: int | None = None
    ) -> Operator:
        """A large exchange moved by the SDMA engines, without using cores. `rate` names the constant with its share of
        the port's rate; `ranks` is the number of dies that take part, by default all."""
        efficiency = getattr(self.calibration, rate)
        return Operator(
            name, stream, PORT, 0.0, start_s=self.calibration.exchange_start_us * 1e-6,
            wire_s=self._wire_s(size_bytes, efficiency), wire_bytes=size_bytes,
            leaving_bytes=size_bytes * self._remote_share(ranks), rate=rate,
        )  # fmt: skip

    def bulk_s(self, tokens: float, bytes_per_token: float) -> float:
        """Seconds that the bytes of a large exchange take on the wire, without its start-up time."""
        return self._wire_s(tokens * bytes_per_token, self.calibration.ub_efficiency)

    def _fused(self, name: str, tokens: float, copies: float | None, size: int, issue_s: float) -> Operator:
        current = self.calibration
        doublings = log2(self.ranks / 8) if self.ranks > 8 else 0.0
        sent = tokens * (current.exchange_copies if copies is None else copies) * size
        growth = tokens * current.exchange_growth_us * doublings * 1e-6
        return Operator(
            name, EXPERTS, PORT, 0.0, start_s=current.exchange_start_us * 1e-6, issue_s=issue_s,
            wire_s=growth + self._wire_s(sent, current.ub_efficiency), wire_bytes=sent,
            leaving_bytes=sent * self._remote_share(), rate="ub_efficiency",
        )  # fmt: skip

    def _wire_s(self, size_bytes: float, efficiency: float) -> float:
        rate = self.rate_gbps(efficiency)
        return size_bytes / (rate * 1e9) if rate > 0 else inf


def cache_fetch_s(
    fabric: Fabric,
    calibration: Calibration,
    size_bytes: float,
    blocks: int,
    reader_nodes: Sequence[str],
    pool_nodes: Sequence[str],
    plane: str = UB,
) -> float:
    """Time to fetch cached blocks into a prefill instance, over UB from CPU memory or over VPC through the nodes'
    cards.

    All dies of the instance read at once; the CPUs of the caching nodes and the ports of the reading nodes limit the
    rate.
    """
    if blocks == 0:
        return 0.0
    start = calibration.cache_request_ms * 1e-3 + fabric.latency_s(plane)
    rate = fetch_gbps(fabric, calibration, reader_nodes, pool_nodes, plane)
    if rate <= 0:
        return inf
    per_die = blocks / max(1, len(reader_nodes) * calibration.dies_per_node)
    return start + per_die * calibration.cache_block_us * 1e-6 + size_bytes / (rate * 1e9)


def ssd_read_s(calibration: Calibration, size_bytes: float, pool_nodes: Sequence[str]) -> float:
    """Time to read blocks back into the cache's memory, from the volumes of all its nodes in parallel."""
    rate = calibration.ssd_gbps * len(pool_nodes) * 1e9
    return size_bytes / rate if size_bytes else 0.0


def fetch_gbps(
    fabric: Fabric, calibration: Calibration, reader_nodes: Sequence[str], pool_nodes: Sequence[str], plane: str
) -> float:
    """Rate at which an instance reads from the caching nodes; 0 if the fabric view lacks the plane."""
    key = (tuple(reader_nodes), tuple(pool_nodes), plane)
    if key not in fabric.reduced:
        fabric.reduced[key] = _fetch_gbps(fabric, calibration, reader_nodes, pool_nodes, plane)
    return fabric.reduced[key]


def _fetch_gbps(
    fabric: Fabric, calibration: Calibration, reader_nodes: Sequence[str], pool_nodes: Sequence[str], plane: str
) -> float:
    if plane == VPC:
        into = sum(fabric.node_gbps(VPC, node, into=True) for node in reader_nodes)
        out = sum(fabric.node_gbps(VPC, node) for node in pool_nodes)
        return min(into, out) * calibration.vpc_efficiency
    dies = calibration.dies_per_node
    healthy = calibration.ub_sub_planes * calibration.ub_port_gbps
    into = sum(
        dies * calibration.ub_cpu_read_gbps * min(1.0, fabric.die_gbps(UB, node, dies, into=True) / healthy)
        for node in reader_nodes
    )
    out = sum(
        min(calibration.cpus_per_node * calibration.cpu_ub_gbps, fabric.node_gbps(UB, node)) for node in pool_nodes
    )
    return min(into, out)
