"""Which nodes a deployment serves on, and whether it could serve without some: read by whoever plans to take nodes away
or has put others in their places."""

from __future__ import annotations

from infer_workload.layout.draining import Drain
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.states import LOADING


def ready_nodes(live: LiveDeployment) -> list[str]:
    """The nodes of its instance that serve, or could, or do so for another deployment: neither booting, loading nor
    drained here; none while it serves nothing."""
    if live.whole is None or not live.serves:
        return []
    drained = live.draining.nodes if live.draining is not None and live.draining.drained else frozenset()
    return sorted(set(live.whole.nodes) - live.booting - live.layout.loading.nodes.keys() - drained)


def hold_for_unpowered(live: LiveDeployment, dark: frozenset[str], now: float, until: float) -> bool:
    """Hold the decode pool until `until` if one of its nodes is dark: dispatch and combine wait for every rank."""
    engine = live.engine
    if engine is None or live.state == LOADING or not dark.intersection(engine.deployment.pools.decode):
        return False
    engine.advance(now)
    engine.settle()
    engine.pool.pause(until)
    return True


def can_serve_without(live: LiveDeployment, drain: Drain) -> bool:
    """Whether what stays can serve while these nodes are away; true of a deployment that serves nothing."""
    if live.engine is None or live.fabric is None or not live.serves:
        return True
    return bool(drain.target(live.engine.deployment, live.fabric).decode)
