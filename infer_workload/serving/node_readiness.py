"""Which nodes a deployment serves on, and whether it could serve without some: read by whoever plans to take nodes away
or has put others in their places."""

from __future__ import annotations

from infer_workload.layout.draining import Drain
from infer_workload.serving.live_deployment import LiveDeployment


def ready_nodes(live: LiveDeployment) -> list[str]:
    """The nodes of its fabric that serve, or could: neither booting, loading nor drained; none while it
    serves nothing."""
    if live.fabric is None or not live.serves:
        return []
    drained = live.draining.nodes if live.draining is not None and live.draining.drained else frozenset()
    return sorted(set(live.fabric.nodes) - live.booting - live.loading.keys() - drained)


def can_serve_without(live: LiveDeployment, drain: Drain) -> bool:
    """Whether what stays can serve while these nodes are away; true of a deployment that serves nothing."""
    if live.engine is None or live.fabric is None or not live.serves:
        return True
    return bool(drain.target(live.engine.deployment, live.fabric).decode)
