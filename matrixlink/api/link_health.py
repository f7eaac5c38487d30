"""Routes for link health: results of probes, events, and releasing a damped port."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter

from matrixcommon.api.resource_routes import ResourceRoutes
from matrixlink.api import access
from matrixlink.contract.inventory import LinkView
from matrixlink.contract.telemetry import ProbeRound, ProbesView, SuspicionView
from matrixlink.link_health.fault_localisation import FaultLocaliser
from matrixlink.link_health.link_state import LinkStateTracker
from matrixlink.slices.slice_controller import SliceController
from matrixlink.telemetry.inventory import FabricInventory


def link_health_routes(
    slice_controller: SliceController,
    conditions: LinkStateTracker,
    diagnosis: FaultLocaliser,
    nudge: Callable[[], None],
) -> APIRouter:
    """`nudge` triggers a check of routes."""
    api = ResourceRoutes(slice_controller.store.records)
    inventory = FabricInventory(slice_controller)

    @api.of(access.LINKS).change("POST :undamp", after=nudge, shown=inventory.link)
    def undamp(name: str) -> LinkView:
        with slice_controller.promises.transaction() as session:
            slice_controller.promises.mark_stale()
            conditions.undamp(session, name)
        return inventory.link(name)

    api.of(access.EVENTS).list(order_by="at")

    @api.router.get("/probes")
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

    return api.router
