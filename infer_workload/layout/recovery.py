"""Recovery of a deployment when its fabric changes: the next layout, and how long the transition takes.

There are two kinds of change. A loss takes effect at once: decode rebuilds its ranks without the lost dies (each expert
keeps at least one copy) and continues with the rest. A gain takes effect when the new nodes are ready: executors start,
weights come from the model cache, graphs are loaded; then decode rebuilds again. A change of link rates alone costs
nothing but a different time for the next step. The duration is the sum of its parts: ranks that form new groups,
graphs, executors, and the weights to read, at the rate of the caching pool. Prefill recomputes the KV of requeued
requests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from infer_workload.ems.model_cache import ModelCache
from infer_workload.layout.deployment import Deployment, DoesNotFit, lay_out, with_fabric
from infer_workload.timing.calibration import Calibration
from infer_workload.timing.collectives import fetch_gbps
from infer_workload.timing.fabric import Fabric


@dataclass(frozen=True)
class LayoutChange:
    """A switch to `deployment`: decode pauses for `pause_s`, new prefill instances serve after `start_s`.

    `added_nodes` nodes are in the new view but not used yet; add them with `plan_scale_out` after `added_after_s`.
    """

    deployment: Deployment
    pause_s: float
    start_s: float
    added_nodes: tuple[str, ...] = ()
    added_after_s: float = 0.0


def plan_change(
    current: Deployment, fabric: Fabric, weights: ModelCache | None = None, *, at_any_size: bool = False
) -> LayoutChange:
    """The next layout under a new view of the fabric.

    New nodes are left out until they have loaded; if the surviving ones cannot serve alone, everything starts over.
    Raises DoesNotFit if even all nodes cannot serve. With `at_any_size`, fewer nodes than the spec's sizes may serve.
    """
    allocated = current.calibration
    cache = weights or ModelCache(allocated, {current.model.name})
    playing = current.pools.nodes
    nodes = set(fabric.nodes)
    gained = tuple(sorted(nodes - playing))
    start_s = allocated.executor_start_s + allocated.graph_load_s
    try:
        survivors = fabric.restricted_to(nodes & playing)
        deployment = _laid_out(current, survivors, at_any_size)
    except DoesNotFit:
        deployment = _laid_out(current, fabric, at_any_size)
        loading = load_s(deployment, cache)
        return LayoutChange(deployment, start_s + loading, start_s + loading)
    pause = decode_pause_s(current, deployment)
    roles_kept = set(deployment.pools.prefill) <= set(current.pools.prefill)
    loading_s = load_s(deployment, cache)
    if playing <= nodes and set(deployment.pools.decode) - set(current.pools.decode):  # a planned change of roles
        pause = rebuild_s(allocated) + loading_s
    start = 0.0 if roles_kept else rebuild_s(allocated) + loading_s
    return LayoutChange(deployment, pause, start, gained, start_s + loading_s)


def plan_change_at_any_size(current: Deployment, fabric: Fabric, weights: ModelCache) -> LayoutChange:
    """The same, with pools as close to the requested sizes as the nodes allow; if the model does not fit that split,
    with pools in the default proportions."""
    try:
        return plan_change(current, fabric, weights, at_any_size=True)
    except DoesNotFit:
        if current.spec.prefill_npus is None and current.spec.decode_npus is None:
            raise
        smaller = current.spec.model_copy(update={"prefill_npus": None, "decode_npus": None})
        change = plan_change(replace(current, spec=smaller), fabric, weights)
        return replace(change, deployment=replace(change.deployment, spec=current.spec))


def keep_roles(current: Deployment, fabric: Fabric, weights: ModelCache) -> LayoutChange:
    """The same roles under a view that still shows all of their nodes: no node changes role during a handover."""
    kept, rates = with_fabric(current, fabric), current.calibration
    gained = tuple(sorted(set(fabric.nodes) - current.pools.nodes))
    return LayoutChange(kept, 0.0, 0.0, gained, rates.executor_start_s + rates.graph_load_s + load_s(kept, weights))


def plan_scale_out(current: Deployment, fabric: Fabric, weights: ModelCache | None = None) -> LayoutChange:
    """The layout on all nodes of the view, as close to the requested sizes as they allow. Nodes without a role have
    loaded by now; nodes that change role read the weights of the new one first. Raises DoesNotFit."""
    deployment = _laid_out(current, fabric, at_any_size=True)
    before, after = current.pools, deployment.pools
    added = {node for instance in after.prefill if instance not in before.prefill for node in instance}
    switch_s = role_switch_s(deployment, weights)
    pause = decode_pause_s(current, deployment)
    if (set(after.decode) - set(before.decode)) & before.nodes:
        pause = max(pause, switch_s)
    return LayoutChange(deployment, pause, switch_s if added & before.nodes else 0.0)


def _laid_out(current: Deployment, fabric: Fabric, at_any_size: bool) -> Deployment:
    sizes = current.spec, current.pools, current.scale
    return lay_out(fabric, current.model, current.calibration, *sizes, at_any_size=at_any_size)


def rebuild_s(calibration: Calibration) -> float:
    """Seconds in which ranks form new groups and load their graphs; no weights are read."""
    return calibration.rank_rebuild_s + calibration.graph_load_s


def decode_pause_s(before: Deployment, after: Deployment) -> float:
    """How long decode pauses while its ranks change: they are rebuilt, and if fewer dies have to hold more experts,
    each reads those it lacks. 0 if the ranks stay the same."""
    if after.pools.decode == before.pools.decode:
        return 0.0
    more = max(0, after.decode_layout.experts_per_die - before.decode_layout.experts_per_die)
    size = more * after.model.expert_bytes * after.decode_dies
    plane = after.calibration.memory_plane
    rate = fetch_gbps(after.fabric, after.calibration, after.pools.decode, after.pools.caching, plane)
    reading = size / (rate * 1e9) if size and rate > 0 else 0.0
    return rebuild_s(after.calibration) + reading


def role_switch_s(deployment: Deployment, weights: ModelCache | None = None) -> float:
    """Seconds in which dies change role: ranks are rebuilt and every die reads the weights of its new role."""
    loading_s = weights_load_s(deployment) if weights is None else load_s(deployment, weights)
    return rebuild_s(deployment.calibration) + loading_s


def cold_start_s(deployment: Deployment, weights: ModelCache) -> float:
    """Seconds from nothing to serving: executors, weights and graphs."""
    current = deployment.calibration
    return current.executor_start_s + current.graph_load_s + load_s(deployment, weights)


def weights_load_s(deployment: Deployment) -> float:
    """Seconds in which the dies of all roles read their weights from the pool's memory."""
    return load_s(deployment, ModelCache(deployment.calibration, {deployment.model.name}))


def load_s(deployment: Deployment, weights: ModelCache) -> float:
    """Seconds until all dies have their weights, from the tier in which the model cache has them."""
    pools = deployment.pools
    readers = [*pools.decode, *(node for instance in pools.prefill for node in instance)]
    experts = max([deployment.decode_layout, *deployment.prefill_layouts], key=lambda layout: layout.experts_per_die)
    return weights.load_s(deployment.model, deployment.fabric, readers, pools.caching, experts.experts_per_die)
