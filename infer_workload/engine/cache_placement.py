"""Placement of the context cache: its nodes and capacity by the layout and the memory lent, and the promised blocks
that no prompt computes any more."""

from __future__ import annotations

from collections.abc import Mapping

from infer_workload.ems.context_cache import ContextCache
from infer_workload.engine.request import Prefiller
from infer_workload.layout.deployment import Deployment


def place_cache(cache: ContextCache, deployment: Deployment) -> int:
    """Place the cache on the caching nodes that lend memory, with as many blocks as fit. Return how many blocks are
    lost."""
    nodes, blocks, ssd_blocks = deployment.pools.caching, deployment.cache_blocks, deployment.cache_ssd_blocks
    if (granted_bytes := cache.granted_bytes) is not None:
        granted_nodes = tuple(node for node in nodes if granted_bytes.get(node, 0.0) > 0)
        blocks = min(blocks, int(sum(granted_bytes[node] for node in granted_nodes) // deployment.block_bytes))
        nodes, ssd_blocks = granted_nodes, ssd_blocks * len(granted_nodes) // max(1, len(nodes))
    return cache.move_to(nodes, blocks, ssd_blocks)


def adapt_cache(cache: ContextCache, deployment: Deployment) -> ContextCache:
    """The cache for a new layout, placed on its nodes: this one or, if the block size, eviction policy or project share
    changed, a new one that takes over the blocks, unless their size changed. Counts are kept."""
    fresh = deployment.context_cache()
    if fresh.immutable_parameters == cache.immutable_parameters:
        place_cache(cache, deployment)
        return cache
    fresh.granted_bytes, fresh.counts = cache.granted_bytes, cache.counts
    place_cache(fresh, deployment)
    if fresh.block_tokens == cache.block_tokens:
        fresh.warm(cache.list_stored())
    return fresh


def set_granted_memory(cache: ContextCache, deployment: Deployment, granted_bytes: Mapping[str, float] | None) -> int:
    """Use that many bytes of each node from now on; None: as the layout says. Return how many blocks are lost."""
    cache.granted_bytes = granted_bytes
    return place_cache(cache, deployment)


def drop_orphaned_blocks(cache: ContextCache, withdrawn: Mapping[Prefiller, set[int]]) -> None:
    """After prompts were withdrawn from instances, forget those of their blocks that no other prompt there computes."""
    for instance, blocks in withdrawn.items():
        in_flight = cache.in_flight(blocks, instance.number)
        cache.drop_in_flight(in_flight - instance.blocks_recomputed(in_flight, cache.block_tokens), instance.number)
