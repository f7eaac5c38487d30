"""The care of links over HTTP: what probes say, what happened, and letting go of a damped port."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from matrixcommon.api.listing import IfMatch, Params, ValidateOnly, list_or_watch
from matrixcommon.api.mutations import Mutations
from matrixlink.contract.slices import LinkView, ProbeRound, ProbesView, SuspicionView
from matrixlink.link_health.fault_localisation import FaultLocaliser
from matrixlink.link_health.link_state import LinkStateTracker
from matrixlink.slices.slice_controller import SliceController
from matrixlink.store.tables import LinkRow
from matrixlink.telemetry.inventory import FabricInventory


def care_routes(
    switchboard: SliceController, conditions: LinkStateTracker, diagnosis: FaultLocaliser, nudge: Callable[[], None]
) -> APIRouter:
    """`nudge` has routes looked at anew."""
    api = APIRouter(prefix="/v1")
    change = Mutations(switchboard.store.records).run
    store, inventory = switchboard.store, FabricInventory(switchboard)

    @api.post("/links/{name}:undamp")
    async def undamp(name: str, if_match: IfMatch = None, validate_only: ValidateOnly = False) -> LinkView:
        def let_go() -> LinkView:
            with switchboard.promises.changing() as session:
                switchboard.promises.mark_stale()
                conditions.undamp(session, name)
            return inventory.link(name)

        view = await change(let_go, validate_only=validate_only, row=(LinkRow, name), if_match=if_match)
        nudge()
        return inventory.link(name) if not validate_only else view

    @api.get("/events")
    async def list_events(request: Request, params: Params) -> Response:
        def events() -> list[Any]:
            with store.reading() as session:
                return [row.view() for row in store.events(session)]

        params.order_by = params.order_by or "at"
        return list_or_watch(request, params, store.records, "event", events)

    @api.get("/probes")
    async def probes() -> ProbesView:
        return ProbesView(
            detected_within_s=diagnosis.detected_within_s,
            rounds=[
                ProbeRound(round=number, nodes=nodes, sent=sent, failed=failed)
                for number, nodes, sent, failed in diagnosis.rounds()
            ],
            suspicions=[
                SuspicionView(parts=list(each.parts)[:20], candidates=len(each.parts), share=round(each.share, 4),
                              witnesses=each.witnesses)
                for each in diagnosis.suspicions()
            ],
            at_fault=dict(sorted(conditions.accused().items())),
        )  # fmt: skip

    return api
