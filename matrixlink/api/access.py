"""Who may do what in MatrixLink."""

from __future__ import annotations

from matrixcommon.api.authorization import (
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
from matrixcommon.model.resource_model import StuckView
from matrixlink.contract.communicators import CommunicatorRequest, CommunicatorView
from matrixlink.contract.drains import DrainRequest, DrainView
from matrixlink.contract.inventory import LinkView, PlaneSummary, QosClassView, SwitchView
from matrixlink.contract.peerings import PeeringRequest, PeeringView
from matrixlink.contract.programs import ProgramView
from matrixlink.contract.slices import BackupPathsView, SliceRequest, SliceView
from matrixlink.contract.telemetry import TelemetryView
from matrixlink.store.communicators import CommunicatorRow
from matrixlink.store.tables import (
    DrainRow,
    EventRow,
    LinkRow,
    OperationRow,
    PeeringRow,
    ProgramRow,
    SliceRow,
    WorkflowDrains,
)

PLANES = ResourceKind("planes", Scope.PHYSICAL, {**READ, "GET /matrix": VIEWERS}, view=PlaneSummary)
SWITCHES = ResourceKind("switches", Scope.PHYSICAL, READ, view=SwitchView)
LINKS = ResourceKind("links", Scope.PHYSICAL, {**READ, "POST :undamp": ADMINS}, view=LinkView, row=LinkRow)
QOS_CLASSES = ResourceKind("qos-classes", Scope.PHYSICAL, READ, view=QosClassView)
FORWARDING_TABLES = ResourceKind("forwarding-tables", Scope.PHYSICAL, READ)
SLICES = ResourceKind(
    "slices",
    Scope.PROJECT,
    {
        **EDITABLE,
        "GET /fabric-view": VIEWERS,
        "POST :program": EDITORS,
    },
    request=SliceRequest,
    view=SliceView,
    row=SliceRow,
    holders=("owners", "slice"),
)
FABRIC_VIEWS = ResourceKind("fabric-views", Scope.PROJECT, {"GET": VIEWERS})
BACKUP_PATHS = ResourceKind("backup-paths", Scope.PROJECT, READ, view=BackupPathsView)
PROGRAMS = ResourceKind(
    "programs", Scope.NODE, {"LIST": AGENTS | VIEWERS, "GET": AGENTS | VIEWERS}, view=ProgramView, row=ProgramRow
)
ROUTES = ResourceKind(
    "routes", Scope.NODE, {"LIST": AGENTS | VIEWERS, "GET": AGENTS | VIEWERS}, view=ProgramView, row=ProgramRow
)
LINK_REPORTS = ResourceKind("link-reports", Scope.NODE, {"CREATE": AGENTS})
COMMUNICATORS = ResourceKind(
    "communicators",
    Scope.PROJECT,
    {
        **EDITABLE,
        "GET /flows": VIEWERS,
        "GET /changes": VIEWERS,
    },
    request=CommunicatorRequest,
    view=CommunicatorView,
    row=CommunicatorRow,
)
PEERINGS = ResourceKind(
    "peerings",
    Scope.SHARED,
    {**READ, "PUT": EDITORS, "DELETE": EDITORS, "POST :accept": EDITORS},
    request=PeeringRequest,
    view=PeeringView,
    row=PeeringRow,
)
DRAINS = ResourceKind(
    "drains",
    Scope.SERVICE,
    {"LIST": ADMINS, "GET": ADMINS, "PUT": ADMINS, "DELETE": ADMINS},
    request=DrainRequest,
    view=DrainView,
    row=DrainRow,
)
OPERATIONS = operation_kind(OperationRow, Scope.SERVICE, ADMINS)
"""The routes that need the right to drain."""
WORKFLOW_DRAINS = drain_kind(WorkflowDrains)
STUCK = ResourceKind("stuck", Scope.SERVICE, {"LIST": ADMINS}, view=StuckView)
WHAT_IFS = ResourceKind("what-ifs", Scope.PHYSICAL, {"CREATE": VIEWERS}, queries=("CREATE",))
EVENTS = ResourceKind("events", Scope.MIXED, {"LIST": VIEWERS}, view=EventView, row=EventRow)
TELEMETRY = ResourceKind("telemetry", Scope.MIXED, {"LIST": VIEWERS}, view=TelemetryView)

ACCESS = AccessRules(
    "MatrixLink",
    kinds_in(globals()),
    (
        Rule("GET", "/v1/probes", "probes", VIEWERS, Scope.PHYSICAL, mutates=False),
        Rule("GET", "/v1/reachability", "reachability", VIEWERS, Scope.SERVICE, mutates=False),
    ),
)
