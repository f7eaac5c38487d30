"""Serving: reconciles deployments with their specs and drives their engines with the clock. `watchers` follow the
fabric, power and memory around them.

Specs, node roles and token usage are durable; engines and caches are not. After a restart every deployment is laid out
again from its instance's present FabricView, each node in its former role as far as the sizes allow, and starts with a
cold cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random

from infer_workload.contract.deployments import DeploymentRequest, DeploymentView
from infer_workload.contract.load import LoadRequest
from infer_workload.contract.roles import DrainRequest, ScaleRequest
from infer_workload.engine.request import InferenceRequest
from infer_workload.layout.deployment import DoesNotFit
from infer_workload.layout.draining import Drain
from infer_workload.layout.machines import check_known, resolve_machine, with_default_machine
from infer_workload.layout.scale import ROLE_CHANGE_S, PoolScale
from infer_workload.layout.views import pools_of
from infer_workload.metering.accounts import LOAD_KEY, LOAD_PROJECT
from infer_workload.metering.service import UsageService
from infer_workload.serving.cache_memory import CacheMemory, configure_model_cache
from infer_workload.serving.engine_driver import EngineDriver
from infer_workload.serving.instance_nodes import Successors, deployments_on, reachable_fabric
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.node_readiness import can_serve_without, ready_nodes
from infer_workload.serving.ports import FabricViews, Hardware, ServerMemory
from infer_workload.serving.status import set_machine, write_status
from infer_workload.serving.store import DeploymentRow, InferStore
from infer_workload.serving.watchers import Watchers
from infer_workload.timing.calibration import MACHINE, Calibration, load_calibration, machines
from infer_workload.timing.model import ServedModel, catalogue
from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Conflict, InsufficientCapacity, Unavailable
from matrixcommon.model.hardware_names import validate_resource_name
from matrixcommon.model.quantities import pluralized
from matrixcommon.model.resource_key import project_of


class Serving:
    """The deployments of one process."""

    def __init__(
        self,
        store: InferStore,
        clock: Clock,
        views: FabricViews,
        rng: Random,
        endpoint: str = "",
        hardware: Hardware | None = None,
        models: Mapping[str, ServedModel] | None = None,
        memory: ServerMemory | None = None,
        calibrations: Mapping[str, Calibration] | None = None,
    ) -> None:
        """`models` and `calibrations`: the models that may be served and the machines to serve them on, by name; by
        default all that are included. `memory` grants server memory; without it, caches use the sizes of their spec."""
        self.store = store
        self.clock = clock
        self.usage = UsageService(store.records, clock)
        self.live: dict[str, LiveDeployment] = {}
        self.models = catalogue() if models is None else models
        self.machines = machines() if calibrations is None else calibrations
        self._views = views
        self.cache_memory = None if memory is None else CacheMemory(memory, clock, self.live, self._on_changed)
        self._rng = rng
        self._endpoint = endpoint
        self.enqueue_fabric: Callable[[], None] = lambda: None
        self.enqueue_memory: Callable[[], None] = lambda: None
        self.driver = EngineDriver(self.live, clock, lambda: self.enqueue_fabric())
        self.watchers = Watchers(
            self.live, store, clock, self.driver, self.machines, views, hardware, self.cache_memory, Successors(memory)
        )

    def restore(self) -> int:
        """Load the deployments from the database. Return how many there are."""
        self.usage.restore()
        with self.store.records.reading() as session:
            rows = [
                (row.name, row.created_at, row.spec, row.load, row.drain, row.roles, row.scale)
                for row in self.store.deployments(session)
            ]
        for name, asked_at, request, load, drain, roles, scale in rows:
            live = self._add_live(name, request, roles or {})
            live.asked_at = asked_at
            live.handover.draining = Drain.from_row(drain) if drain else None
            if scale:
                live.rescale(PoolScale.from_row(scale), self.clock.now())
            if load:
                live.intake.start_load_generator(LoadRequest.from_stored(load), self.clock.now())
            self._on_changed(live)
        return len(rows)

    # Verbs.

    def ensure(self, name: str, request: DeploymentRequest, *, validate_only: bool = False) -> DeploymentView:
        """Create or update a deployment. The same spec again changes nothing; instance, model and machine cannot be
        changed. Changed pool sizes take effect once nothing runs in the roles that change, or at a deadline; after
        several changes the last one counts.

        Raises InsufficientCapacity, and changes nothing, if a running deployment cannot be laid out as requested.
        """
        validate_resource_name(name)
        live = self.live.get(name)
        check_known(
            request if live is None else with_default_machine(request, live.spec.machine), self.models, self.machines
        )
        reshaped = False
        with self.store.records.transaction(dry=validate_only) as session:
            row = session.get(DeploymentRow, name)
            if row is None:
                row = DeploymentRow(
                    name=name,
                    project=project_of(name),
                    labels=request.labels,
                    request=request.wire(),
                    state="Pending",
                    endpoint=self._endpoint,
                    generation=1,
                    roles={},
                    pools={},
                    conditions=[],
                )
                session.add(row)
            elif row.spec != (request := with_default_machine(request, row.spec.machine)):
                for field in ("instance", "model", "machine"):
                    if getattr(row.spec, field) not in (None, getattr(request, field)):
                        raise Conflict(
                            f"the {field} of a deployment cannot be changed; delete it and create another", field=field
                        )
                row.request, row.labels = request.wire(), request.labels
                row.generation += 1
                reshaped = True
            session.flush()
            if reshaped and live is not None:
                self._check_fit(live, request)
            if validate_only:
                return row.view()
        if live is None:
            live = self._add_live(name, request)
        elif reshaped:
            set_machine(live, request.machine, self.machines)
            live.apply_spec(
                request, self.clock.now(), reachable_fabric(live, request, self._deployments_on(request.instance))
            )
            configure_model_cache(live, self.models)
        self._on_changed(live)
        self.enqueue_fabric()
        return self.view(name)

    async def resolve_machine(self, name: str, request: DeploymentRequest) -> DeploymentRequest:
        """Set the machine of a new deployment to that of its instance. Raises InvalidField if it names another. If the
        instance's machine is not known yet, the request is accepted, and stays Pending until it is."""
        check_known(request, self.models, self.machines)
        if name not in self.live:
            with suppress(Unavailable):
                return resolve_machine(request, await self._views.fabric_view(request.instance), self.machines)
        return request

    def delete(self, name: str, validate_only: bool = False) -> None:
        """Stop serving and delete the deployment. The usage of its tenants stays on their accounts."""
        with self.store.records.transaction(dry=validate_only) as session:
            row = self.store.deployment(session, name)
            session.delete(row)
        if not validate_only and (live := self.live.pop(name, None)) is not None:
            live.handover.scale = None
            live.activation.activating = False
            live.fail("the deployment was deleted")
            self.enqueue_fabric()
            if self.cache_memory is not None:
                self.cache_memory.sweep_soon()
                self.enqueue_memory()

    def start_load_generator(
        self, name: str, load: LoadRequest | None, *, validate_only: bool = False
    ) -> DeploymentView:
        """Run this built-in load on the deployment, also after restarts; None stops it."""
        with self.store.records.transaction(dry=validate_only) as session:
            row = self.store.deployment(session, name)
            row.load = None if load is None else load.wire()
            if validate_only:
                return row.view()
        self.live[name].intake.start_load_generator(load, self.clock.now())
        self.driver.wake()
        return self.view(name)

    def drain(self, name: str, request: DrainRequest | None, *, validate_only: bool = False) -> DeploymentView:
        """Drain these nodes by a deadline; a repeated request for the same nodes continues it. None withdraws it.

        Raises Conflict if another requester drains other nodes, and InsufficientCapacity if `keep_serving` is set and
        the remaining nodes cannot serve.
        """
        fresh = None
        live = self.live[name]
        with self.store.records.transaction(dry=validate_only) as session:
            row = self.store.deployment(session, name)
            current = row.drain
            if request is not None and row.adopt_drain(request, None if validate_only else live.draining):
                return self.view(name)
            if request is not None:
                if current and current.get("by") and current["by"] != request.by:
                    raise Conflict(f"already draining {', '.join(current['nodes'])} for {current['by']}", field="nodes")
                fresh = Drain.from_request(request, self.clock.now(), live.fabric)
                if request.keep_serving and not can_serve_without(live, fresh):
                    raise InsufficientCapacity(
                        "the remaining nodes cannot serve without the drained ones", field="nodes"
                    )
            row.drain = None if fresh is None else fresh.view().wire()
        if not validate_only and (current or fresh):
            live.drain(fresh, self.clock.now())
            self.driver.wake()
        return self.view(name)

    def rescale(self, name: str, request: ScaleRequest | None, *, validate_only: bool = False) -> DeploymentView:
        """Scale the pools to these sizes, overriding the spec; a repeated request continues. None returns to the spec.

        Raises Conflict when scaling to zero a deployment that has requests or built-in load.
        """
        live, now = self.live[name], self.clock.now()
        with self.store.records.transaction(dry=validate_only) as session:
            row = self.store.deployment(session, name)
            asked = None if request is None else request.wire()
            if asked == row.scale:
                return self.view(name)
            scale = PoolScale.from_row(asked)
            if scale is not None and scale.is_zero and (busy := _busy(live)):
                raise Conflict(f"cannot scale to zero: {busy}", field="prefillNodes")
            row.scale = asked
            if validate_only:
                return row.view()
        live.rescale(scale, now, ROLE_CHANGE_S if request is None else request.deadline_s)
        self._on_changed(live)
        self.driver.wake()
        self.enqueue_fabric()
        return self.view(name)

    def view(self, name: str) -> DeploymentView:
        with self.store.records.reading() as session:
            row = self.store.deployment(session, name)
            view, scale = row.view(), row.scale
        live = self.live.get(name)
        if live is None:
            return view
        generation = 0 if live.fabric is None else live.fabric.generation
        shown: dict[str, object] = {
            "drain": live.handover.drain_view(live.engine),
            "ready_nodes": ready_nodes(live),
            "fabric_generation": generation,
        }
        if live.engine is not None and live.fabric is not None:
            shown["role_change"] = live.handover.role_change_view(live.engine, live.fabric)
        if live.memory_grant is not None:
            shown["cache_memory"] = live.memory_grant.view()
        if scale:
            shown["scale"] = live.handover.scale_view(ScaleRequest.from_stored(scale), live.engine)
        return view.model_copy(update=shown)

    # Small helpers.

    def _add_live(
        self, name: str, request: DeploymentRequest, roles: Mapping[str, str] | None = None
    ) -> LiveDeployment:
        """Add a live deployment. `roles`: the roles of its nodes when the last process ended."""
        machine = self.machines.get(named := request.machine or MACHINE) or load_calibration(named)
        live = LiveDeployment(
            name,
            request,
            self._rng.randrange(1 << 32),
            self._on_changed,
            lambda request: self._on_done(name, request),
            previous=pools_of(roles or {}, machine.nodes_per_prefill_instance),
            model=self.models.get(request.model),
            machine=machine,
        )
        if self.cache_memory is not None:
            live.layout.granted_bytes = {}
        if request.model in self.models:
            configure_model_cache(live, self.models)
        live.asked_at = live.counting_since = live.activation.active_at = self.clock.now()
        self.live[name] = live
        return live

    def _check_fit(self, live: LiveDeployment, request: DeploymentRequest) -> None:
        try:
            live.plan(request, reachable_fabric(live, request, self._deployments_on(request.instance)))
        except DoesNotFit as refused:
            raise InsufficientCapacity(refused.message, blocking=refused.blocking) from refused

    def _on_done(self, name: str, request: InferenceRequest) -> None:
        if request.tenant or (live := self.live.get(name)) is None:
            return
        self.usage.accounts.add(
            (LOAD_PROJECT, LOAD_KEY, name, live.spec.model),
            requests=1,
            prompt_tokens=request.input_tokens,
            cached_tokens=min(request.cached_first, request.input_tokens),
            completion_tokens=request.generated,
        )

    def _on_changed(self, live: LiveDeployment) -> None:
        """Record the status of a deployment if it changed. It may need other memory now, and nodes that it left may go
        to other deployments of its instance."""
        write_status(self.store, live, self._endpoint, self.clock.now())
        if self.cache_memory is not None and self.cache_memory.needs_check(live):
            self.enqueue_memory()
        if len(self._deployments_on(live.spec.instance)) > 1:
            self.enqueue_fabric()

    def _deployments_on(self, instance: str) -> list[LiveDeployment]:
        return deployments_on(self.live.values(), instance)


def _busy(live: LiveDeployment) -> str:
    """Why the deployment is not idle; empty if it is."""
    running = 0 if live.engine is None else len(live.engine.in_flight)
    if waiting := running + live.activation.waiting:
        return f"{pluralized(waiting, 'request')} running or waiting"
    return "built-in load is running" if live.load is not None else ""
