"""Who may do what in MatrixResource."""

from __future__ import annotations

from matrixcommon.api.authorization import ADMINS, AGENTS, EDITORS, VIEWERS, AccessRules, ResourceKind, Rule, Scope
from matrixresource.contract.agents import AssignmentView
from matrixresource.contract.allocations import AllocationView, QuotaView
from matrixresource.contract.defragmentations import DefragmentationView
from matrixresource.contract.nodes import NodeView, NpuView, SupernodeView
from matrixresource.contract.reservations import ReservationView
from matrixresource.contract.topology import DomainView, TopologyVersionView

HOLDERS = ("allocation", "allocations")
"""Fields that name who holds something."""

NODES = ResourceKind(
    "nodes",
    Scope.PHYSICAL,
    {"LIST": VIEWERS, "GET": VIEWERS, "GET /inventory": VIEWERS, "POST :cordon": ADMINS, "POST :uncordon": ADMINS},
    view=NodeView,
    holders=HOLDERS,
)
NPUS = ResourceKind("npus", Scope.PHYSICAL, {"LIST": VIEWERS, "POST :release": ADMINS}, view=NpuView, holders=HOLDERS)
SPARES = ResourceKind("spares", Scope.PHYSICAL, {"LIST": VIEWERS}, view=NodeView, holders=HOLDERS)
ALLOCATIONS = ResourceKind(
    "allocations",
    Scope.PROJECT,
    {
        "LIST": VIEWERS,
        "GET": VIEWERS,
        "PUT": EDITORS,
        "DELETE": EDITORS,
        "PUT /binding": EDITORS,
        "PUT /move": EDITORS,
        "DELETE /move": EDITORS,
        "POST :changeOver": EDITORS,
        "POST :replace": EDITORS,
        "POST :renew": EDITORS,
        "POST :relocate": EDITORS,
    },
    view=AllocationView,
    holders=("preempts",),
)
ASSIGNMENTS = ResourceKind("assignments", Scope.NODE, {"LIST": AGENTS}, view=AssignmentView)
NODE_REPORTS = ResourceKind("node-reports", Scope.NODE, {"CREATE": AGENTS})
PLANS = ResourceKind(
    "plans", Scope.PROJECT, {"CREATE": VIEWERS}, holders=("preempts", "allocations"), queries=("CREATE",)
)
RESERVATIONS = ResourceKind(
    "reservations",
    Scope.PROJECT,
    {"LIST": VIEWERS, "GET": VIEWERS, "PUT": EDITORS, "DELETE": EDITORS},
    view=ReservationView,
)
QUOTAS = ResourceKind(
    "quotas", Scope.ITSELF, {"LIST": VIEWERS, "GET": VIEWERS, "PUT": ADMINS, "DELETE": ADMINS}, view=QuotaView
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
    view=DefragmentationView,
)
SUPERNODES = ResourceKind(
    "supernodes",
    Scope.PHYSICAL,
    {
        "LIST": VIEWERS,
        "GET": VIEWERS,
        "GET /topology": VIEWERS,
        "GET /wiring": VIEWERS | AGENTS,
        "PUT": ADMINS,
        "DELETE": ADMINS,
    },
    view=SupernodeView,
)
TOPOLOGY_VERSIONS = ResourceKind(
    "topology-versions", Scope.PHYSICAL, {"LIST": VIEWERS, "GET": VIEWERS}, view=TopologyVersionView
)
DOMAINS = ResourceKind(
    "domains",
    Scope.PHYSICAL,
    {"LIST": VIEWERS, "GET": VIEWERS, "POST :close": ADMINS, "POST :open": ADMINS},
    view=DomainView,
    holders=HOLDERS,
)

ACCESS = AccessRules(
    "MatrixResource",
    (
        NODES,
        NPUS,
        SPARES,
        ALLOCATIONS,
        ASSIGNMENTS,
        NODE_REPORTS,
        PLANS,
        RESERVATIONS,
        QUOTAS,
        DEFRAGMENTATIONS,
        SUPERNODES,
        TOPOLOGY_VERSIONS,
        DOMAINS,
    ),
    (
        Rule("GET", "/v1/fragmentation", "fragmentation", VIEWERS, Scope.PHYSICAL, mutates=False),
        Rule("GET", "/v1/capacity", "capacity", VIEWERS, Scope.PHYSICAL, mutates=False),
    ),
)
