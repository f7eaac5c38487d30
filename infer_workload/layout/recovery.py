"""What a deployment does when its fabric changes: the next layout, and how long getting there takes.

Two kinds of change. A loss is taken at once: decode rebuilds its ranks without the lost dies (each expert keeps at
least one copy) and continues with what is left. A gain is taken when the new nodes are ready: executors start, weights
come from the model cache, graphs are loaded; then decode rebuilds again. A change of link rates alone costs
nothing: the next step simply takes another time. Durations are published for other deployments of the same kind; the
calibration names them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from infer_workload.ems.model_cache import ModelCache
from infer_workload.layout.deployment import Deployment, DoesNotFit, lay_out
from infer_workload.timing.fabric import Fabric


@dataclass(frozen=True)
class Change:
    """Go over to `deployment`: decode stands still for `pause_s`, new prefill instances serve after `start_s`.

    `gained` nodes were in the new view but are not used yet; take them with `plan_gain` after `gain_after_s`.
    """

    deployment: Deployment
    pause_s: float
    start_s: float
    gained: tuple[str, ...] = ()
    gain_after_s: float = 0.0


def plan_change(current: Deployment, fabric: Fabric, weights: ModelCache | None = None) -> Change:
    """The next layout under a new view of the fabric.

    Nodes that are new wait until they have loaded; if the surviving ones cannot serve alone, everything starts anew.
    Raises DoesNotFit when even all of them cannot.
    """
    allocated = current.calibration
    cache = weights or ModelCache(allocated, {current.model.name})
    playing = current.pools.nodes
    nodes = set(fabric.nodes)
    gained = tuple(sorted(nodes - playing))
    start_s = allocated.executor_start_s + allocated.graph_load_s
    try:
        survivors = fabric.only(nodes & playing)
        deployment = lay_out(survivors, current.model, allocated, current.spec, current.pools, current.scale)
    except DoesNotFit:
        deployment = lay_out(fabric, current.model, allocated, current.spec, current.pools, current.scale)
        loading = _load_s(deployment, cache)
        return Change(deployment, start_s + loading, start_s + loading)
    pause = allocated.decode_recovery_s if deployment.pools.decode != current.pools.decode else 0.0
    roles_kept = set(deployment.pools.prefill) <= set(current.pools.prefill)
    load_s = _load_s(deployment, cache)
    if playing <= nodes and set(deployment.pools.decode) - set(current.pools.decode):  # a planned change of roles
        pause = allocated.role_switch_s + load_s
    start = 0.0 if roles_kept else allocated.role_switch_s + load_s
    return Change(deployment, pause, start, gained, start_s + load_s)


def plan_change_at_any_size(current: Deployment, fabric: Fabric, weights: ModelCache) -> Change:
    """The same; where the sizes that were asked for cannot be had any more, at those of the proportions."""
    try:
        return plan_change(current, fabric, weights)
    except DoesNotFit:
        if current.spec.prefill_npus is None and current.spec.decode_npus is None:
            raise
        smaller = current.spec.model_copy(update={"prefill_npus": None, "decode_npus": None})
        return plan_change(replace(current, spec=smaller), fabric, weights)


def plan_gain(current: Deployment, fabric: Fabric) -> Change:
    """The layout that uses every node of the view; they have loaded by now."""
    allocated = current.calibration
    deployment = lay_out(fabric, current.model, allocated, current.spec, current.pools, current.scale)
    pause = allocated.decode_recovery_s if deployment.pools.decode != current.pools.decode else 0.0
    return Change(deployment, pause, 0.0)


def first_start_s(deployment: Deployment, weights: ModelCache) -> float:
    """From nothing to serving: executors, weights, graphs."""
    current = deployment.calibration
    return current.executor_start_s + current.graph_load_s + _load_s(deployment, weights)


def weights_load_s(deployment: Deployment) -> float:
    """What the dies of all roles take to read their weights from the memory of the pool."""
    return _load_s(deployment, ModelCache(deployment.calibration, {deployment.model.name}))


def _load_s(deployment: Deployment, weights: ModelCache) -> float:
    pools = deployment.pools
    readers = [*pools.decode, *(node for instance in pools.prefill for node in instance)]
    experts = max([deployment.decode_layout, *deployment.prefill_layouts], key=lambda layout: layout.experts_per_die)
    return weights.load_s(deployment.model, deployment.fabric, readers, pools.caching, experts.experts_per_die)
