"""What is to leave the layout of a live deployment, and how what runs there comes to its end first.

Two things leave: nodes that drain, and roles that nodes give up because the pools were scaled, because the spec has
other sizes or because nodes that have loaded bring other proportions. Both close what the layout after them does not
use, and are over when nothing runs there any more or at a deadline. Whoever plays the deployment asks `proceed` what is
due; the sizes asked for count from then on. What a spec says beside the sizes of its pools counts at once.
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
from infer_workload.layout.recovery import Change, plan_change, plan_gain
from infer_workload.layout.scale import PoolScale
from infer_workload.timing.fabric import Fabric
from matrixcommon.model.hardware_names import NPUS_PER_NODE


class Handover:
    """Of one deployment. `spec` and `scale` are what is asked for; the engine's layout has what it follows so far."""

    def __init__(self, spec: DeploymentShape) -> None:
        self.spec = spec
        self.draining: Drain | None = None
        self.scale: PoolScale | None = None
        self.role_change: Drain | None = None
        """A drain of what it hands over: roles that leave, until the pools are as `scale` says."""
        self.yields: frozenset[str] = frozenset()
        """Nodes that other deployments of the instance are to have."""

    @property
    def pending(self) -> Drain | None:
        """What is to be over before another layout is used."""
        if self.draining is not None and not self.draining.drained:
            return self.draining
        return self.role_change

    @property
    def idle(self) -> bool:
        """Whether nothing is to be served."""
        return self.scale is not None and self.scale.zero

    def unused(self, playing: frozenset[str]) -> frozenset[str]:
        """Nodes that drain and are left, or were not used before, and those that have been handed over."""
        others = self.yields if self.role_change is None else frozenset[str]()
        if self.draining is None:
            return others
        return others | (self.draining.nodes if self.draining.drained else self.draining.nodes - playing)

    def follow(self, fabric: Fabric) -> None:
        """A drain ends when the fabric no longer shows its nodes."""
        if self.draining is not None and self.draining.over(fabric):
            self.draining = None

    def base(self, engine: Engine) -> Deployment:
        """The deployment to plan the next layout from: with the sizes that are asked for, unless something has to end
        before they count."""
        return engine.deployment if self.pending is not None else self._wanted(engine)

    def begin(self, engine: Engine, fabric: Fabric, deadline_at: float) -> bool:
        """Go over to other sizes; whether roles have to change for that. Otherwise they count at once."""
        self.role_change = None
        if self.draining is not None and not self.draining.drained:
            return True  # they count when the drain is over
        target = _after(self._wanted(engine), fabric.leaving_out(self.yields))
        if target is None or _alike(target, engine.deployment.pools):
            engine.adopt(self._wanted(engine))
            return False
        self.role_change = Drain(self.yields, deadline_at)
        self.role_change.requests_at_start = engine.close(target)
        return True

    def gain(
        self, engine: Engine, fabric: Fabric, weights: ModelCache, now: float, deadline_at: float
    ) -> Change | None:
        """The layout that uses whoever has loaded by now. None while something runs in roles that change for it, until
        the deadline, or while another change of roles is under way. Raises DoesNotFit."""
        if self.role_change is not None:
            return None
        change = plan_gain(self.base(engine), fabric, weights)
        if now >= deadline_at or not engine.placement.on_closing(change.deployment.pools):
            return change
        if self.pending is None:
            gained = frozenset(fabric.nodes) - engine.deployment.pools.nodes
            self.role_change = Drain(frozenset(), deadline_at, gained=gained)
            self.close(engine, fabric, now)
            self.role_change.requests_at_start = engine.placement.on_closing()
        return None

    def close(self, engine: Engine, fabric: Fabric, now: float) -> float:
        """Begin nothing more on what leaves, nor on prefill instances that still load in its place; when the first of
        those that stay is ready, infinity where there is none."""
        target, ready_at = self._target(engine, fabric)
        if target.prefill and now < ready_at:
            leaving = tuple(nodes for nodes in engine.deployment.pools.prefill if nodes not in target.prefill)
            target = replace(target, prefill=leaving)
        engine.close(target)
        return ready_at

    def proceed(self, engine: Engine, fabric: Fabric, now: float) -> Change | bool:
        """What is due now: a layout in which successors load beside what leaves, True once that is over, False while
        there is something to wait for or nothing leaves."""
        leaving = self.pending
        if leaving is None:
            return False
        if now < leaving.deadline_at:
            if engine.placement.on_closing():
                return False
            if (change := leaving.successors(self._wanted(engine), fabric)) is not None:
                return change
            ready_at = self.close(engine, fabric, now)
            if engine.placement.on_closing() or now < ready_at < inf:
                return False
        leaving.drained, self.role_change = True, None
        return True

    def due_at(self, engine: Engine | None, fabric: Fabric | None) -> float:
        """When it can go on without a request that ends: successors have loaded, or the deadline."""
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
        return self.draining.view(0 if engine is None else engine.placement.on_closing())

    def scale_view(self, asked: ScaleRequest, engine: Engine | None) -> ScaleView:
        """Whether the layout follows what was asked for, and whether it has the nodes for it."""
        settled = self.idle if engine is None else self.settled(engine)
        lacks = engine is not None and self.lacks_nodes(engine)
        requests = 0 if engine is None or self.role_change is None else engine.placement.on_closing()
        state = "Changing" if not settled else "LacksNodes" if lacks else "Settled"
        return ScaleView.from_stored(asked.model_dump() | {"state": state, "requests": requests})

    def settled(self, engine: Engine) -> bool:
        """Whether the layout follows the sizes that were asked for, as far as there are nodes."""
        now = engine.deployment
        sizes = all(getattr(now.spec, field) == getattr(self.spec, field) for field in SIZES)
        return self.role_change is None and now.scale == self.scale and sizes

    def lacks_nodes(self, engine: Engine) -> bool:
        """Whether fewer nodes serve than were asked for; true where all that there are are to."""
        asked = self.spec.prefill_npus, self.spec.decode_npus
        if self.scale is not None:
            wanted: float = self.scale.nodes
        else:
            wanted = inf if None in asked else sum(npus or 0 for npus in asked) // NPUS_PER_NODE
        return len(engine.deployment.pools.nodes) < wanted

    def role_change_view(self, engine: Engine, fabric: Fabric) -> DrainView | None:
        """The change of roles that is waited for, if any."""
        if (leaving := self.role_change) is None:
            return None
        decode, prefill = engine.deployment.pools.beyond(leaving.target(self._wanted(engine), fabric))
        nodes = sorted(decode.union(*prefill))
        return leaving.view(engine.placement.on_closing()).model_copy(update={"nodes": nodes})

    def _wanted(self, engine: Engine) -> Deployment:
        return replace(engine.deployment, spec=self.spec, scale=self.scale)

    def _target(self, engine: Engine, fabric: Fabric) -> tuple[Pools, float]:
        """The pools once what leaves is gone, and when the first of their prefill instances is ready."""
        leaving = self.pending
        assert leaving is not None
        target = leaving.target(self._wanted(engine), fabric)
        ready = (each.ready_at for each in engine.prefill.instances if each.nodes in target.prefill)
        return target, min(ready, default=inf)


def _after(current: Deployment, fabric: Fabric) -> Pools | None:
    try:
        return plan_change(current, fabric, at_any_size=True).deployment.pools
    except DoesNotFit:
        return None


def _alike(one: Pools, other: Pools) -> bool:
    """Whether every node plays the same role, and as many lend their memory."""
    return (set(one.prefill), set(one.decode), set(one.caching)) == (
        set(other.prefill), set(other.decode), set(other.caching),
    )  # fmt: skip
