"""Routes for link agents: their programs and their reports."""

from __future__ import annotations

from fastapi import APIRouter

from matrixcommon.api.authorization import Caller, RequestCaller
from matrixcommon.api.resource_routes import ResourceRoutes
from matrixcommon.model.errors import NotFound
from matrixlink.api import access
from matrixlink.contract.link_reports import LinkReportAnswer, LinkReportAnswers, LinkReports
from matrixlink.contract.programs import ProgramView
from matrixlink.controllers.link_reports import LinkReportProcessor
from matrixlink.store.store import LinkStore
from matrixlink.store.tables import ProgramRow


def agent_routes(store: LinkStore, reports: LinkReportProcessor) -> APIRouter:
    """The routes over one store's programs."""
    api = ResourceRoutes(store.records)

    async def get_program(name: str, caller: RequestCaller) -> ProgramView:
        with store.reading() as session:
            found = session.get(ProgramRow, caller.key(name))
            hidden = found is not None and caller.principal.role == "agent"
            if found is None or (hidden and not caller.principal.may_report_for(found.node)):
                raise NotFound(f"there is no program named {name[:80]!r}", field="name")
            return found.view()

    for kind in (access.PROGRAMS, access.ROUTES):
        api.of(kind).list()
        api.of(kind).ask("GET")(get_program)

    @api.of(access.LINK_REPORTS).change("CREATE", fast=True)
    def take_reports(body: LinkReports, caller: Caller) -> LinkReportAnswers:
        """Each report by itself: one for a node that the token does not cover is refused, and the others are
        accepted."""
        return LinkReportAnswers(answers=caller.answer_reports(body.reports, reports.take, _refused))

    return api.router


def _refused(node: str, reason: str, message: str) -> LinkReportAnswer:
    return LinkReportAnswer(node=node, accepted=False, reason=reason, message=message)
