"""A deployment on its fabric: its layout, and the transitions to other layouts.

It receives the views of its instance, its part among the instance's deployments, drains and pool sizes, and lays out
again when they change. Requests on nodes that leave finish first if there is time; otherwise they are requeued.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from math import inf

from infer_workload.contract.deployments import DeploymentRequest
from infer_workload.engine.engine import Engine
from infer_workload.layout.deployment import Deployment, DoesNotFit, with_spec
from infer_workload.layout.division import Part
from infer_workload.layout.draining import Drain
from infer_workload.layout.recovery import LayoutChange, keep_roles, plan_change_at_any_size
from infer_workload.layout.scale import ROLE_CHANGE_S, PoolScale
from infer_workload.layout.views import layout_text, prefill_text, requeued_text
from infer_workload.serving.live.activation import Activation
from infer_workload.serving.live.handover import Handover
from infer_workload.serving.live.intake import Intake
from infer_workload.serving.live.served_layout import ServedLayout
from infer_workload.serving.states import DEGRADED, DEPLOYMENT_STATES, IDLE, LOADING, PENDING, SERVING, UNAVAILABLE
from infer_workload.timing.contention import MeasuredContention
from infer_workload.timing.fabric import Fabric


class DeploymentOnFabric:
    """A deployment's layout and state. Methods take the present emulated time and do not wait. `on_changed` is called
    when the state or the layout changes."""

    def __init__(
        self, request: DeploymentRequest, layout: ServedLayout, activation: Activation, intake: Intake,
        on_changed: Callable[[], None],
    ) -> None:  # fmt: skip
        self.spec = request
        self.state = PENDING
        self.why = f"instance {request.instance} has no network slices yet"
        self.layout = layout
        self.handover = Handover(request)
        self.activation = activation
        self.intake = intake
        self.fabric: Fabric | None = None
        """The view of this deployment's nodes."""
        self.instance_fabric: Fabric | None = None
        """The view of all nodes of the instance."""
        self.others = ""
        """A sentence about the nodes that other deployments have; empty if there are none."""
        self.contention: MeasuredContention | None = None
        self.booting: frozenset[str] = frozenset()
        self._on_changed = on_changed
        self._turn_done = asyncio.Event()

    @property
    def engine(self) -> Engine | None:
        return self.layout.engine

    @property
    def serves(self) -> bool:
        return self.engine is not None and self.state in (SERVING, DEGRADED)

    def apply_view(
        self,
        fabric: Fabric | None,
        now: float,
        up: frozenset[str] | None = None,
        why: str = "",
        part: Part | None = None,
        others: str = "",
    ) -> None:
        """Lay out on this view of the fabric. None: there is none because of `why`, or because the instance has no
        slices.

        Nodes not in `up` are used once they have booted; None: all are up. `part` holds this deployment's own nodes
        (None: all), and `others` describes those of others.
        """
        own = fabric if fabric is None or part is None else fabric.restricted_to(part.nodes)
        self.instance_fabric = fabric
        if self.handover.scaled_to_zero:
            self.fabric = own
            self.booting, self.others = frozenset(), ""
            return
        if fabric is None or own is None:
            self.fabric = None
            self._stop_serving(
                self._state_without_layout(), why or f"instance {self.spec.instance} has no network slices"
            )
            return
        booting = frozenset() if up is None else frozenset(fabric.nodes) - up
        booted = (self.booting - booting) & own.all_nodes
        previous, self.others = self.others, others
        self.booting = booting
        self.handover.complete_drain(fabric)
        if self.engine is None or self.fabric is None or not self.fabric.same_as(own) or booted:
            self._submit_arrivals_before(now)
            self.fabric = own.with_contention(self.contention)
            self._reconcile_layout(now)
        elif previous != others:
            self._on_changed()
        if part is not None:
            self._yield_nodes(part.yields, now)

    def forget_roles_outside(self, nodes: Collection[str]) -> None:
        """After a start, forget former roles on nodes outside `nodes`, which now belong to other deployments."""
        if self.layout.forget_roles_outside(nodes):
            self._on_changed()

    def _yield_nodes(self, yields: frozenset[str], now: float) -> None:
        """Hand these nodes over to other deployments of the instance, once idle or at the deadline."""
        before = self.handover.yields
        if self.handover.pending is not None or yields == before:
            return
        self.handover.yields = yields
        if yields and self.engine is not None:
            self._change_roles(now, ROLE_CHANGE_S)
        elif self.fabric is not None and before & self.fabric.all_nodes:  # it keeps these after all
            self._reconcile_layout(now)

    def apply_contention(self, contention: MeasuredContention, now: float) -> bool:
        """Apply the present contention by others. Return whether that changes anything."""
        if self.engine is None or self.fabric is None or contention.close_to(self.contention):
            return False
        self._submit_arrivals_before(now)
        self.contention = contention
        self.fabric = self.fabric.with_contention(contention)
        self.engine.apply_contention(contention, now)
        return True

    def _reconcile_layout(self, now: float) -> None:
        """Lay out on the usable nodes of the present view."""
        try:
            if self.engine is None:
                self._start(self._usable_fabric(), now)
            else:
                self._adapt(self._usable_fabric(), now)
        except DoesNotFit as refused:
            self._stop_serving(
                self._state_without_layout(), f"{refused.message}; {self.others}" if self.others else refused.message
            )

    def _usable_fabric(self, reach: Fabric | None = None) -> Fabric:
        """The usable nodes of its present fabric, or of the one that it could have (`reach`)."""
        fabric = reach or self.fabric
        assert fabric is not None
        playing = frozenset() if self.engine is None else self.engine.deployment.pools.nodes
        return fabric.excluding((self.booting - playing) | self.handover.unused_nodes(playing))

    @property
    def draining(self) -> Drain | None:
        return self.handover.draining

    def drain(self, drain: Drain | None, now: float) -> None:
        """Drain these nodes: begin nothing more there, and leave them when idle. None withdraws the drain."""
        self._submit_arrivals_before(now)
        self.handover.draining = drain
        if drain is not None and not self.serves:
            drain.drained = True
        if self.engine is not None:
            self.engine.cordon_outside(None)
            self._reconcile_layout(now)
            if drain is not None and self.engine is not None:
                drain.requests_at_start = self.engine.placement.count_on_cordoned()
            self._advance_handover(now)
        self._on_changed()

    def rescale(self, scale: PoolScale | None, now: float, deadline_s: float = ROLE_CHANGE_S) -> None:
        """Scale the pools to these sizes, overriding the spec; None returns to the spec. Nodes change role once idle,
        or at the deadline. Scaling to zero requires that nothing is in flight."""
        self._submit_arrivals_before(now)
        was_idle = self.handover.scaled_to_zero
        self.handover.scale = scale
        if self.handover.scaled_to_zero:
            self.activation.activating = False
            self._stop_serving(IDLE, "its pools are scaled to zero")
            return
        if was_idle:
            self.activation.activating = True
            self._set_state(PENDING, f"scaled from zero: waiting for the nodes of instance {self.spec.instance}")
        self._change_roles(now, deadline_s)

    def _change_roles(self, now: float, deadline_s: float) -> None:
        """Change to the requested sizes; nodes that change role do so once idle, or at the deadline."""
        engine = self.engine if self.serves else None
        if engine is not None and self.handover.begin_role_change(engine, self._usable_fabric(), now + deadline_s):
            self._advance_handover(now)
        elif self.fabric is not None and not self.handover.scaled_to_zero:
            self._reconcile_layout(now)
        self._on_changed()

    def _advance_handover(self, now: float) -> None:
        """Switch to the next layout once the leaving nodes are idle and their prefill successors have loaded."""
        if self.engine is None or self.fabric is None:
            return
        leaving = self.handover.pending
        due = self.handover.proceed(self.engine, self.fabric, now)
        if isinstance(due, LayoutChange):
            self._apply_layout(due, now)
        elif due and leaving is not None and leaving.added_nodes:
            self._scale_out_ready(now, leaving.deadline_at)
        elif due:
            self._reconcile_layout(now)

    def _state_without_layout(self) -> str:
        """The state without a layout: Pending if it never had one, otherwise Unavailable."""
        return PENDING if self.engine is None and self.state == PENDING else UNAVAILABLE

    def _start(self, fabric: Fabric, now: float) -> None:
        self.layout.start(fabric, self.spec, self.handover.scale, now)
        takes_s = self.layout.loading.serves_from - now
        self._set_state(LOADING, f"starting executors and loading weights, ready in {takes_s:.0f} s")

    def _adapt(self, fabric: Fabric, now: float) -> None:
        """Adapt to another view: lost nodes leave at once, gained ones join when they have loaded."""
        engine = self.engine
        assert engine is not None
        engine.advance(now)
        if self.state == LOADING:
            self.layout.reload(fabric, self.spec, self.handover.scale, now)
            self._on_changed()
            return
        current, weights = self.handover.planning_base(engine), self.layout.weights
        if self.handover.pending is not None and current.pools.nodes <= set(fabric.nodes):
            change = keep_roles(current, fabric, weights)
        else:
            change = plan_change_at_any_size(current, fabric, weights)
        self._apply_layout(change, now)
        loading, loaded_at = self.layout.loading, now + change.added_after_s
        loading.wait_for({node: loading.nodes.get(node, loaded_at) for node in change.added_nodes})

    def _scale_out_ready(self, now: float, deadline_at: float) -> None:
        """Use the nodes that have loaded; until the deadline, requests in roles that change for it finish first."""
        assert self.engine is not None
        self.layout.loading.scale_out_at = inf
        still = self.layout.loading.remaining_at(now)
        usable = self._usable_fabric().excluding(frozenset(still))
        try:
            change = self.handover.plan_scale_out(self.engine, usable, self.layout.weights, now, deadline_at)
        except DoesNotFit as refused:
            return self._stop_serving(UNAVAILABLE, refused.message)
        if change is not None:  # otherwise the nodes are used when the role change is over
            self.layout.loading.wait_for(still)
            self._apply_layout(change, now)

    def _apply_layout(self, change: LayoutChange, now: float) -> None:
        requeued = self.layout.apply(change, now)
        if self.handover.pending is not None and self.engine is not None and self.fabric is not None:
            self.handover.cordon_leaving(self.engine, self.fabric, now)
        back = requeued_text(requeued)
        if change.pause_s > 0:
            self._set_state(DEGRADED, f"decode is rebuilding its ranks, for {change.pause_s:.1f} s{back}")
        elif requeued:
            self._set_state(DEGRADED, prefill_text(len(change.deployment.pools.prefill)) + back)
        else:
            self._set_state(self.state, layout_text(self.layout.pools_view()) if self.state == SERVING else self.why)

    def _stop_serving(self, state: str, why: str) -> None:
        forgotten = self.layout.end()
        self.handover.role_change, self.handover.yields = None, frozenset()
        if forgotten or (state, why) != (self.state, self.why):
            self._set_state(state, why)
        self._notify_waiters()

    def plan(self, request: DeploymentRequest, reach: Fabric | None = None) -> Deployment | None:
        """The layout of another spec on the present fabric, or within `reach`; None without a fabric. Raises
        DoesNotFit, though never because of sizes that equal those of the present spec."""
        if self.engine is None or self.fabric is None:
            return None
        return self.layout.plan(self._usable_fabric(reach), self.spec, request, self.handover.scale)

    def apply_spec(self, request: DeploymentRequest, now: float, reach: Fabric | None = None) -> None:
        """Apply another spec: sizes as in `rescale`, everything else at once. Raises DoesNotFit, changing nothing."""
        self.plan(request, reach)
        self._submit_arrivals_before(now)
        self.spec = self.handover.spec = request
        if self.engine is not None and self.serves:
            self.engine.advance(now)
            self._apply_layout(LayoutChange(with_spec(self.engine.deployment, request), 0.0, 0.0), now)
        self._change_roles(now, ROLE_CHANGE_S)

    def fail(self, why: str) -> None:
        """Fail: all waiting requests end with `why`, and it starts again from the next view."""
        self.fabric = self.instance_fabric = None
        self._stop_serving(UNAVAILABLE, why)

    def _submit_arrivals_before(self, now: float) -> None:
        """Submit all of the built-in load's arrivals up to now, before a change."""
        while self._submit_due_arrivals(now):
            pass

    def _submit_due_arrivals(self, now: float) -> bool:
        """Submit the built-in load's arrivals up to `now` if it serves; True if some are left for the next turn."""
        engine = self.engine
        return engine is not None and self.serves and self.intake.submit_due_arrivals(engine, self.spec, now)

    def _set_state(self, state: str, why: str) -> None:
        self.state = DEPLOYMENT_STATES.check(self.state, state)
        self.why = why
        self._on_changed()

    def _notify_waiters(self) -> None:
        """Wake all who wait for news."""
        self._turn_done.set()
        self._turn_done = asyncio.Event()
