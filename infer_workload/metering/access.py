"""Access rules for usage and its limits: viewers of a project see its usage, only admins set limits."""

from __future__ import annotations

from infer_workload.metering.contract import UsageLimitRequest, UsageLimitView, UsageView
from infer_workload.metering.tables import UsageLimitRow
from matrixcommon.api.authorization import ADMIN_EDITABLE, VIEWERS, ResourceKind, Scope

USAGE = ResourceKind("usage", Scope.PROJECT, {"LIST": VIEWERS}, view=UsageView)
USAGE_LIMITS = ResourceKind(
    "usage-limits", Scope.PROJECT, ADMIN_EDITABLE, request=UsageLimitRequest, view=UsageLimitView, row=UsageLimitRow
)
