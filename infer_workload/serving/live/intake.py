"""The intake of requests, from callers and from built-in load: they are numbered, admitted and counted."""

from __future__ import annotations

from functools import partial
from itertools import count
from math import inf

from infer_workload.contract.deployments import DeploymentRequest
from infer_workload.contract.load import LoadRequest, LoadView
from infer_workload.engine.engine import Engine
from infer_workload.engine.request import InferenceRequest
from infer_workload.serving.live.activation import Activation
from infer_workload.serving.live.admission import Admission
from infer_workload.serving.live.load_generator import BuiltInLoad
from infer_workload.serving.live.statistics import Statistics
from matrixcommon.model.errors import Overloaded


class Intake:
    """The intake of one deployment, across its engines."""

    def __init__(self, activation: Activation, statistics: Statistics) -> None:
        self.admission = Admission()
        self.submitted = 0
        self.cancelled = 0
        self._activation = activation
        self._statistics = statistics
        self._numbers = count(1)
        self._load: BuiltInLoad | None = None

    def submit(self, engine: Engine, spec: DeploymentRequest, request: InferenceRequest, waited_s: float) -> None:
        """Submit a request that has waited `waited_s` for activation. Raises ContextTooLong and Overloaded."""
        request.number = next(self._numbers)
        request.arrived_at = engine.now - waited_s
        self._admit(spec, engine, request)

    def _admit(self, spec: DeploymentRequest, engine: Engine, request: InferenceRequest) -> None:
        self._activation.active_at = engine.now
        try:
            self.admission.check(engine, spec, request)
        except Overloaded:
            self._statistics.record_arrival(engine.now, request.input_tokens)
            raise
        engine.submit(request)
        self.submitted += 1

    def cancel(self, engine: Engine, request: InferenceRequest) -> None:
        engine.cancel(request)
        self.cancelled += 1
        self._activation.active_at = engine.now

    # Built-in load.

    @property
    def load(self) -> LoadView | None:
        return None if self._load is None else self._load.view

    @property
    def next_arrival_at(self) -> float:
        """When the next request of built-in load arrives."""
        return inf if self._load is None else self._load.next_arrival_at

    def start_load_generator(self, request: LoadRequest | None, now: float) -> None:
        """Run this built-in load from now on; None stops it."""
        self._load = None if request is None else BuiltInLoad(request, now, self._load)

    def restart_load(self, now: float) -> None:
        """Restart built-in load from its beginning, as the deployment begins to serve."""
        if self._load is not None:
            self._load.restart(now)

    def submit_due_arrivals(self, engine: Engine, spec: DeploymentRequest, now: float) -> bool:
        """Submit the arrivals of built-in load up to `now`; True if some are left for the next turn."""
        if self._load is None:
            return False
        return self._load.submit_due(now, engine, self._numbers, partial(self._admit, spec))
