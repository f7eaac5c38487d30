"""The reconcilers of MatrixCompute by subject: their dependencies, periods, and the events that wake them early.

Each subject holds the objects that its routes call, and lists what the leader runs for it: `periodics` on a period or
when nudged, `tasks` forever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import httpx

from matrixcommon.api.client import WatchEvent
from matrixcommon.model.clock import Clock
from matrixcommon.model.resource_key import key_of, resolve
from matrixcommon.workflows.operations import Operations
from matrixcommon.workflows.runner import WorkflowRunner
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.clients.inference import Inference
from matrixcompute.clients.process_executor import ProcessExecutor
from matrixcompute.instances.maintenances import Maintenances
from matrixcompute.instances.scaling_policies import ScalingPolicies
from matrixcompute.instances.scenarios import ScenarioRuns
from matrixcompute.instances.service import InstanceService
from matrixcompute.operations.context import InstanceHost
from matrixcompute.reconcilers.autoscaling import AutoscalingReconciler
from matrixcompute.reconcilers.defragmentation_executor import DefragmentationExecutor
from matrixcompute.reconcilers.faults import FaultReconciler
from matrixcompute.reconcilers.instances import InstanceReconciler
from matrixcompute.reconcilers.maintenance import MaintenanceReconciler
from matrixcompute.reconcilers.orphan_collector import OrphanCollector
from matrixcompute.reconcilers.scenario_runs import ScenarioRunReconciler
from matrixcompute.recovery.policy import RecoveryPolicy
from matrixcompute.scenarios.service_clients import ServiceClients
from matrixcompute.store.store import ComputeStore
from matrixcompute.workflows.definitions import WORKFLOWS
from services.chassis.periodic import Periodic, follow, nudge_on_event
from services.chassis.version import version

RECONCILE_PERIOD_S = 10.0
ORPHAN_PERIOD_S = 60.0
MEMBER_MOVES_PERIOD_S = 30.0
AUTOSCALING_PERIOD_S = 15.0
"""The same as HPA's."""
MAINTENANCE_PERIOD_S = 15.0
SCENARIO_PERIOD_S = 15.0
FAULTS_PERIOD_S = 600.0
"""Period of checking all nodes; in between, changed ones are followed by watch."""

Task = Callable[[], Awaitable[object]]


class InstanceControllers:
    """Instances: runs their workflows, watches, repairs and moves members, and releases orphans."""

    def __init__(
        self,
        store: ComputeStore,
        control_plane: ControlPlane,
        inference: Inference | None,
        policy: RecoveryPolicy,
        clock: Clock,
    ) -> None:
        self._control_plane = control_plane
        host = InstanceHost(store, control_plane, clock, policy, inference)
        self.runner = WorkflowRunner(WORKFLOWS, host, clock)
        self.resumption = Periodic("workflow-resumption", self.runner.reconcile, clock, period_s=30.0, floor_wall_s=1.0)
        self.service = InstanceService(store, control_plane, self.runner, clock, self.resumption.nudge)
        self.operations = Operations(self.runner, host, clock, self.resumption.nudge)
        self._reconciler = InstanceReconciler(store, control_plane, self.runner, clock, policy, self.resumption.nudge)
        self.node_health = Periodic(
            "node-health",
            self._reconciler.reconcile,
            clock,
            period_s=RECONCILE_PERIOD_S,
            floor_wall_s=1.0,
            rest_s=0.1,  # coalesces nudges into one run; a lost member does not wait
            rest_floor_wall_s=0.1,
        )
        moves = DefragmentationExecutor(store, control_plane, self.service)
        self._moves = Periodic("member-moves", moves.reconcile, clock, period_s=MEMBER_MOVES_PERIOD_S, floor_wall_s=1.0)
        orphans = OrphanCollector(store, control_plane, clock, inference)
        self._orphans = Periodic("orphan-release", orphans.reconcile, clock, period_s=ORPHAN_PERIOD_S, floor_wall_s=5.0)

    @property
    def periodics(self) -> list[Periodic]:
        return [self.resumption, self.node_health, self._moves, self._orphans]

    @property
    def tasks(self) -> list[Task]:
        watch = self._control_plane.watch
        return [
            self.runner.run,
            partial(follow, partial(watch, "allocations"), self._allocation_changed),
            partial(follow, partial(watch, "slices"), self._slice_changed),
            partial(follow, partial(watch, "defragmentations"), nudge_on_event(self._moves.nudge)),
        ]

    async def _allocation_changed(self, event: WatchEvent | None) -> None:
        self.node_health.nudge(urgent=self._reconciler.observe_event(event))
        self._wake_workflow(event, lambda view: key_of(view["project"], view["name"]))

    async def _slice_changed(self, event: WatchEvent | None) -> None:
        self.node_health.nudge()
        self._wake_workflow(event, lambda view: resolve(view["instance"], view["project"]))

    def _wake_workflow(self, event: WatchEvent | None, instance_of: Callable[[dict[str, Any]], str]) -> None:
        """Wake the workflow of the event's instance; all workflows if events may be missing."""
        if event is None:
            self.runner.nudge()
        else:
            self.runner.nudge(instance_of(event.view))


class AutoscalingControllers:
    """Scaling policies: adjusts the sizes of their targets."""

    def __init__(
        self, store: ComputeStore, instances: InstanceControllers, inference: Inference | None, clock: Clock
    ) -> None:
        self.policies = ScalingPolicies(store, instances.service)
        reconciler = AutoscalingReconciler(store, instances.service, inference, clock, instances.resumption.nudge)
        self._scaling = Periodic(
            "autoscaling", reconciler.reconcile, clock, period_s=AUTOSCALING_PERIOD_S, floor_wall_s=0.25, rest_s=1.0
        )
        self.policies.wake = partial(self._scaling.nudge, urgent=True)
        self._generations = self.policies.generations()

    @property
    def periodics(self) -> list[Periodic]:
        return [self._scaling]

    def on_replica_write(self) -> None:
        """Run again if a policy changed at another replica, but not at each write of its decisions."""
        if (generations := self.policies.generations()) != self._generations:
            self._generations = generations
            self._scaling.nudge(urgent=True)


class MaintenanceControllers:
    """Maintenances: continues them as their nodes change."""

    def __init__(self, store: ComputeStore, control_plane: ControlPlane, clock: Clock) -> None:
        self.maintenances = Maintenances(store, control_plane, clock)
        self._reconciler = MaintenanceReconciler(store, control_plane, clock)
        self._periodic = Periodic(
            "maintenance",
            self._reconciler.reconcile,
            clock,
            period_s=MAINTENANCE_PERIOD_S,
            floor_wall_s=0.5,
            rest_s=3.0,
        )
        self.maintenances.wake = self._reconciler.wake = self.nudge = self._periodic.nudge

    @property
    def periodics(self) -> list[Periodic]:
        return [self._periodic]

    def node_changed(self, event: WatchEvent | None) -> None:
        if event is None:
            self.nudge()
        else:
            self._reconciler.node_changed()


class ScenarioControllers:
    """Scenarios: runs them against the other services. `clients`: clients of these by name; the caller adds its own
    service's later."""

    def __init__(self, store: ComputeStore, clients: Mapping[str, httpx.AsyncClient], clock: Clock) -> None:
        executor = ProcessExecutor(clients["agents"]) if "agents" in clients else None
        services = ServiceClients(clients, executor)
        self.runs = ScenarioRuns(store, services, clock)
        self._reconciler = ScenarioRunReconciler(store, services, clock, version())
        self._runs_periodic = Periodic(
            "scenario-runs", self._reconciler.reconcile, clock, period_s=SCENARIO_PERIOD_S, floor_wall_s=0.5
        )
        self._reconciler.wake = self._runs_periodic.nudge
        self.runs.wake = self.wake_for_requests

    @property
    def periodics(self) -> list[Periodic]:
        return [self._runs_periodic]

    def wake_for_requests(self) -> None:
        self._reconciler.check_stop()
        self._runs_periodic.nudge()


class FaultControllers:
    """Faults of nodes: checks all nodes on a long period, and changed nodes at once."""

    def __init__(self, store: ComputeStore, control_plane: ControlPlane, clock: Clock) -> None:
        self._reconciler = FaultReconciler(store, control_plane)
        self._all = Periodic("faults", self._reconciler.reconcile, clock, period_s=FAULTS_PERIOD_S, floor_wall_s=10.0)
        self._changed = Periodic(
            "changed-faults",
            self._reconciler.reconcile_changed,
            clock,
            period_s=FAULTS_PERIOD_S,
            rest_s=0.1,
            rest_floor_wall_s=0.1,
        )

    @property
    def periodics(self) -> list[Periodic]:
        return [self._all, self._changed]

    def node_changed(self, event: WatchEvent | None) -> None:
        if event is None:
            self._all.nudge()
        elif self._reconciler.observe(event):
            self._changed.nudge()
