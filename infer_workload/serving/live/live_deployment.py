"""A deployment that serves: its engine in emulated time, driven by whoever calls `play` now and then.

It is handed views of the fabric and lays out again when they change; it is handed requests and plays built-in load;
whoever waits for a request is woken when there is news. What it cannot serve it fails aloud: when the layout is lost,
every waiting request ends with a reason, none just hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from infer_workload.contract.deployments import DeploymentRequest
from infer_workload.contract.load import LoadView
from infer_workload.ems.lending import Lending
from infer_workload.engine.engine import Engine
from infer_workload.engine.request import InferenceRequest
from infer_workload.layout.deployment import Deployment, DoesNotFit, Pools, with_spec
from infer_workload.layout.draining import Drain
from infer_workload.layout.recovery import Change, plan_change_at_any_size
from infer_workload.layout.scale import ROLE_CHANGE_S, PoolScale
from infer_workload.layout.views import layout_text, prefill_text, requeued_text
from infer_workload.serving.live.activation import RETRY_AFTER_S, Activation
from infer_workload.serving.live.handover import Handover
from infer_workload.serving.live.intake import Intake
from infer_workload.serving.live.served_layout import ServedLayout
from infer_workload.serving.live.statistics import Statistics
from infer_workload.serving.states import DEGRADED, DEPLOYMENT_STATES, IDLE, LOADING, PENDING, SERVING, UNAVAILABLE
from infer_workload.timing.calibration import Calibration
from infer_workload.timing.contention import MeasuredContention
from infer_workload.timing.fabric import Fabric
from infer_workload.timing.model import ServedModel
from matrixcommon.model.errors import Unavailable


class LiveDeployment:
    """One deployment at work. Every method takes the present emulated time; none waits.

    `state` and `why` say how it stands; `changed` is called when they or the layout do. `done(request)` hears of each
    finished request.
    """

    def __init__(
        self,
        name: str,
        request: DeploymentRequest,
        seed: int,
        changed: Callable[[LiveDeployment], None],
        done: Callable[[InferenceRequest], None],
        previous: Pools | None = None,
        model: ServedModel | None = None,
        machine: Calibration | None = None,
    ) -> None:
        self.name = name
        self.spec = request
        self.state = PENDING
        self.why = f"instance {request.instance} has no network slices yet"
        self.statistics = Statistics()
        self.layout = ServedLayout(request, seed, self.statistics, self._finished, previous, model, machine)
        self.handover = Handover(request)
        self.fabric: Fabric | None = None
        self.contention: MeasuredContention | None = None
        self.booting: frozenset[str] = frozenset()
        self.lending: Lending | None = None
        self.activation = Activation()
        self.intake = Intake(self.activation, self.statistics)
        self.counting_since = 0.0
        self.stream_count = 0
        self._changed = changed
        self._done = done
        self._played = asyncio.Event()

    @property
    def engine(self) -> Engine | None:
        return self.layout.engine

    # The fabric.

    def take_view(self, fabric: Fabric | None, now: float, up: frozenset[str] | None = None, why: str = "") -> None:
        """Lay out on this view of the fabric. None: for `why`, or since the instance holds no slices (any more).

        Nodes that are not `up` yet are used once they are; None: all of them are.
        """
        if self.handover.idle:
            self.fabric = fabric
            self.booting = frozenset()
            return
        if fabric is None:
            self.fabric = None
            self._lose(self._lost_state(), why or f"instance {self.spec.instance} has no network slices")
            return
        booting = frozenset() if up is None else frozenset(fabric.nodes) - up
        fresh = self.engine is None or self.fabric is None or not self.fabric.same_as(fabric)
        if not fresh and not (self.booting - booting):
            return
        self._catch_up(now)
        self.fabric = fabric.beside(self.contention)
        self.booting = booting
        self.handover.follow(fabric)
        self._follow(now)

    def take_contention(self, contention: MeasuredContention, now: float) -> bool:
        """Serve beside what others send now; whether that changes anything."""
        if self.engine is None or self.fabric is None or contention.close_to(self.contention):
            return False
        self._catch_up(now)
        self.contention = contention
        self.fabric = self.fabric.beside(contention)
        self.engine.retime(contention, now)
        return True

    def _follow(self, now: float) -> None:
        """Lay out on what may be used of the present view."""
        try:
            if self.engine is None:
                self._start(self._usable(), now)
            else:
                self._adapt(self._usable(), now)
        except DoesNotFit as refused:
            self._lose(self._lost_state(), refused.message)

    def _usable(self) -> Fabric:
        assert self.fabric is not None
        playing = frozenset() if self.engine is None else self.engine.deployment.pools.nodes
        return self.fabric.leaving_out((self.booting - playing) | self.handover.unused(playing))

    @property
    def draining(self) -> Drain | None:
        return self.handover.draining

    def drain(self, drain: Drain | None, now: float) -> None:
        """Begin nothing more on these nodes and leave them when nothing runs there; None: use them (again)."""
        self._catch_up(now)
        self.handover.draining = drain
        if drain is not None and not self.serves:
            drain.drained = True
        if self.engine is not None:
            self.engine.close(None)
            self._follow(now)
            if drain is not None and self.engine is not None:
                drain.requests_at_start = self.engine.placement.on_closing()
            self._hand_over(now)
        self._changed(self)

    def rescale(self, scale: PoolScale | None, now: float, deadline_s: float = ROLE_CHANGE_S) -> None:
        """Have pools of these sizes in place of the spec's; None: of the spec's again. Roles change when nothing runs
        in them any more, or at the deadline. To zero only while nothing is in flight."""
        self._catch_up(now)
        was_idle = self.handover.idle
        self.handover.scale = scale
        if self.handover.idle:
            self.activation.returning = False
            self._lose(IDLE, "its pools are scaled to zero")
            return
        if was_idle:
            self.activation.returning = True
            self._set_state(PENDING, f"scaled from zero: waiting for the nodes of instance {self.spec.instance}")
        self._change_roles(now, deadline_s)

    def _change_roles(self, now: float, deadline_s: float) -> None:
        """Go over to the sizes that are asked for: where roles change, once nothing runs in them or at the deadline."""
        engine = self.engine if self.serves else None
        if engine is not None and self.handover.begin(engine, self._usable(), now + deadline_s):
            self._hand_over(now)
        elif self.fabric is not None and not self.handover.idle:
            self._follow(now)
        self._changed(self)

    def _hand_over(self, now: float) -> None:
        """Use another layout once nothing runs on what leaves and what prefills in its place has loaded."""
        if self.engine is None or self.fabric is None:
            return
        leaving = self.handover.pending
        due = self.handover.proceed(self.engine, self.fabric, now)
        if isinstance(due, Change):
            self._apply_layout(due, now)
        elif due and leaving is not None and leaving.gained:
            self._scale_out_ready(now, leaving.deadline_at)
        elif due:
            self._follow(now)

    def _lost_state(self) -> str:
        """Pending where it never served, Unavailable where it did."""
        return PENDING if self.engine is None and self.state == PENDING else UNAVAILABLE

    def _start(self, fabric: Fabric, now: float) -> None:
        self.layout.start(fabric, self.spec, self.handover.scale, now)
        takes_s = self.layout.loading.serves_from - now
        self._set_state(LOADING, f"executors start and weights load until {takes_s:.0f} s from now")

    def _adapt(self, fabric: Fabric, now: float) -> None:
        """Go over to another view: what is lost at once, what is gained when it has loaded."""
        engine = self.engine
        assert engine is not None
        engine.advance(now)
        if self.state == LOADING:
            self.layout.load_more(fabric, self.spec, self.handover.scale, now)
            self._changed(self)
            return
        change = plan_change_at_any_size(self.handover.base(engine), fabric, self.layout.weights)
        self._apply_layout(change, now)
        loading, loaded_at = self.layout.loading, now + change.gain_after_s
        loading.wait_for({node: loading.nodes.get(node, loaded_at) for node in change.gained})

    def _scale_out_ready(self, now: float, deadline_at: float) -> None:
        """Use whoever has loaded; first, until the deadline, what runs in roles that change for it comes to its end."""
        assert self.engine is not None
        self.layout.loading.gain_at = inf
        still = self.layout.loading.left_at(now)
        usable = self._usable().leaving_out(frozenset(still))
        try:
            change = self.handover.gain(self.engine, usable, self.layout.weights, now, deadline_at)
        except DoesNotFit as refused:
            return self._lose(UNAVAILABLE, refused.message)
        if change is not None:  # else they are used when that is over
            self.layout.loading.wait_for(still)
            self._apply_layout(change, now)

    def _apply_layout(self, change: Change, now: float) -> None:
        requeued = self.layout.apply(change, now)
        if self.handover.pending is not None and self.engine is not None and self.fabric is not None:
            self.handover.close(self.engine, self.fabric, now)
        back = requeued_text(requeued)
        if change.pause_s > 0:
            self._set_state(DEGRADED, f"decode rebuilds its ranks for {change.pause_s:.1f} s{back}")
        elif requeued:
            self._set_state(DEGRADED, prefill_text(len(change.deployment.pools.prefill)) + back)
        else:
            self._set_state(self.state, layout_text(self.layout.pools_view()) if self.state == SERVING else self.why)

    def _lose(self, state: str, why: str) -> None:
        forgotten = self.layout.end()
        self.handover.role_change = None
        if forgotten or (state, why) != (self.state, self.why):
            self._set_state(state, why)
        self._wake()

    def plan(self, request: DeploymentRequest) -> Deployment | None:
        """The layout that spec would get now; None while there is nothing to lay out on. Raises DoesNotFit; sizes that
        are the present spec's are none to refuse it for."""
        if self.engine is None or self.fabric is None:
            return None
        return self.layout.plan(self._usable(), self.spec, request, self.handover.scale)

    def reshape(self, request: DeploymentRequest, now: float) -> None:
        """Have another spec: its sizes as `rescale` has them, the rest at once. Raises DoesNotFit, changing nothing."""
        self.plan(request)
        self._catch_up(now)
        self.spec = self.handover.spec = request
        if self.engine is not None and self.serves:
            self.engine.advance(now)
            self._apply_layout(Change(with_spec(self.engine.deployment, request), 0.0, 0.0), now)
        self._change_roles(now, ROLE_CHANGE_S)

    def fail(self, why: str) -> None:
        """Its engine cannot go on: whoever waits hears of it, and it starts again from the next view."""
        self.fabric = None
        self._lose(UNAVAILABLE, why)

    # Requests.

    @property
    def serves(self) -> bool:
        return self.engine is not None and self.state in (SERVING, DEGRADED)

    def submit(self, now: float, request: InferenceRequest, waited_s: float = 0.0) -> InferenceRequest:
        """Take a request, which had to wait so long before. Raises ContextTooLong, Overloaded where it would not be
        served in time, and Unavailable where it does not serve by now."""
        self.play(now)
        engine = self.engine
        if engine is None or not self.serves:
            raise Unavailable(f"{self.name} is {self.state}: {self.why}", retry_after_s=RETRY_AFTER_S)
        self.intake.submit(engine, self.spec, request, waited_s)
        return request

    def tokens_of(self, request: InferenceRequest) -> int:
        return request.generated if self.engine is None else self.engine.tokens_of(request)

    def lost(self, request: InferenceRequest) -> bool:
        """Whether the request can no longer finish: the layout it was in is gone."""
        return not request.done and (self.engine is None or request.number not in self.engine.in_flight)

    def cancel(self, request: InferenceRequest) -> None:
        if self.engine is not None and request.number in self.engine.in_flight:
            self.intake.cancel(self.engine, request)

    async def news(self) -> None:
        """Return when time has been played on."""
        await self._played.wait()

    # Time.

    def next_at(self) -> float:
        """When there is something to do next."""
        loading = self.layout.loading
        return min(
            self.intake.next_arrival_at if self.serves else inf,
            inf if self.engine is None else self.engine.next_at(),
            loading.serves_from if self.state == LOADING else inf,
            loading.paused_until if self.state == DEGRADED and loading.gain_at == inf else inf,
            loading.gain_at,
            self.handover.due_at(self.engine, self.fabric),
        )

    def play(self, now: float) -> bool:
        """Everything up to `now`; False when built-in load is left to play in a next turn."""
        engine = self.engine
        if engine is None:
            self._wake()
            return True
        loading = self.layout.loading
        if loading.gain_at <= now:
            engine.advance(loading.gain_at)
            self._scale_out_ready(now, now + ROLE_CHANGE_S)
        if self.state == LOADING and loading.serves_from <= now:
            self._begin_to_serve(now)
        left = self._play_load(now)
        if not left:
            engine.advance(now)
            self._hand_over(now)
        engine = self.engine
        if engine is None:
            return True
        rebuilt = loading.paused_until <= engine.now and loading.gain_at == inf
        if self.state == DEGRADED and rebuilt:
            self._set_state(SERVING, layout_text(self.layout.pools_view()))
        self._wake()
        return not left

    def _begin_to_serve(self, now: float) -> None:
        self.activation.returning = False
        self.activation.active_at = self.layout.loading.serves_from
        self.layout.weights.read(self.layout.model)
        self._set_state(SERVING, layout_text(self.layout.pools_view()))
        self.intake.begin_load(now)

    def _catch_up(self, now: float) -> None:
        """Play the load up to now, before something changes."""
        while self._play_load(now):
            pass

    def _play_load(self, now: float) -> bool:
        """Submit the load's arrivals up to `now`, where it serves; True when some are left for the next turn."""
        engine = self.engine
        return engine is not None and self.serves and self.intake.play_load(engine, self.spec, now)

    # What it shows.

    @property
    def load(self) -> LoadView | None:
        return self.intake.load

    def _set_state(self, state: str, why: str) -> None:
        self.state = DEPLOYMENT_STATES.check(self.state, state)
        self.why = why
        self._changed(self)

    def _finished(self, request: InferenceRequest) -> None:
        self.activation.active_at = request.finished_at
        self.statistics.finished(request)
        self._done(request)

    def _wake(self) -> None:
        self._played.set()
        self._played = asyncio.Event()
