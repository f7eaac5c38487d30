"""Access rules for reports: viewers of a project see its reports, its editors store and delete them."""

from __future__ import annotations

from infer_workload.report_store.contract import ReportRequest, ReportView
from infer_workload.report_store.tables import ReportRow
from matrixcommon.api.authorization import EDITABLE, VIEWERS, ResourceKind, Scope

REPORTS = ResourceKind(
    "reports",
    Scope.PROJECT,
    {**EDITABLE, "GET /content": VIEWERS, "GET /comparison": VIEWERS},
    request=ReportRequest,
    view=ReportView,
    row=ReportRow,
)
