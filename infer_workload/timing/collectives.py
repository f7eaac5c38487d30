"""The time of what dies say to each other: dispatch and combine of experts, cache transfers, fetches from the pool.

Each is a start, an issue cost on the sending cores, and bytes over a port. The bytes move at what the FabricView
grants: a lost link, a slower port or a neighbour's share lengthens them. No exchange is ever faster than its bytes
over the ports of one die. Bytes, seconds, GB/s in one direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log2

from infer_workload.timing.calibration import Calibration
from infer_workload.timing.fabric import DIES_PER_NODE, UB, VPC, Fabric


@dataclass(frozen=True)
class Exchange:
    """All-to-all among the dies of one pool: `ranks` dies on `nodes` over `fabric`."""

    fabric: Fabric
    calibration: Calibration
    nodes: tuple[str, ...]
    ranks: int

    def rate_gbps(self, efficiency: float = 1.0) -> float:
        """Payload rate of the slowest die."""
        key = (self.nodes, self.ranks)
        rate = self.fabric.reduced.get(key)
        if rate is None:
            senders = min(self.ranks, DIES_PER_NODE)
            remote = (self.ranks - senders) / max(1, self.ranks - 1)
            rate = self.fabric.reduced[key] = self.fabric.slowest_die_gbps(UB, self.nodes, senders, remote)
        return rate * efficiency

    def dispatch_s(self, tokens: float, imbalance: float = 1.0) -> float:
        """Tokens of each die to their experts, INT8 with scales, `tokens` a die."""
        current = self.calibration
        return self._exchange_s(
            tokens, current.dispatch_issue_us, current.dispatch_issue_growth_us, current.dispatch_token_bytes, imbalance
        )

    def combine_s(self, tokens: float, imbalance: float = 1.0) -> float:
        """Expert results back to the dies of their tokens, BF16."""
        current = self.calibration
        return self._exchange_s(
            tokens, current.combine_issue_us, current.combine_issue_growth_us, current.combine_token_bytes, imbalance
        )

    def bulk_s(self, tokens: float, bytes_per_token: float, imbalance: float = 1.0) -> float:
        """A large exchange moved by the SDMA engines: bytes alone, no issue cost on the cores."""
        return self._wire_s(tokens * bytes_per_token * imbalance, self.calibration.ub_efficiency)

    def _exchange_s(self, tokens: float, issue_us: float, growth_us: float, size: int, imbalance: float) -> float:
        doublings = max(0.0, log2(self.ranks / 8)) if self.ranks > 0 else 0.0
        issue = (self.calibration.exchange_base_us + tokens * (issue_us + growth_us * doublings)) * 1e-6
        copies = self.calibration.exchange_copies
        return issue + self._wire_s(tokens * copies * size * imbalance, self.calibration.ub_efficiency)

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
    """Fetching cached blocks into a prefill instance, over UB from CPU memory or over VPC through the nodes' cards.

    All dies of the instance read at once; the CPUs of the pool's nodes and the reading nodes' ports bound it.
    """
    if blocks == 0:
        return 0.0
    start = calibration.cache_request_ms * 1e-3 + fabric.latency_s(plane)
    rate = fetch_gbps(fabric, calibration, reader_nodes, pool_nodes, plane)
    if rate <= 0:
        return inf
    per_die = blocks / max(1, len(reader_nodes) * DIES_PER_NODE)
    return start + per_die * calibration.cache_block_us * 1e-6 + size_bytes / (rate * 1e9)


def fetch_gbps(
    fabric: Fabric, calibration: Calibration, reader_nodes: Sequence[str], pool_nodes: Sequence[str], plane: str
) -> float:
    """Rate at which an instance reads the caching pool. Zero where the plane is not held."""
    key = (tuple(reader_nodes), tuple(pool_nodes), plane)
    if key not in fabric.reduced:
        fabric.reduced[key] = _fetch_gbps(fabric, calibration, reader_nodes, pool_nodes, plane)
    return fabric.reduced[key]


def _fetch_gbps(
    fabric: Fabric, calibration: Calibration, reader_nodes: Sequence[str], pool_nodes: Sequence[str], plane: str
) -> float:
    if plane == VPC:
        into = sum(fabric.node_gbps(VPC, node) for node in reader_nodes)
        out = sum(fabric.node_gbps(VPC, node) for node in pool_nodes)
        return min(into, out) * calibration.vpc_efficiency
    healthy = 7 * 28.0
    into = sum(
        DIES_PER_NODE * calibration.ub_cpu_read_gbps * min(1.0, fabric.die_gbps(UB, node) / healthy)
        for node in reader_nodes
    )
    out = sum(
        min(calibration.cpus_per_node * calibration.cpu_ub_gbps, fabric.node_gbps(UB, node)) for node in pool_nodes
    )
    return min(into, out)
