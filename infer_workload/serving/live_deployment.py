"""A deployment that serves: its engine in emulated time, driven by whoever calls `play` now and then.

It is handed views of the fabric and lays out again when they change; it is handed requests and plays built-in load;
whoever waits for a request is woken when there is news. What it cannot serve it fails aloud: when the layout is lost,
every waiting request ends with a reason, none just hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from math import inf

from infer_workload.contract import DeploymentRequest, LoadRequest, LoadView, PoolsView
from infer_workload.ems.lending import Lending
from infer_workload.ems.model_cache import ModelCache
from infer_workload.engine.cache_placement import lend_memory
from infer_workload.engine.engine import Engine
from infer_workload.engine.request import InferenceRequest
from infer_workload.layout.deployment import SIZES, Deployment, DoesNotFit, Pools, lay_out, with_spec
from infer_workload.layout.draining import Drain
from infer_workload.layout.recovery import Change, first_start_s, plan_change_at_any_size
from infer_workload.layout.scale import ROLE_CHANGE_S, PoolScale
from infer_workload.layout.views import layout_text, pools_view, prefill_text, requeued_text, roles_of
from infer_workload.serving.activation import RETRY_AFTER_S, Activation
from infer_workload.serving.admission import Admission
from infer_workload.serving.handover import Handover
from infer_workload.serving.load_generator import BuiltInLoad
from infer_workload.serving.states import DEGRADED, DEPLOYMENT_STATES, IDLE, LOADING, PENDING, SERVING, UNAVAILABLE
from infer_workload.serving.statistics import Statistics
from infer_workload.timing.calibration import MACHINE, Calibration, load_calibration
from infer_workload.timing.contention import MeasuredContention
from infer_workload.timing.fabric import Fabric
from infer_workload.timing.model import ServedModel, load_model
from matrixcommon.model.errors import Overloaded, Unavailable


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
        self.state, self.why = PENDING, f"instance {request.instance} has no network slices yet"
        self.engine: Engine | None = None
        self.statistics = Statistics()
        self.fabric: Fabric | None = None
        self.contention: MeasuredContention | None = None
        self.serves_from = self._gain_at = inf
        self.paused_until = self.counting_since = self.loading_since = 0.0
        self._load: BuiltInLoad | None = None
        self._previous = previous
        """The roles that nodes had when the process ended: their weights are still there."""
        self._seed, self._model = seed, model or load_model(request.model)
        self.calibration = machine or load_calibration(request.machine or MACHINE)
        self.weights = ModelCache(self.calibration, {self._model.name} if request.warm_model_cache else set())
        self.lending: Lending | None = None
        self.lent: Mapping[str, float] | None = None  # bytes by node for blocks; None where nobody is asked
        self._changed, self._done = changed, done
        self.loading: dict[str, float] = {}
        self._numbers = count(1)
        self._played = asyncio.Event()
        self.handover, self.activation, self.admission = Handover(request), Activation(), Admission()
        self.booting: frozenset[str] = frozenset()
        self.stream_count = self.submitted = self.cancelled = self.cut_off = self.requeued = 0

    # The fabric.

    def take_view(self, fabric: Fabric | None, now: float, up: frozenset[str] | None = None, why: str = "") -> None:
        """Lay out on this view of the fabric. None: for `why`, or since the instance holds no slices (any more).

        Nodes that are not `up` yet are used once they are; None: all of them are.
        """
        if self.handover.idle:
            self.fabric, self.booting = fabric, frozenset()
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
        self.fabric, self.booting = fabric.beside(self.contention), booting
        self.handover.follow(fabric)
        self._follow(now)

    def take_contention(self, contention: MeasuredContention, now: float) -> bool:
        """Serve beside what others send now; whether that changes anything."""
        if self.engine is None or self.fabric is None or contention.close_to(self.contention):
            return False
        self._catch_up(now)
        self.contention, self.fabric = contention, self.fabric.beside(contention)
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
                drain.requests_at_start = self.engine.on_closing()
            self._hand_over(now)
        self._changed(self)

    def rescale(self, scale: PoolScale | None, now: float, deadline_s: float = ROLE_CHANGE_S) -> None:
        """Have pools of these sizes in place of the spec's; None: of the spec's again. Roles change when nothing runs
        in them any more, or at the deadline. To zero only while nothing is in flight."""
        self._catch_up(now)
        was_idle, self.handover.scale = self.handover.idle, scale
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
        leaving, due = self.handover.pending, self.handover.proceed(self.engine, self.fabric, now)
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
        sizes = self.spec, self._previous, self.handover.scale
        deployment = lay_out(fabric, self._model, self.calibration, *sizes, at_any_size=self._previous is not None)
        heard, self._previous = self.statistics, None
        self.engine = Engine(deployment, self._seed, now, self._finished, heard.emitted, heard.arrived)
        lend_memory(self.engine.cache, deployment, self.lent)
        self.loading_since, self._gain_at = now, inf
        self.serves_from = now + first_start_s(deployment, self.weights)
        self._set_state(LOADING, f"executors start and weights load until {self.serves_from - now:.0f} s from now")

    def _adapt(self, fabric: Fabric, now: float) -> None:
        """Go over to another view: what is lost at once, what is gained when it has loaded."""
        engine = self.engine
        assert engine is not None
        engine.advance(now)
        if self.state == LOADING:
            return self._load_more(fabric, now)
        change = plan_change_at_any_size(self.handover.base(engine), fabric, self.weights)
        self._apply_layout(change, now)
        self.loading = {node: self.loading.get(node, now + change.gain_after_s) for node in change.gained}
        self._gain_at = max(self.loading.values(), default=inf)

    def _load_more(self, fabric: Fabric, now: float) -> None:
        """Nothing is served yet: take the new view as it is; nodes that joined late must start as well."""
        engine = self.engine
        assert engine is not None
        before = set(engine.deployment.fabric.nodes)
        sizes = self.spec, engine.deployment.pools, self.handover.scale
        deployment = lay_out(fabric, self._model, self.calibration, *sizes, at_any_size=True)
        engine.apply_layout(deployment, 0.0, 0.0)
        if set(fabric.nodes) - before:
            self.loading_since, self.serves_from = now, now + first_start_s(deployment, self.weights)
        self._changed(self)

    def _scale_out_ready(self, now: float, deadline_at: float) -> None:
        """Use whoever has loaded; first, until the deadline, what runs in roles that change for it comes to its end."""
        assert self.engine is not None
        self._gain_at = inf
        still = {node: at for node, at in self.loading.items() if at > now}
        usable = self._usable().leaving_out(frozenset(still))
        try:
            change = self.handover.gain(self.engine, usable, self.weights, now, deadline_at)
        except DoesNotFit as refused:
            return self._lose(UNAVAILABLE, refused.message)
        if change is not None:  # else they are used when that is over
            self.loading, self._gain_at = still, max(still.values(), default=inf)
            self._apply_layout(change, now)

    def _apply_layout(self, change: Change, now: float) -> None:
        engine = self.engine
        assert engine is not None
        self.cut_off -= engine.dropped
        requeued = engine.apply_layout(change.deployment, change.pause_s, change.start_s)
        self.requeued, self.cut_off = self.requeued + requeued, self.cut_off + engine.dropped
        if self.handover.pending is not None and self.fabric is not None:
            self.handover.close(engine, self.fabric, now)
        self.paused_until = max(self.paused_until, now + change.pause_s)
        back = requeued_text(requeued)
        if change.pause_s > 0:
            self._set_state(DEGRADED, f"decode rebuilds its ranks for {change.pause_s:.1f} s{back}")
        elif requeued:
            self._set_state(DEGRADED, prefill_text(len(change.deployment.pools.prefill)) + back)
        else:
            self._set_state(self.state, layout_text(self.pools_view()) if self.state == SERVING else self.why)

    def _lose(self, state: str, why: str) -> None:
        self.cut_off += 0 if self.engine is None else len(self.engine.in_flight)
        self.engine = self.handover.role_change = None
        self.serves_from, self._gain_at, self.paused_until = inf, inf, 0.0
        self.loading.clear()
        forgotten, self._previous = self._previous, None
        if (state, why) != (self.state, self.why) or forgotten is not None:
            self._set_state(state, why)
        self._wake()

    def plan(self, request: DeploymentRequest) -> Deployment | None:
        """The layout that spec would get now; None while there is nothing to lay out on. Raises DoesNotFit; sizes that
        are the present spec's are none to refuse it for."""
        if self.engine is None or self.fabric is None:
            return None
        sizes = request, self.engine.deployment.pools, self.handover.scale
        same = all(getattr(request, field) == getattr(self.spec, field) for field in SIZES)
        return lay_out(self._usable(), self._model, self.calibration, *sizes, at_any_size=same)

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
        if (engine := self.engine) is None or not self.serves:
            raise Unavailable(f"{self.name} is {self.state}: {self.why}", retry_after_s=RETRY_AFTER_S)
        request.number, request.arrived_at = next(self._numbers), engine.now - waited_s
        self._admit(engine, request)
        return request

    def _admit(self, engine: Engine, request: InferenceRequest) -> None:
        self.activation.active_at = engine.now
        try:
            self.admission.check(engine, self.spec, request)
        except Overloaded:
            self.statistics.arrived(engine.now, request.input_tokens)
            raise
        engine.submit(request)
        self.submitted += 1

    def tokens_of(self, request: InferenceRequest) -> int:
        return request.generated if self.engine is None else self.engine.tokens_of(request)

    def lost(self, request: InferenceRequest) -> bool:
        """Whether the request can no longer finish: the layout it was in is gone."""
        return not request.done and (self.engine is None or request.number not in self.engine.in_flight)

    def cancel(self, request: InferenceRequest) -> None:
        if self.engine is not None and request.number in self.engine.in_flight:
            self.engine.cancel(request)
            self.cancelled, self.activation.active_at = self.cancelled + 1, self.engine.now

    async def news(self) -> None:
        """Return when time has been played on."""
        await self._played.wait()

    # Time.

    def next_at(self) -> float:
        """When there is something to do next."""
        arrival = inf if self._load is None or not self.serves else self._load.next_at
        engine = inf if self.engine is None else self.engine.next_at()
        loading = self.serves_from if self.state == LOADING else inf
        rebuilt = self.paused_until if self.state == DEGRADED and self._gain_at == inf else inf
        return min(arrival, engine, loading, rebuilt, self._gain_at, self.handover.due_at(self.engine, self.fabric))

    def play(self, now: float) -> bool:
        """Everything up to `now`; False when built-in load is left to play in a next turn."""
        if (engine := self.engine) is None:
            self._wake()
            return True
        if self._gain_at <= now:
            engine.advance(self._gain_at)
            self._scale_out_ready(now, now + ROLE_CHANGE_S)
        if self.state == LOADING and self.serves_from <= now:
            self.activation.returning, self.activation.active_at = False, self.serves_from
            self.weights.read(self._model)
            self._set_state(SERVING, layout_text(self.pools_view()))
            if self._load is not None:
                self._load.begin(now)
        if not (left := self._play_load(now) if self.serves else False):
            engine.advance(now)
            self._hand_over(now)
        if (engine := self.engine) is None:
            return True
        if self.state == DEGRADED and self.paused_until <= engine.now and self._gain_at == inf:
            self._set_state(SERVING, layout_text(self.pools_view()))
        self._wake()
        return not left

    def _catch_up(self, now: float) -> None:
        """Play the load up to now, before something changes."""
        while self.serves and self._play_load(now):
            pass

    def _play_load(self, now: float) -> bool:
        """Submit the load's arrivals up to `now`; True when some are left for the next turn."""
        if self._load is None or self.engine is None:
            return False
        return self._load.play(now, self.engine, self._numbers, self._admit)

    def start_load_generator(self, request: LoadRequest | None, now: float) -> None:
        """Play this load from now on; None stops it."""
        self._load = None if request is None else BuiltInLoad(request, now, self._load)

    @property
    def load(self) -> LoadView | None:
        return None if self._load is None else self._load.view

    # What it shows.

    def pools_view(self) -> PoolsView:
        return PoolsView() if self.engine is None else pools_view(self.engine.deployment, self.engine.cache)

    def roles(self) -> dict[str, str]:
        pools = self._previous if self.engine is None else self.engine.deployment.pools
        return {} if pools is None else roles_of(pools)

    def _set_state(self, state: str, why: str) -> None:
        self.state, self.why = DEPLOYMENT_STATES.check(self.state, state), why
        self._changed(self)

    def _finished(self, request: InferenceRequest) -> None:
        self.activation.active_at = request.finished_at
        self.statistics.finished(request)
        self._done(request)

    def _wake(self) -> None:
        self._played.set()
        self._played = asyncio.Event()
