"""The present layout of a deployment: its engine, weights and loading times."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import inf

from infer_workload.contract.deployments import DeploymentRequest, PoolsView
from infer_workload.ems.model_cache import ModelCache
from infer_workload.engine.engine import Engine
from infer_workload.engine.request import InferenceRequest
from infer_workload.layout.deployment import SIZES, Deployment, Pools, lay_out
from infer_workload.layout.recovery import LayoutChange, cold_start_s
from infer_workload.layout.scale import PoolScale
from infer_workload.layout.views import pools_view, roles_of
from infer_workload.serving.live.loading import Loading
from infer_workload.serving.live.statistics import Statistics
from infer_workload.timing.calibration import MACHINE, Calibration, load_calibration
from infer_workload.timing.fabric import Fabric
from infer_workload.timing.model import ServedModel, load_model


class ServedLayout:
    """The layout of one deployment; it has an engine from `start` to `end`. Methods raise DoesNotFit and change nothing
    if a layout does not fit."""

    def __init__(
        self,
        request: DeploymentRequest,
        seed: int,
        statistics: Statistics,
        on_finished: Callable[[InferenceRequest], None],
        previous: Pools | None,
        model: ServedModel | None,
        machine: Calibration | None,
    ) -> None:
        self.engine: Engine | None = None
        self.loading = Loading()
        self.calibration = machine or load_calibration(request.machine or MACHINE)
        self.model = model or load_model(request.model)
        self.weights = ModelCache(self.calibration, {self.model.name} if request.warm_model_cache else set())
        self.granted_bytes: Mapping[str, float] | None = None
        """Bytes granted by node for blocks of the context cache; None if memory is not allocated."""
        self.cut_off = 0
        """Requests cut off by the end or change of a layout."""
        self.requeued = 0
        """Requests requeued by a change of layout."""
        self._seed = seed
        self._statistics = statistics
        self._on_finished = on_finished
        self._previous = previous
        """The roles of nodes when the last process ended: they still have the weights."""

    def start(self, fabric: Fabric, spec: DeploymentRequest, scale: PoolScale | None, now: float) -> None:
        """Create the first engine, which serves once it has loaded."""
        previous = self._previous
        deployment = lay_out(
            fabric, self.model, self.calibration, spec, previous, scale, at_any_size=previous is not None
        )
        self._previous = None
        heard = self._statistics
        self.engine = Engine(
            deployment,
            self._seed,
            now,
            self._on_finished,
            heard.record_tokens,
            heard.record_arrival,
            heard.record_aborted,
        )
        self.engine.set_granted_memory(self.granted_bytes)
        self.loading.start(now, cold_start_s(deployment, self.weights))
        self.loading.scale_out_at = inf

    def reload(self, fabric: Fabric, spec: DeploymentRequest, scale: PoolScale | None, now: float) -> None:
        """Adopt a new view while still loading; if nodes joined, loading starts over."""
        engine = self.engine
        assert engine is not None
        before = set(engine.deployment.fabric.nodes)
        present = engine.deployment.pools
        deployment = lay_out(fabric, self.model, self.calibration, spec, present, scale, at_any_size=True)
        engine.apply_layout(deployment, 0.0, 0.0)
        if set(fabric.nodes) - before:
            self.loading.start(now, cold_start_s(deployment, self.weights))

    def apply(self, change: LayoutChange, now: float) -> int:
        """Switch to another layout. Return how many requests were requeued."""
        engine = self.engine
        assert engine is not None
        self.cut_off -= engine.dropped
        requeued = engine.apply_layout(change.deployment, change.pause_s, change.start_s)
        self.requeued += requeued
        self.cut_off += engine.dropped
        self.loading.paused_until = max(self.loading.paused_until, now + change.pause_s)
        return requeued

    def end(self) -> bool:
        """End the engine. Return whether that forgot roles from a former process."""
        if self.engine is not None:
            self.cut_off += self.engine.abort_all()
        self.engine = None
        self.loading.stop()
        forgotten = self._previous is not None
        self._previous = None
        return forgotten

    def plan(
        self, fabric: Fabric, spec: DeploymentRequest, request: DeploymentRequest, scale: PoolScale | None
    ) -> Deployment:
        """The layout of another request in place of the spec. Raises DoesNotFit, though never because of sizes that
        equal the spec's."""
        assert self.engine is not None
        present = self.engine.deployment.pools
        same = all(getattr(request, field) == getattr(spec, field) for field in SIZES)
        return lay_out(fabric, self.model, self.calibration, request, present, scale, at_any_size=same)

    def pools_view(self) -> PoolsView:
        return PoolsView() if self.engine is None else pools_view(self.engine.deployment, self.engine.cache)

    def forget_roles_outside(self, nodes: Collection[str]) -> bool:
        """Of the roles from a former process, keep only those on `nodes`. Return whether there were others."""
        before = self._previous
        if self.engine is not None or before is None or before.nodes <= set(nodes):
            return False
        kept = before.restricted_to(nodes)
        self._previous = kept if kept.nodes else None
        return True

    @property
    def pools(self) -> Pools | None:
        """The engine's pools, or those from a former process; None if no node has a role."""
        return self._previous if self.engine is None else self.engine.deployment.pools

    def roles(self) -> dict[str, str]:
        return {} if (pools := self.pools) is None else roles_of(pools)
