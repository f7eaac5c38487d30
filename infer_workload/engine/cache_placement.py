"""Where the blocks of the context cache may lie, and how many: what the layout says, as far as nodes lend memory; and
which of those that are promised nobody computes any more."""

from __future__ import annotations

from collections.abc import Mapping

from infer_workload.ems.context_cache import ContextCache
from infer_workload.engine.request import Prefiller
from infer_workload.layout.deployment import Deployment


def place_cache(cache: ContextCache, deployment: Deployment) -> int:
    """Have the cache on the caching nodes that lend memory, with so many blocks as there is room for. Returns how many
    blocks are lost."""
    nodes, blocks, ssd_blocks = deployment.pools.caching, deployment.cache_blocks, deployment.cache_ssd_blocks
    if (lent := cache.lent) is not None:
        lending = tuple(node for node in nodes if lent.get(node, 0.0) > 0)
        blocks = min(blocks, int(sum(lent[node] for node in lending) // deployment.block_bytes))
        nodes, ssd_blocks = lending, ssd_blocks * len(lending) // max(1, len(nodes))
    return cache.move_to(nodes, blocks, ssd_blocks)


def adapted_cache(cache: ContextCache, deployment: Deployment) -> ContextCache:
    """The cache that a layout is to have from now on, placed: this one, or, where it says that blocks are of another
    size, go by another policy or have other shares, one that begins with what this one holds. Of blocks of another size
    it can use none. What was counted stays counted."""
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
    """The same with so many bytes of each node from now on; None: as the layout says."""
    cache.lent = lent
    return place_cache(cache, deployment)


def forget_owed(cache: ContextCache, left: Mapping[Prefiller, set[int]]) -> None:
    """Prompts with these blocks were withdrawn from instances: what no other prompt there computes is forgotten."""
    for instance, blocks in left.items():
        owed = cache.owed(blocks, instance.number)
        cache.forget(owed - instance.still_due(owed, cache.block_tokens), instance.number)
