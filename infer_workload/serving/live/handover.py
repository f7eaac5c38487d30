"""Handover: how nodes and roles leave the layout of a live deployment after their requests have finished.

Two things leave: nodes that drain, and roles that nodes give up because the pools were scaled, because the spec's sizes
changed, or because newly loaded nodes change the proportions. Either closes whatever the next layout does not use, and
ends when nothing runs there or at a deadline. The deployment calls `proceed` to learn what is due; requested sizes take
effect then. Everything else in a spec takes effect at once.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from infer_workload.contract.deployments import DeploymentShape
from infer_workload.contract.roles import DrainView, ScaleRequest, ScaleView
from infer_workload.ems.model_cache import ModelCache
from infer_workload.engine.engine import Engine
from infer_workload.layout.deployment import SIZES, Deployment, DoesNotFit, Pools
from infer_workload.layout.draining import Drain
from infer_workload.layout.recovery import LayoutChange, plan_change, plan_scale_out
from infer_workload.layout.scale import PoolScale
from infer_workload.timing.fabric import Fabric
from matrixcommon.model.hardware_names import NPUS_PER_NODE


class Handover:
    """The handover of one deployment. `spec` and `scale` are as requested; those in effect are in the engine."""

    def __init__(self, spec: DeploymentShape) -> None:
        self.spec = spec
        self.draining: Drain | None = None
        self.scale: PoolScale | None = None
        self.role_change: Drain | None = None
        """The drain of roles that are being given up, until the pools have the requested sizes."""
        self.yields: frozenset[str] = frozenset()
        """Nodes being handed over to other deployments of the instance."""

    @property
    def pending(self) -> Drain | None:
        """The drain or role change that must end before another layout is used."""
        if self.draining is not None and not self.draining.drained:
            return self.draining
        return self.role_change

    @property
    def scaled_to_zero(self) -> bool:
        """Whether it is scaled to zero."""
        return self.scale is not None and self.scale.is_zero

    def unused_nodes(self, playing: frozenset[str]) -> frozenset[str]:
        """Nodes not to be used: drained ones, draining ones without a role, and those that have been handed over."""
        others = self.yields if self.role_change is None else frozenset[str]()
        if self.draining is None:
            return others
        return others | (self.draining.nodes if self.draining.drained else self.draining.nodes - playing)

    def complete_drain(self, fabric: Fabric) -> None:
        """End the drain if the fabric no longer shows its nodes."""
        if self.draining is not None and self.draining.is_complete(fabric):
            self.draining = None

    def planning_base(self, engine: Engine) -> Deployment:
        """The deployment to plan the next layout from: with the requested sizes, unless a pending drain or role change
        has to end before they take effect."""
        return engine.deployment if self.pending is not None else self._requested(engine)

    def begin_role_change(self, engine: Engine, fabric: Fabric, deadline_at: float) -> bool:
        """Begin to change to the requested sizes. Return whether roles have to change first; otherwise the sizes take
        effect at once."""
        self.role_change = None
        if self.draining is not None and not self.draining.drained:
            return True  # the sizes take effect when the drain has ended
        target = _pools_after(self._requested(engine), fabric.excluding(self.yields))
        if target is None or _same_roles(target, engine.deployment.pools):
            engine.adopt(self._requested(engine))
            return False
        self.role_change = Drain(self.yields, deadline_at)
        self.role_change.requests_at_start = engine.cordon_outside(target)
        return True

    def plan_scale_out(
        self, engine: Engine, fabric: Fabric, weights: ModelCache, now: float, deadline_at: float
    ) -> LayoutChange | None:
        """The layout with the nodes loaded by now. None while requests run in roles that change for it, until the
        deadline, and while another role change is under way. Raises DoesNotFit."""
        if self.role_change is not None:
            return None
        change = plan_scale_out(self.planning_base(engine), fabric, weights)
        if now >= deadline_at or not engine.placement.count_on_cordoned(change.deployment.pools):
            return change
        if self.pending is None:
            gained = frozenset(fabric.nodes) - engine.deployment.pools.nodes
            self.role_change = Drain(frozenset(), deadline_at, added_nodes=gained)
            self.cordon_leaving(engine, fabric, now)
            self.role_change.requests_at_start = engine.placement.count_on_cordoned()
        return None

    def cordon_leaving(self, engine: Engine, fabric: Fabric, now: float) -> float:
        """Begin nothing more on leaving nodes. Return when the first prefill instance of the next layout is ready
        (infinity if there is none); until then, of the leaving nodes only prefill instances are closed, not decode."""
        target, ready_at = self._target(engine, fabric)
        if target.prefill and now < ready_at:
            leaving = tuple(nodes for nodes in engine.deployment.pools.prefill if nodes not in target.prefill)
            target = replace(target, prefill=leaving)
        engine.cordon_outside(target)
        return ready_at

    def proceed(self, engine: Engine, fabric: Fabric, now: float) -> LayoutChange | bool:
        """What is due now: a layout in which successors load beside the leaving nodes, True once the handover is over,
        False while it waits or if nothing leaves."""
        leaving = self.pending
        if leaving is None:
            return False
        if now < leaving.deadline_at:
            if engine.placement.count_on_cordoned():
                return False
            if (change := leaving.plan_successors(self._requested(engine), fabric)) is not None:
                return change
            ready_at = self.cordon_leaving(engine, fabric, now)
            if engine.placement.count_on_cordoned() or now < ready_at < inf:
                return False
        leaving.drained, self.role_change = True, None
        return True

    def due_at(self, engine: Engine | None, fabric: Fabric | None) -> float:
        """When it can proceed even if no request ends: when successors have loaded, or at the deadline."""
        leaving = self.pending
        if leaving is None:
            return inf
        if engine is None or fabric is None:
            return leaving.deadline_at
        _, ready_at = self._target(engine, fabric)
        return min(leaving.deadline_at, ready_at if engine.now < ready_at else inf)

    def drain_view(self, engine: Engine | None) -> DrainView | None:
        if self.draining is None:
            return None
        return self.draining.view(0 if engine is None else engine.placement.count_on_cordoned())

    def scale_view(self, asked: ScaleRequest, engine: Engine | None) -> ScaleView:
        """The requested sizes, and whether the layout follows them and has the nodes for them."""
        settled = self.scaled_to_zero if engine is None else self.sizes_reached(engine)
        lacks = engine is not None and self.lacks_nodes(engine)
        requests = 0 if engine is None or self.role_change is None else engine.placement.count_on_cordoned()
        state = "Changing" if not settled else "LacksNodes" if lacks else "Settled"
        return ScaleView.from_stored(asked.model_dump() | {"state": state, "requests": requests})

    def sizes_reached(self, engine: Engine) -> bool:
        """Whether the layout follows the requested sizes, as far as there are nodes."""
        now = engine.deployment
        sizes = all(getattr(now.spec, field) == getattr(self.spec, field) for field in SIZES)
        return self.role_change is None and now.scale == self.scale and sizes

    def lacks_nodes(self, engine: Engine) -> bool:
        """Whether fewer nodes serve than requested; always true if the spec requests all nodes."""
        asked = self.spec.prefill_npus, self.spec.decode_npus
        if self.scale is not None:
            wanted: float = self.scale.nodes
        else:
            wanted = inf if None in asked else sum(npus or 0 for npus in asked) // NPUS_PER_NODE
        return len(engine.deployment.pools.nodes) < wanted

    def role_change_view(self, engine: Engine, fabric: Fabric) -> DrainView | None:
        """The role change under way, if any."""
        if (leaving := self.role_change) is None:
            return None
        decode, prefill = engine.deployment.pools.outside(leaving.target(self._requested(engine), fabric))
        nodes = sorted(decode.union(*prefill))
        return leaving.view(engine.placement.count_on_cordoned()).model_copy(update={"nodes": nodes})

    def _requested(self, engine: Engine) -> Deployment:
        return replace(engine.deployment, spec=self.spec, scale=self.scale)

    def _target(self, engine: Engine, fabric: Fabric) -> tuple[Pools, float]:
        """The pools after the handover, and when the first of their prefill instances is ready."""
        leaving = self.pending
        assert leaving is not None
        target = leaving.target(self._requested(engine), fabric)
        ready = (each.ready_at for each in engine.prefill.instances if each.nodes in target.prefill)
        return target, min(ready, default=inf)


def _pools_after(current: Deployment, fabric: Fabric) -> Pools | None:
    try:
        return plan_change(current, fabric, at_any_size=True).deployment.pools
    except DoesNotFit:
        return None


def _same_roles(one: Pools, other: Pools) -> bool:
    """Whether every node has the same role, and the same nodes lend their memory."""
    return (set(one.prefill), set(one.decode), set(one.caching)) == (
        set(other.prefill), set(other.decode), set(other.caching),
    )  # fmt: skip
