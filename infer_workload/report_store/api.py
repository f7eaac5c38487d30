"""Stored reports over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from infer_workload.report_store.access import REPORTS
from infer_workload.report_store.contract import ReportComparisonView, ReportContentView, ReportRequest, ReportView
from infer_workload.report_store.service import ReportStore
from matrixcommon.api.authorization import Caller, RequestCaller
from matrixcommon.api.resource_routes import ResourceRoutes


def routes(store: ReportStore) -> APIRouter:
    """The routes over one `ReportStore`."""
    api = ResourceRoutes(store.records)
    reports = api.of(REPORTS)
    reports.list(order_by="createdAt desc")
    reports.get()

    @reports.change("PUT")
    def ensure_report(name: str, body: ReportRequest, caller: Caller) -> ReportView:
        """Store a report, replacing one of the same name."""
        return store.ensure(name, body, caller.principal.name)

    @reports.change("DELETE")
    def delete_report(name: str) -> None:
        """Delete a report."""
        store.delete(name)

    @reports.ask("GET /content")
    async def get_report_content(name: str) -> ReportContentView:
        """The content of a report: its document, plots and page."""
        return store.content(name)

    @reports.ask("GET /comparison")
    async def compare_reports(
        name: str,
        caller: RequestCaller,
        other: Annotated[
            str, Query(alias="with", max_length=127, description="report to compare with, taken as the later one")
        ],
    ) -> ReportComparisonView:
        """Every number of this report beside that of another, and whether the change is for the better."""
        return store.comparison(name, caller.resolve(other))

    return api.router
