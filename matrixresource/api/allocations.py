"""MatrixResource over HTTP: one call in, one view out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query

from matrixcommon.api.authorization import Caller, CallerOf
from matrixcommon.api.resource_routes import ResourceRoutes
from matrixcommon.model.clock import Clock
from matrixcommon.model.hardware_names import RESOURCE_NAME, NodeName, NpuName
from matrixcommon.model.resource_model import StuckView
from matrixcommon.model.state_machine import Verb
from matrixcommon.persistence.searches import search_outside
from matrixresource.allocations.allocator import Allocator
from matrixresource.allocations.node_lifecycle import NodeLifecycle
from matrixresource.allocations.quotas import Quotas
from matrixresource.allocations.stuck_nodes import stuck_nodes
from matrixresource.api import access
from matrixresource.contract.agents import NodeReports, ReportAnswer, ReportAnswers
from matrixresource.contract.allocations import AllocationView, RenewRequest, RepairRequest, ReplaceRequest
from matrixresource.contract.capacity import CapacityView
from matrixresource.contract.nodes import (
    ADMIN,
    CordonRequest,
    CordonView,
    InventoryView,
    NodeVerbRequest,
    NodeView,
    NpuView,
)
from matrixresource.contract.plans import FragmentationView, PlanRequest, PlanView
from matrixresource.controllers.node_reports import NodeReportProcessor as ReportReader
from matrixresource.nodes.states import NODE_STATES
from matrixresource.planning.capacity_report import CapacityReport
from matrixresource.planning.planner import Planner
from matrixresource.store.node_inventories import inventory_view
from matrixresource.store.npu_views import npu_views
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow
from matrixresource.store.topology_versions import spec_at

CordonOwner = Annotated[str, Query(pattern=RESOURCE_NAME.pattern, description="whose cordon it is")]


def routes(
    store: ResourceStore,
    allocator: Allocator,
    reports: ReportReader,
    capacity: CapacityReport,
    clock: Clock,
    lifecycle: NodeLifecycle,
    replenish: Callable[[], None],
    stuck_operations: Callable[[], list[StuckView]],
) -> APIRouter:
    """The routes over one store. `replenish` nudges the watcher that refills spares."""
    api = ResourceRoutes(store.records)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    nodes = api.of(access.NODES)
    nodes.list()
    nodes.get()

    @nodes.ask("GET /inventory", summary="What the node reported to consist of, and how that differs")
    async def get_inventory(name: NodeName) -> InventoryView:
        with store.reading() as session:
            node = store.node(session, name)
            return inventory_view(session, node, spec_at(session, node.supernode))

    @nodes.change("POST :cordon")
    def cordon(name: NodeName, by: CordonOwner = ADMIN) -> NodeView:
        """Keep newcomers off it; each owner has a cordon of its own."""
        return allocator.cordon(name, True, by)

    @nodes.change("POST :uncordon", after=replenish)
    def uncordon(name: NodeName, by: CordonOwner = ADMIN) -> NodeView:
        """Take that owner's cordon back; those of others stay."""
        return allocator.cordon(name, False, by)

    @api.of(access.NODE_CORDONS).change("CREATE")
    def cordon_nodes(body: CordonRequest) -> CordonView:
        """Keep newcomers off all of these, or off none; who does not exist any more is left out."""
        return CordonView(nodes=allocator.cordon_all(body.nodes, body.by))

    for verb in NODE_STATES.verbs.values():
        nodes.change(f"POST :{verb.name}", name=verb.name, description=_described(verb), after=replenish)(
            _asking(lifecycle, verb.name)
        )

    api.of(access.EVENTS).list(order_by="at")

    def stuck() -> list[StuckView]:
        with store.reading() as session:
            return [*stuck_nodes(store, session, clock.now()), *stuck_operations()]

    api.of(access.STUCK).list(stuck, description="Nodes and operations that take longer than they may.")

    npus = api.of(access.NPUS)

    def every_npu() -> list[NpuView]:
        with store.reading() as session:
            return [npu for row in store.nodes(session) for npu in npu_views(row)]

    npus.list(every_npu)

    @npus.change(
        "POST :release",
        row=lambda name: (NodeRow, name.node),
        after=replenish,
        summary="Revoke that frequent faults separated this NPU",
    )
    def release_npu(name: NpuName) -> NpuView:
        return next(npu for npu in npu_views(reports.release(name)) if npu.name == name)

    def spares() -> list[NodeView]:
        with store.reading() as session:
            return [row.view() for row in store.nodes(session) if row.role == "spare"]

    api.of(access.SPARES).list(spares)

    # -- allocations ---------------------------------------------------------------------------------------------------

    allocations = api.of(access.ALLOCATIONS)
    allocations.list()
    allocations.get()
    allocations.change("PUT", fast=True)(allocator.reserve)
    allocations.change("DELETE", fast=True, after=replenish)(allocator.release)
    allocations.change("PUT /binding")(allocator.bind)
    allocations.change("DELETE /move")(allocator.abort_move)

    allocations.change("PUT /move")(allocator.move)
    allocations.change("POST :changeOver", name="change_over")(allocator.cut_over)
    allocations.change("POST :relocate", summary="Take a successor for one member on a node that is named")(
        allocator.relocate
    )

    @allocations.change("POST :replace")
    def replace(name: str, body: ReplaceRequest) -> AllocationView:
        return allocator.replace(name, body.node, body.reason)

    @allocations.change("POST :repair", summary="Have a member's agent repair it where it stands")
    def repair(name: str, body: RepairRequest) -> AllocationView:
        return lifecycle.repair(name, body.node, body.task)

    @allocations.change("POST :renew")
    def renew(name: str, body: RenewRequest) -> AllocationView:
        """Let the lease start again."""
        return allocator.renew(name, body.lease_s)

    reservations = api.of(access.RESERVATIONS)
    reservations.list()
    reservations.get()
    reservations.change("PUT", name="ensure_reservation")(allocator.reservations.put)
    reservations.change("DELETE", name="delete_reservation")(allocator.reservations.delete)

    quotas, limits = api.of(access.QUOTAS), Quotas(store)
    quotas.list(limits.list)
    quotas.get(limits.get)
    quotas.change("PUT", name="ensure_quota")(limits.put)
    quotas.change("DELETE", name="delete_quota")(limits.delete)

    # -- agents, and what writes nothing -------------------------------------------------------------------------------

    api.of(access.ASSIGNMENTS).list()

    @api.of(access.NODE_REPORTS).change("CREATE")
    async def take_reports(body: NodeReports, caller: Caller, validate_only: bool = False) -> ReportAnswers:
        """Each by itself: one for a node that the token does not speak for is refused, the others are taken."""

        def answers() -> ReportAnswers:
            return ReportAnswers(answers=caller.answers_each(body.reports, reports.take, _refused))

        return store.records.dry_run(answers) if validate_only else answers()

    planner = Planner(store, allocator.ledger, clock)

    @api.of(access.PLANS).ask(
        "CREATE", summary="Would this fit; if not, why not and what would help? Nothing is created."
    )
    async def plan(body: PlanRequest, caller: CallerOf) -> PlanView:
        _, request = caller.claim(caller.key("plan"), body)
        for other in request.references:
            caller.check(other)

        async def answer() -> PlanView:
            return planner.plan(request)

        return await search_outside(answer, store.records.executor)

    @api.router.get("/fragmentation")
    async def fragmentation() -> FragmentationView:
        return planner.fragmentation()

    @api.router.get("/capacity", summary="How full the machine is and how what is free lies, per cabinet and supernode")
    async def show_capacity() -> CapacityView:
        return capacity.view()

    return api.router


def _asking(lifecycle: NodeLifecycle, verb: str) -> Callable[..., NodeView]:
    def ask(name: NodeName, caller: Caller, body: NodeVerbRequest | None = None) -> NodeView:
        return lifecycle.ask(name, verb, body or NodeVerbRequest(), by=caller.principal.name[:63])

    return ask


def _described(verb: Verb) -> str:
    risk = f" With `force`: {verb.risk}." if verb.risk else ""
    return f"{verb.sentence}. For nodes that are {', '.join(verb.after)}.{risk}"


def _refused(node: str, reason: str, message: str) -> ReportAnswer:
    return ReportAnswer(node=node, accepted=False, reason=reason, message=message)
