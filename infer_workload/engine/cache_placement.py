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
    if (lent := cache.lent) is not None:
        lending = tuple(node for node in nodes if lent.get(node, 0.0) > 0)
        blocks = min(blocks, int(sum(lent[node] for node in lending) // deployment.block_bytes))
        nodes, ssd_blocks = lending, ssd_blocks * len(lending) // max(1, len(nodes))
    return cache.move_to(nodes, blocks, ssd_blocks)


def adapted_cache(cache: ContextCache, deployment: Deployment) -> ContextCache:
    """The cache for a new layout, placed on its nodes: this one or, if the block size, eviction policy or project share
    changed, a new one that takes over the blocks, unless their size changed. Counts are kept."""
    fresh = deployment.context_cache()
    if fresh.terms == cache.terms:
        place_cache(cache, deployment)
        return cache
    fresh.lent, fresh.counts = cache.lent, cache.counts
    place_cache(fresh, deployment)
    if fresh.block_tokens == cache.block_tokens:
        fresh.warm(cache.stored())
    return fresh


def lend_memory(cache: ContextCache, deployment: Deployment, lent: Mapping[str, float] | None) -> int:
    """Use that many bytes of each node from now on; None: as the layout says. Return how many blocks are lost."""
    cache.lent = lent
    return place_cache(cache, deployment)


def forget_owed(cache: ContextCache, left: Mapping[Prefiller, set[int]]) -> None:
    """After prompts were withdrawn from instances, forget those of their blocks that no other prompt there computes."""
    for instance, blocks in left.items():
        owed = cache.owed(blocks, instance.number)
        cache.forget(owed - instance.still_due(owed, cache.block_tokens), instance.number)
