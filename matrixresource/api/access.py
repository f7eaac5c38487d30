"""Who may do what in MatrixResource."""

from __future__ import annotations

from matrixcommon.api.authorization import (
    ADMIN_EDITABLE,
    ADMINS,
    AGENTS,
    EDITABLE,
    EDITORS,
    READ,
    VIEWERS,
    AccessRules,
    ResourceKind,
    Rule,
    Scope,
    kinds_in,
)
from matrixcommon.api.operations import drain_kind, operation_kind
from matrixcommon.model.event_view import EventView
from matrixcommon.model.hardware_names import NodeName, NpuName
from matrixcommon.model.resource_model import StuckView
from matrixresource.allocations.quotas import QuotaRow
from matrixresource.contract.agents import AssignmentView
from matrixresource.contract.allocations import AllocationRequest, AllocationView
from matrixresource.contract.defragmentations import DefragmentationRequest, DefragmentationView
from matrixresource.contract.nodes import NodeView, NpuView, SupernodeView
from matrixresource.contract.quotas import QuotaRequest, QuotaView
from matrixresource.contract.reservations import ReservationRequest, ReservationView
from matrixresource.contract.topology import DomainView, SupernodeRequest, TopologyVersionView
from matrixresource.nodes.states import NODE_STATES
from matrixresource.store.allocation_tables import AllocationRow, AssignmentRow
from matrixresource.store.defragmentations import DefragmentationRow
from matrixresource.store.maintenance_domains import DomainRow
from matrixresource.store.node_events import NodeEventRow
from matrixresource.store.operations import OperationRow, WorkflowDrains
from matrixresource.store.reservations import ReservationRow
from matrixresource.store.tables import NodeRow, SupernodeRow
from matrixresource.store.topology_versions import TopologyVersionRow

HOLDERS = ("allocation", "allocations")
"""Fields that name holders."""

NODES = ResourceKind(
    "nodes",
    Scope.PHYSICAL,
    {**READ, "GET /inventory": VIEWERS, "POST :cordon": ADMINS, "POST :uncordon": ADMINS}
    | {f"POST :{verb}": ADMINS for verb in NODE_STATES.verbs},
    view=NodeView,
    holders=HOLDERS,
    row=NodeRow,
    named=NodeName,
)
NODE_CORDONS = ResourceKind("node-cordons", Scope.PHYSICAL, {"CREATE": ADMINS})
NPUS = ResourceKind(
    "npus", Scope.PHYSICAL, {"LIST": VIEWERS, "POST :release": ADMINS}, view=NpuView, holders=HOLDERS, named=NpuName
)
EVENTS = ResourceKind("events", Scope.PHYSICAL, {"LIST": VIEWERS}, view=EventView, row=NodeEventRow)
OPERATIONS = operation_kind(OperationRow, Scope.PROJECT, ADMINS)
"""The routes that need the right to defragment."""
WORKFLOW_DRAINS = drain_kind(WorkflowDrains)
STUCK = ResourceKind("stuck", Scope.PHYSICAL, {"LIST": VIEWERS}, view=StuckView)
SPARES = ResourceKind("spares", Scope.PHYSICAL, {"LIST": VIEWERS}, view=NodeView, holders=HOLDERS)
ALLOCATIONS = ResourceKind(
    "allocations",
    Scope.PROJECT,
    {
        **EDITABLE,
        "PUT /binding": EDITORS,
        "PUT /move": EDITORS,
        "DELETE /move": EDITORS,
        "POST :changeOver": EDITORS,
        "POST :replace": EDITORS,
        "POST :repair": EDITORS,
        "POST :renew": EDITORS,
        "POST :relocate": EDITORS,
    },
    request=AllocationRequest,
    view=AllocationView,
    row=AllocationRow,
    holders=("preempts",),
)
ASSIGNMENTS = ResourceKind("assignments", Scope.NODE, {"LIST": AGENTS}, view=AssignmentView, row=AssignmentRow)
NODE_REPORTS = ResourceKind("node-reports", Scope.NODE, {"CREATE": AGENTS})
PLANS = ResourceKind(
    "plans", Scope.PROJECT, {"CREATE": VIEWERS}, holders=("preempts", "allocations"), queries=("CREATE",)
)
RESERVATIONS = ResourceKind(
    "reservations",
    Scope.PROJECT,
    EDITABLE,
    request=ReservationRequest,
    view=ReservationView,
    row=ReservationRow,
)
QUOTAS = ResourceKind(
    "quotas",
    Scope.ITSELF,
    ADMIN_EDITABLE,
    request=QuotaRequest,
    view=QuotaView,
    row=QuotaRow,
)
DEFRAGMENTATIONS = ResourceKind(
    "defragmentations",
    Scope.SERVICE,
    {
        "LIST": ADMINS,
        "GET": ADMINS,
        "CREATE": ADMINS,
        "DELETE": ADMINS,
        "POST :approve": ADMINS,
        "POST :cancel": ADMINS,
        "POST :refuse": ADMINS,
    },
    request=DefragmentationRequest,
    view=DefragmentationView,
    row=DefragmentationRow,
)
SUPERNODES = ResourceKind(
    "supernodes",
    Scope.PHYSICAL,
    {
        **ADMIN_EDITABLE,
        "GET /topology": VIEWERS,
        "GET /wiring": VIEWERS | AGENTS,
    },
    request=SupernodeRequest,
    view=SupernodeView,
    row=SupernodeRow,
)
TOPOLOGY_VERSIONS = ResourceKind(
    "topology-versions",
    Scope.PHYSICAL,
    dict.fromkeys(READ, AGENTS | VIEWERS),
    view=TopologyVersionView,
    row=TopologyVersionRow,
)
DOMAINS = ResourceKind(
    "domains",
    Scope.PHYSICAL,
    {**READ, "POST :close": ADMINS, "POST :open": ADMINS},
    view=DomainView,
    row=DomainRow,
    holders=HOLDERS,
)

ACCESS = AccessRules(
    "MatrixResource",
    kinds_in(globals()),
    (
        Rule("GET", "/v1/fragmentation", "fragmentation", VIEWERS, Scope.PHYSICAL, mutates=False),
        Rule("GET", "/v1/capacity", "capacity", VIEWERS, Scope.PHYSICAL, mutates=False),
    ),
)
