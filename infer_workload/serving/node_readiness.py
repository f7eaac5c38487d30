"""Nodes on which a deployment serves, and whether it could serve without some: for those who plan to remove or replace
nodes."""

from __future__ import annotations

from infer_workload.layout.draining import Drain
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.states import LOADING


def ready_nodes(live: LiveDeployment) -> list[str]:
    """The nodes of its instance that serve this or another deployment, or could: neither booting, loading nor drained
    here. None while it does not serve."""
    if live.instance_fabric is None or not live.serves:
        return []
    drained = live.draining.nodes if live.draining is not None and live.draining.drained else frozenset()
    return sorted(set(live.instance_fabric.nodes) - live.booting - live.layout.loading.nodes.keys() - drained)


def pause_for_unpowered(live: LiveDeployment, unpowered: frozenset[str], now: float, until: float) -> bool:
    """Pause the decode pool until `until` if one of its nodes is without power (`unpowered`), since dispatch and
    combine wait for every rank. Return whether it was paused."""
    engine = live.engine
    if engine is None or live.state == LOADING or not unpowered.intersection(engine.deployment.pools.decode):
        return False
    engine.advance(now)
    engine.sync_counters()
    engine.pool.pause(until)
    return True


def can_serve_without(live: LiveDeployment, drain: Drain) -> bool:
    """Whether the remaining nodes can serve while these are drained; true if the deployment does not serve."""
    if live.engine is None or live.fabric is None or not live.serves:
        return True
    return bool(drain.target(live.engine.deployment, live.fabric).decode)
