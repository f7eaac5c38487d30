"""MatrixCompute over HTTP: instances, operations, policies of scaling and recovery, maintenances and their budgets,
scenarios, events, and faults it has found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query

from matrixcommon.api.operations import operation_routes
from matrixcommon.api.resource_routes import ResourceRoutes
from matrixcommon.model.clock import Clock
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.resource_model import StuckView
from matrixcommon.workflows.operations import Operations
from matrixcompute import access
from matrixcompute.contract import InstanceRequest, InstanceView, Reliability
from matrixcompute.instances.disruption_budgets import DisruptionBudgets
from matrixcompute.instances.maintenances import Maintenances
from matrixcompute.instances.recovery_policies import RecoveryPolicies
from matrixcompute.instances.scaling_policies import ScalingPolicies
from matrixcompute.instances.scenarios import ScenarioRuns, Scenarios
from matrixcompute.instances.service import InstanceService
from matrixcompute.instances.stuck import stuck_instances, stuck_maintenances, stuck_scenario_runs
from matrixcompute.operations.context import StepContext
from matrixcompute.recovery.ladder import recovery_rules
from matrixcompute.recovery.spec import rule_views
from matrixcompute.store.scenarios import ScenarioRow
from matrixcompute.store.store import ComputeStore, OperationRow
from matrixresource.contract.allocations import PlacementPolicy, RenewRequest
from matrixresource.contract.nodes import Power

Leaving = Annotated[
    Sequence[NodeName], Query(max_length=1024, description="where it shrinks: the members that go, drained before")
]


def routes(
    store: ComputeStore,
    instance_service: InstanceService,
    scaling_policies: ScalingPolicies,
    recovery_policies: RecoveryPolicies,
    maintenances: Maintenances,
    disruption_budgets: DisruptionBudgets,
    scenarios: Scenarios,
    scenario_runs: ScenarioRuns,
    operations: Operations[StepContext, OperationRow],
    clock: Clock,
    wake: Callable[[], None],
) -> APIRouter:
    api = ResourceRoutes(store.records)
    instances = api.of(access.INSTANCES)
    instances.list()
    instances.get()
    instances.change("DELETE", status_code=202, name="delete_instance")(instance_service.delete)
    instances.change("POST :retry", status_code=202)(instance_service.retry)

    @instances.change("PUT", status_code=202)
    async def ensure_instance(
        name: str,
        body: InstanceRequest,
        leaving: Leaving = (),
        if_match: str | None = None,
        validate_only: bool = False,
    ) -> InstanceView:
        return await instance_service.ensure(
            name, body, leaving=leaving, if_match=if_match, validate_only=validate_only
        )

    @instances.change("POST :resize", status_code=202)
    async def resize(
        name: str,
        nodes: Annotated[int, Query(ge=1, le=49152)],
        leaving: Leaving = (),
        if_match: str | None = None,
        validate_only: bool = False,
    ) -> InstanceView:
        return await instance_service.change(
            name, {"nodes": nodes}, leaving=leaving, if_match=if_match, validate_only=validate_only
        )

    @instances.change("POST :move", status_code=202)
    async def move(
        name: str, body: PlacementPolicy, if_match: str | None = None, validate_only: bool = False
    ) -> InstanceView:
        """Another placement for the same shape; with `validateOnly` the view's members are where it would lie."""
        return await instance_service.change(name, {"placement": body}, if_match=if_match, validate_only=validate_only)

    @instances.change("POST :renew", status_code=202)
    async def renew(
        name: str, body: RenewRequest, if_match: str | None = None, validate_only: bool = False
    ) -> InstanceView:
        """Let its lease start again, for this long; the spec stays as it is."""
        return await instance_service.renew(name, body.lease_s, if_match=if_match, validate_only=validate_only)

    def switch(power: Power) -> Callable[..., Awaitable[InstanceView]]:
        async def switched(name: str, if_match: str | None = None, validate_only: bool = False) -> InstanceView:
            return await instance_service.change(name, {"power": power}, if_match=if_match, validate_only=validate_only)

        return switched

    instances.change("POST :stop", status_code=202, name="stop_instance")(switch("Off"))
    instances.change("POST :start", status_code=202, name="start_instance")(switch("On"))
    instances.change("POST :restart", status_code=202, name="restart_instance")(instance_service.restart)

    operation_routes(api, access.OPERATIONS, access.WORKFLOW_DRAINS, operations)

    # -- what happened -------------------------------------------------------------------------------------------

    api.of(access.EVENTS).list(order_by="at")

    faults = api.of(access.FAULTS)
    faults.list()
    faults.get()

    def stuck() -> list[StuckView]:
        with store.reading() as session:
            now = clock.now()
            late = [*stuck_maintenances(session, now), *stuck_scenario_runs(session, now)]
            return [*stuck_instances(store, session, now), *late]

    api.of(access.STUCK).list(
        stuck,
        description="Instances whose operation cannot be resumed; what is in a passing state for too long.",
    )

    def reliability() -> list[Reliability]:
        with store.reading() as session:
            return [row.reliability(clock.now()) for row in store.instances(session)]

    api.of(access.RELIABILITY).list(
        reliability,
        description="What failures have cost each instance: mean time to recovery in its parts, and effective training "
        "time ratio.",
    )

    policies = api.of(access.SCALING_POLICIES)
    policies.list()
    policies.get()
    policies.change("PUT", after=scaling_policies.wake, name="ensure_scaling_policy")(scaling_policies.ensure)
    policies.change("DELETE", name="delete_scaling_policy")(scaling_policies.delete)

    recoveries = api.of(access.RECOVERY_POLICIES)
    recoveries.list()
    recoveries.get()
    recoveries.change("PUT", after=wake, name="ensure_recovery_policy")(recovery_policies.ensure)
    recoveries.change("DELETE", after=wake, name="delete_recovery_policy")(recovery_policies.delete)
    api.of(access.RECOVERY_RULES).list(
        lambda: rule_views(recovery_rules()),
        description="For each level of fault what is tried about a member, and how long it may drain before.",
    )

    kind = api.of(access.MAINTENANCES)
    kind.list()
    kind.get()
    kind.change("PUT", name="ensure_maintenance")(maintenances.ensure)
    kind.change("POST :pause", after=maintenances.wake, name="pause_maintenance")(maintenances.pause)
    kind.change("POST :resume", after=maintenances.wake, name="resume_maintenance")(maintenances.resume)
    kind.change("POST :abort", status_code=202, after=maintenances.wake, name="abort_maintenance")(maintenances.abort)
    kind.change("DELETE", name="delete_maintenance")(maintenances.delete)

    kind = api.of(access.DISRUPTION_BUDGETS)
    kind.list()
    kind.get()
    kind.change("PUT", after=maintenances.wake, name="ensure_disruption_budget")(disruption_budgets.ensure)
    kind.change("DELETE", after=maintenances.wake, name="delete_disruption_budget")(disruption_budgets.delete)

    kind = api.of(access.SCENARIOS)
    kind.list(scenarios.views)
    kind.get()
    kind.change("PUT", row=lambda name: (ScenarioRow, name), name="ensure_scenario")(scenarios.ensure)
    kind.change("DELETE", row=lambda name: (ScenarioRow, name), name="delete_scenario")(scenarios.delete)

    kind = api.of(access.SCENARIO_RUNS)
    kind.list()
    kind.get()
    kind.change("CREATE", status_code=201, name="create_scenario_run")(scenario_runs.create)
    kind.change("PUT", name="ensure_scenario_run")(scenario_runs.ensure)
    kind.change("POST :stop", status_code=202, after=scenario_runs.wake, name="stop_scenario_run")(scenario_runs.stop)
    kind.change("DELETE", name="delete_scenario_run")(scenario_runs.delete)

    return api.router
