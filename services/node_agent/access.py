"""Access rules for the emulated hardware."""

from __future__ import annotations

from matrixcommon.api.authorization import (
    ADMIN_EDITABLE,
    ADMINS,
    EDITABLE,
    READ,
    VIEWERS,
    AccessRules,
    ResourceKind,
    Rule,
    Scope,
)
from services.node_agent.contract import (
    FaultRequest,
    InjectedFaultView,
    ProcessFaultRequest,
    ProcessFaultView,
    ProcessView,
)
from services.node_agent.network.traffic_patterns import Load, LoadView

SUPERNODES = ResourceKind("supernodes", Scope.PHYSICAL, {"LIST": VIEWERS, "PUT": ADMINS, "DELETE": ADMINS})
NODES = ResourceKind("nodes", Scope.PHYSICAL, READ, holders=("holds", "tables"))
FAULTS = ResourceKind("faults", Scope.PHYSICAL, ADMIN_EDITABLE, request=FaultRequest, view=InjectedFaultView)
PROCESSES = ResourceKind("processes", Scope.PHYSICAL, READ, view=ProcessView)
PROCESS_FAULTS = ResourceKind(
    "process-faults", Scope.PHYSICAL, ADMIN_EDITABLE, request=ProcessFaultRequest, view=ProcessFaultView
)
TRAFFIC = ResourceKind("traffic", Scope.PROJECT, EDITABLE, request=Load, view=LoadView)

ACCESS = AccessRules(
    "Emulated nodes",
    (SUPERNODES, NODES, FAULTS, PROCESSES, PROCESS_FAULTS, TRAFFIC),
    (Rule("GET", "/v1/fault-kinds", "fault-kinds", VIEWERS, Scope.PHYSICAL, mutates=False),),
)
