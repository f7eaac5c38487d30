"""A running deployment: its engine in emulated time, advanced by calls of `advance`.

It accepts requests and runs built-in load; those who wait for a request are woken when something happens. When the
layout is lost, every waiting request fails with a reason; none hangs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from infer_workload.contract.deployments import DeploymentRequest
from infer_workload.contract.load import LoadView
from infer_workload.ems.memory_grant import MemoryGrant
from infer_workload.engine.request import InferenceRequest
from infer_workload.layout.deployment import Pools
from infer_workload.layout.scale import ROLE_CHANGE_S
from infer_workload.layout.views import layout_text
from infer_workload.serving.live.activation import RETRY_AFTER_S, Activation
from infer_workload.serving.live.deployment_on_fabric import DeploymentOnFabric
from infer_workload.serving.live.intake import Intake
from infer_workload.serving.live.served_layout import ServedLayout
from infer_workload.serving.live.statistics import Statistics
from infer_workload.serving.states import DEGRADED, LOADING, SERVING
from infer_workload.timing.calibration import Calibration
from infer_workload.timing.model import ServedModel
from matrixcommon.model.errors import Unavailable


class LiveDeployment(DeploymentOnFabric):
    """One running deployment. Methods take the present emulated time and do not wait, except `wait_for_turn`.

    `state` and `why` are its status; `on_changed` is called when they or the layout change, `on_done(request)` when a
    request has finished.
    """

    def __init__(
        self,
        name: str,
        request: DeploymentRequest,
        seed: int,
        on_changed: Callable[[LiveDeployment], None],
        on_done: Callable[[InferenceRequest], None],
        previous: Pools | None = None,
        model: ServedModel | None = None,
        machine: Calibration | None = None,
    ) -> None:
        self.name = name
        self.asked_at = 0.0
        """When it was created."""
        self.statistics = Statistics()
        layout = ServedLayout(request, seed, self.statistics, self._finished, previous, model, machine)
        activation = Activation()
        super().__init__(request, layout, activation, Intake(activation, self.statistics), lambda: on_changed(self))
        self.memory_grant: MemoryGrant | None = None
        self.counting_since = 0.0
        self.stream_count = 0
        self._done = on_done

    # Requests.

    def submit(self, now: float, request: InferenceRequest, waited_s: float = 0.0) -> InferenceRequest:
        """Submit a request that has waited `waited_s` for activation. Raises ContextTooLong, Overloaded if it would not
        be served in time, Unavailable if the deployment does not serve."""
        self.advance(now)
        engine = self.engine
        if engine is None or not self.serves:
            raise Unavailable(f"{self.name} is {self.state}: {self.why}", retry_after_s=RETRY_AFTER_S)
        self.intake.submit(engine, self.spec, request, waited_s)
        return request

    def tokens_of(self, request: InferenceRequest) -> int:
        return request.generated if self.engine is None else self.engine.tokens_of(request)

    def is_lost(self, request: InferenceRequest) -> bool:
        """Whether the request can no longer finish because its layout is gone."""
        return not request.done and (self.engine is None or request.number not in self.engine.in_flight)

    def cancel(self, request: InferenceRequest) -> None:
        if self.engine is not None and request.number in self.engine.in_flight:
            self.intake.cancel(self.engine, request)

    async def wait_for_turn(self) -> None:
        """Return after the next `advance`."""
        await self._turn_done.wait()

    # Time.

    def next_event_at(self) -> float:
        """When something is next due."""
        loading = self.layout.loading
        return min(
            self.intake.next_arrival_at if self.serves else inf,
            inf if self.engine is None else self.engine.next_event_at(),
            loading.serves_from if self.state == LOADING else inf,
            loading.paused_until if self.state == DEGRADED and loading.scale_out_at == inf else inf,
            loading.scale_out_at,
            self.handover.due_at(self.engine, self.fabric),
        )

    def advance(self, now: float) -> bool:
        """Advance everything to `now`; False if built-in load is left for the next turn."""
        engine = self.engine
        if engine is None:
            self._notify_waiters()
            return True
        loading = self.layout.loading
        if loading.scale_out_at <= now:
            engine.advance(loading.scale_out_at)
            self._scale_out_ready(now, now + ROLE_CHANGE_S)
        if self.state == LOADING and loading.serves_from <= now:
            self._begin_to_serve(now)
        left = self._submit_due_arrivals(now)
        if not left:
            engine.advance(now)
            self._advance_handover(now)
        engine = self.engine
        if engine is None:
            return True
        rebuilt = loading.paused_until <= engine.now and loading.scale_out_at == inf
        if self.state == DEGRADED and rebuilt:
            self._set_state(SERVING, layout_text(self.layout.pools_view()))
        self._notify_waiters()
        return not left

    def _begin_to_serve(self, now: float) -> None:
        self.activation.activating = False
        self.activation.active_at = self.layout.loading.serves_from
        self.layout.weights.record_read(self.layout.model)
        self._set_state(SERVING, layout_text(self.layout.pools_view()))
        self.intake.restart_load(now)

    # Views.

    @property
    def load(self) -> LoadView | None:
        return self.intake.load

    def _finished(self, request: InferenceRequest) -> None:
        self.activation.active_at = request.finished_at
        self.statistics.record_finished(request)
        self._done(request)
