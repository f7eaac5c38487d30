"""Times of moving KV: cached blocks from the caching pool, and prompts from prefill to decode."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from infer_workload.engine.prefill_instance import PrefillInstance
from infer_workload.engine.request import DecodeDie
from infer_workload.layout.deployment import Deployment
from infer_workload.timing.collectives import cache_fetch_s, ssd_read_s
from infer_workload.timing.fabric import RDMA


def fetch_s(
    current: Deployment, pool: Sequence[str], readers: Sequence[str], tokens: int, blocks: int, ssd_tokens: int
) -> float:
    """Seconds that a prefill instance on `readers` waits for the cached blocks of its chunk from the nodes of `pool`;
    `ssd_tokens` of the tokens are on solid state."""
    size = tokens * current.model.kv_bytes_per_token
    plane = current.cache_plane
    ssd_s = ssd_read_s(current.calibration, ssd_tokens * current.model.kv_bytes_per_token, pool)
    return ssd_s + cache_fetch_s(current.fabric, current.calibration, size, blocks, readers, pool, plane)


def port_gbps(current: Deployment, port: object) -> float:
    """The rate of a transfer's port, GB/s: a decode die's own, or all ports of a prefill instance together."""
    fabric, efficiency = current.fabric, current.calibration.rdma_efficiency
    if isinstance(port, DecodeDie):
        return fabric.die_gbps(RDMA, port.node, 1, into=True) * efficiency
    assert isinstance(port, PrefillInstance)
    return sum(fabric.node_gbps(RDMA, node) for node in port.nodes) * efficiency


def new_dies(current: Deployment, nodes: Iterable[str]) -> list[DecodeDie]:
    """Empty decode dies for these nodes."""
    return [DecodeDie(node, index) for node in nodes for index in range(current.calibration.dies_per_node)]


def transfer_start_s(current: Deployment) -> float:
    """The fixed part of a transfer's duration, in seconds."""
    return current.calibration.transfer_request_ms * 1e-3 + current.fabric.latency_s(RDMA)
