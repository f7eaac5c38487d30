"""The access rules of MatrixCompute: which roles may use which verb of each kind."""

from __future__ import annotations

from matrixcommon.api.authorization import (
    ADMIN_EDITABLE,
    ADMINS,
    EDITABLE,
    EDITORS,
    READ,
    VIEWERS,
    AccessRules,
    ResourceKind,
    Scope,
)
from matrixcommon.api.operations import OPERATION_VERBS, drain_kind
from matrixcommon.model.event_view import EventView
from matrixcommon.model.resource_model import StuckView
from matrixcompute.autoscaling.policy import ScalingPolicyRequest
from matrixcompute.autoscaling.policy_view import ScalingPolicyView
from matrixcompute.contract import DetectedFault, InstanceRequest, InstanceView, Reliability
from matrixcompute.maintenance.budgets import DisruptionBudgetRequest, DisruptionBudgetView
from matrixcompute.maintenance.spec import MaintenanceRequest, MaintenanceView
from matrixcompute.recovery.spec import RecoveryPolicyRequest, RecoveryPolicyView, RecoveryRuleView
from matrixcompute.scenarios.runs import ScenarioRequest, ScenarioRunRequest, ScenarioRunView, ScenarioView
from matrixcompute.store.disruption_budgets import DisruptionBudgetRow
from matrixcompute.store.maintenances import MaintenanceRow
from matrixcompute.store.recovery_policies import RecoveryPolicyRow
from matrixcompute.store.scenarios import ScenarioRunRow
from matrixcompute.store.store import (
    EventRow,
    FaultRow,
    InstanceOperation,
    InstanceRow,
    OperationRow,
    ScalingPolicyRow,
    WorkflowDrains,
)

INSTANCES = ResourceKind(
    "instances",
    Scope.PROJECT,
    {
        **EDITABLE,
        "POST :retry": EDITORS,
        "POST :resize": EDITORS,
        "POST :move": EDITORS,
        "POST :renew": EDITORS,
        "POST :stop": EDITORS,
        "POST :start": EDITORS,
        "POST :restart": EDITORS,
    },
    request=InstanceRequest,
    view=InstanceView,
    row=InstanceRow,
    holders=("preempts",),
)
OPERATIONS = ResourceKind(
    "operations",
    Scope.PROJECT,
    OPERATION_VERBS,
    view=InstanceOperation,
    row=OperationRow,
    holders=("owners",),
    queries=("POST :wait",),
)
WORKFLOW_DRAINS = drain_kind(WorkflowDrains)
EVENTS = ResourceKind("events", Scope.PROJECT, {"LIST": VIEWERS}, view=EventView, row=EventRow)
FAULTS = ResourceKind("faults", Scope.PHYSICAL, READ, view=DetectedFault, row=FaultRow, holders=("instance",))
SCALING_POLICIES = ResourceKind(
    "scaling-policies",
    Scope.PROJECT,
    EDITABLE,
    request=ScalingPolicyRequest,
    view=ScalingPolicyView,
    row=ScalingPolicyRow,
)
MAINTENANCES = ResourceKind(
    "maintenances",
    Scope.PHYSICAL,
    {**ADMIN_EDITABLE, "POST :pause": ADMINS, "POST :resume": ADMINS, "POST :abort": ADMINS},
    request=MaintenanceRequest,
    view=MaintenanceView,
    row=MaintenanceRow,
    holders=("instances",),
)
DISRUPTION_BUDGETS = ResourceKind(
    "disruption-budgets",
    Scope.PHYSICAL,
    ADMIN_EDITABLE,
    request=DisruptionBudgetRequest,
    view=DisruptionBudgetView,
    row=DisruptionBudgetRow,
)
RECOVERY_POLICIES = ResourceKind(
    "recovery-policies",
    Scope.PROJECT,
    EDITABLE,
    request=RecoveryPolicyRequest,
    view=RecoveryPolicyView,
    row=RecoveryPolicyRow,
)
RECOVERY_RULES = ResourceKind("recovery-rules", Scope.SERVICE, {"LIST": VIEWERS}, view=RecoveryRuleView)
SCENARIOS = ResourceKind("scenarios", Scope.PHYSICAL, ADMIN_EDITABLE, request=ScenarioRequest, view=ScenarioView)
SCENARIO_RUNS = ResourceKind(
    "scenario-runs",
    Scope.PHYSICAL,
    {**ADMIN_EDITABLE, "CREATE": ADMINS, "POST :stop": ADMINS},
    request=ScenarioRunRequest,
    view=ScenarioRunView,
    row=ScenarioRunRow,
    holders=("instances", "given"),
)
RELIABILITY = ResourceKind("reliability", Scope.PROJECT, {"LIST": VIEWERS}, view=Reliability)
STUCK = ResourceKind("stuck", Scope.PROJECT, {"LIST": VIEWERS}, view=StuckView)

ACCESS = AccessRules(
    "MatrixCompute",
    (
        INSTANCES,
        OPERATIONS,
        WORKFLOW_DRAINS,
        EVENTS,
        FAULTS,
        SCALING_POLICIES,
        RECOVERY_POLICIES,
        RECOVERY_RULES,
        MAINTENANCES,
        DISRUPTION_BUDGETS,
        SCENARIOS,
        SCENARIO_RUNS,
        RELIABILITY,
        STUCK,
    ),
)
