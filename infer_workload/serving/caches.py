"""The views of a deployment's caches, and export and import of context-cache blocks."""

from __future__ import annotations

from collections.abc import Mapping

from infer_workload.contract.caches import (
    CachedBlock,
    CachedModelView,
    ContextCacheView,
    ModelCacheView,
    WarmRequest,
    WarmView,
)
from infer_workload.ems.context_cache import StoredBlock
from infer_workload.ems.model_cache import MEMORY, SOLID_STATE, weights_gb
from infer_workload.engine.engine import Engine
from infer_workload.layout.deployment import Deployment, DoesNotFit, lay_out
from infer_workload.layout.recovery import cold_start_s, load_s, role_switch_s
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.timing.model import ServedModel
from matrixcommon.model.errors import Conflict, InvalidField
from matrixcommon.model.resource_key import name_of

EXPORT_PAGE_MAX = 10_000
"""Blocks per page, about 80 bytes each, so that one page can be the body of an import."""


def export(live: LiveDeployment, page_size: int, page_token: str | None) -> ContextCacheView:
    """One page of the blocks. Pages are not a snapshot: a block that changes place between two pages may be missed."""
    engine = _engine_of(live)
    try:
        first = int(page_token or 0)
    except ValueError:
        first = -1
    if first < 0:
        raise InvalidField(f"{(page_token or '')[:40]!r} is not a page token of these blocks", field="pageToken")
    cache, stored = engine.cache, engine.cache.list_stored()
    memory, solid = cache.tier_blocks()
    shown = stored[first : first + page_size]
    return ContextCacheView(
        model=live.spec.model,
        block_tokens=cache.block_tokens,
        memory_blocks=memory,
        memory_blocks_max=max(0, cache.capacity),
        ssd_blocks=solid,
        ssd_blocks_max=max(0, cache.ssd_capacity),
        nodes=list(cache.nodes),
        blocks=[
            CachedBlock(
                key=str(each.key), node=each.node, tier=SOLID_STATE if each.ssd else MEMORY, namespace=each.namespace
            )
            for each in shown
        ],
        next_page_token=str(first + page_size) if first + page_size < len(stored) else None,
    )


def warm(live: LiveDeployment, request: WarmRequest, *, validate_only: bool = False) -> WarmView:
    """Add these blocks, as far as they are on nodes that cache here. Raises InvalidField for another model or block
    size, Conflict if the deployment has no cache now."""
    cache = _engine_of(live).cache
    if request.model != live.spec.model:
        text = f"the blocks hold KV of {request.model[:80]}, but the deployment serves {live.spec.model}"
        raise InvalidField(text, field="model")
    if request.block_tokens != cache.block_tokens:
        text = f"the blocks have {request.block_tokens} tokens, those of this cache {cache.block_tokens}"
        raise InvalidField(text, field="blockTokens")
    blocks = [
        StoredBlock(int(each.key), each.node, each.tier == SOLID_STATE, each.namespace) for each in request.blocks
    ]
    found = cache.warm(blocks, dry_run=validate_only)
    return WarmView(taken=found.taken, known=found.known, elsewhere=found.elsewhere, no_room=found.no_room)


def model_cache_view(live: LiveDeployment, models: Mapping[str, ServedModel]) -> ModelCacheView:
    """The models in the cache, their tier, and how long this deployment's dies take to load each."""
    current, weights = _engine_of(live).deployment, live.layout.weights
    pool = current.pools.caching
    tiers, nodes = weights.tiers(pool), weights.granted_nodes(pool)
    size = {name: weights_gb(models[name]) for name in tiers}
    used = sum(size[name] for name, tier in tiers.items() if tier == MEMORY)
    memory = min(weights.memory_bytes(pool) / 1e9, weights.node_bytes(len(pool)) * len(pool) / 1e9)
    shown = []
    for name, tier in tiers.items():
        laid = current if name == live.spec.model else _laid_out(live, current, models[name])
        view = CachedModelView(model=name, served=name == live.spec.model, gb=size[name], tier=tier)
        if laid is not None:
            view.load_s, view.switch_s = load_s(laid, weights), role_switch_s(laid, weights)
            view.start_s = cold_start_s(laid, weights)
        shown.append(view)
    return ModelCacheView(
        nodes=len(nodes),
        memory_gb=memory,
        used_gb=used,
        ssd_gb=weights.ssd_gb_per_node * len(nodes),
        ssd_used_gb=sum(size[name] for name, tier in tiers.items() if tier == SOLID_STATE),
        models=shown,
    )


def _laid_out(live: LiveDeployment, current: Deployment, model: ServedModel) -> Deployment | None:
    try:
        return lay_out(current.fabric, model, current.calibration, live.spec, current.pools, current.scale)
    except DoesNotFit:
        return None


def _engine_of(live: LiveDeployment) -> Engine:
    if live.engine is None:
        raise Conflict(f"{name_of(live.name)} has no layout and so no caches: {live.why}")
    return live.engine
