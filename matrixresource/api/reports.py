"""Routes for agents' assignments and reports, for events, and for what is stuck."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter

from matrixcommon.api.authorization import Caller
from matrixcommon.api.resource_routes import ResourceRoutes
from matrixcommon.model.clock import Clock
from matrixcommon.model.resource_model import StuckView
from matrixresource.allocations.stuck_nodes import stuck_nodes
from matrixresource.api import access
from matrixresource.contract.agents import NodeReports, ReportAnswer, ReportAnswers
from matrixresource.controllers.node_reports import NodeReportProcessor
from matrixresource.store.store import ResourceStore


def report_routes(
    store: ResourceStore,
    reports: NodeReportProcessor,
    clock: Clock,
    stuck_operations: Callable[[], list[StuckView]],
) -> APIRouter:
    """The routes over one store's reports."""
    api = ResourceRoutes(store.records)
    api.of(access.EVENTS).list(order_by="at")

    def stuck() -> list[StuckView]:
        with store.reading() as session:
            return [*stuck_nodes(store, session, clock.now()), *stuck_operations()]

    api.of(access.STUCK).list(stuck, description="Nodes and operations past the deadline of their state.")

    api.of(access.ASSIGNMENTS).list()

    @api.of(access.NODE_REPORTS).change("CREATE")
    async def take_reports(body: NodeReports, caller: Caller, validate_only: bool = False) -> ReportAnswers:
        """Each report by itself: one for a node that the token does not cover is refused, and the others are
        accepted."""

        def answers() -> ReportAnswers:
            return ReportAnswers(answers=caller.answer_reports(body.reports, reports.process, _refused))

        return store.records.dry_run(answers) if validate_only else answers()

    return api.router


def _refused(node: str, reason: str, message: str) -> ReportAnswer:
    return ReportAnswer(node=node, accepted=False, reason=reason, message=message)
