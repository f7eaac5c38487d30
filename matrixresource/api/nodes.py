"""Routes for nodes and their NPUs: views, cordons, and administrators' verbs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query

from matrixcommon.api.authorization import Caller
from matrixcommon.api.resource_routes import KindRoutes, ResourceRoutes
from matrixcommon.model.hardware_names import RESOURCE_NAME, NodeName, NpuName
from matrixcommon.model.state_machine import Verb
from matrixresource.allocations.allocator import Allocator
from matrixresource.allocations.node_lifecycle import NodeLifecycle
from matrixresource.api import access
from matrixresource.contract.nodes import (
    ADMIN,
    CordonRequest,
    CordonView,
    InventoryView,
    NodeVerbRequest,
    NodeView,
    NpuView,
)
from matrixresource.controllers.node_reports import NodeReportProcessor
from matrixresource.nodes.states import NODE_STATES
from matrixresource.store.node_inventories import inventory_view
from matrixresource.store.npu_views import npu_views
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow
from matrixresource.store.topology_versions import spec_at, specs_at

CordonOwner = Annotated[str, Query(pattern=RESOURCE_NAME.pattern, description="the owner of the cordon")]


def node_routes(
    store: ResourceStore,
    allocator: Allocator,
    reports: NodeReportProcessor,
    lifecycle: NodeLifecycle,
    replenish: Callable[[], None],
) -> APIRouter:
    """The routes over one store's nodes. `replenish` wakes the watcher that refills spares."""
    api = ResourceRoutes(store.records)
    nodes = api.of(access.NODES)
    _inventory(nodes, store)
    _cordons(api, nodes, allocator, replenish)
    _lifecycle_verbs(nodes, lifecycle, replenish)
    _spares(api.of(access.SPARES), store)
    _npus(api.of(access.NPUS), store, reports, replenish)
    return api.router


def _inventory(nodes: KindRoutes, store: ResourceStore) -> None:
    nodes.list()
    nodes.get()

    @nodes.ask("GET /inventory", summary="The inventory a node reported, and how it differs from what is expected")
    async def get_inventory(name: NodeName) -> InventoryView:
        with store.reading() as session:
            node = store.node(session, name)
            return inventory_view(session, node, spec_at(session, node.supernode))


def _cordons(api: ResourceRoutes, nodes: KindRoutes, allocator: Allocator, replenish: Callable[[], None]) -> None:
    @nodes.change("POST :cordon")
    def cordon(name: NodeName, by: CordonOwner = ADMIN) -> NodeView:
        """Keep new work off a node; each owner has its own cordon."""
        return allocator.cordon(name, True, by)

    @nodes.change("POST :uncordon", after=replenish)
    def uncordon(name: NodeName, by: CordonOwner = ADMIN) -> NodeView:
        """Lift that owner's cordon; those of others stay."""
        return allocator.cordon(name, False, by)

    @api.of(access.NODE_CORDONS).change("CREATE")
    def cordon_nodes(body: CordonRequest) -> CordonView:
        """Cordon all of these, in one transaction. Those that do not exist are left out; if none exists, that is an
        error."""
        return CordonView(nodes=allocator.cordon_all(body.nodes, body.cabinets, body.by))


def _lifecycle_verbs(nodes: KindRoutes, lifecycle: NodeLifecycle, replenish: Callable[[], None]) -> None:
    for verb in NODE_STATES.verbs.values():
        nodes.change(f"POST :{verb.name}", name=verb.name, description=_described(verb), after=replenish)(
            _asking(lifecycle, verb.name)
        )


def _spares(kind: KindRoutes, store: ResourceStore) -> None:
    def spares() -> list[NodeView]:
        with store.reading() as session:
            return [row.view() for row in store.nodes(session) if row.role == "spare"]

    kind.list(spares)


def _npus(npus: KindRoutes, store: ResourceStore, reports: NodeReportProcessor, replenish: Callable[[], None]) -> None:
    def every_npu() -> list[NpuView]:
        with store.reading() as session:
            rows = store.nodes(session)
            specs = specs_at(session, (row.supernode for row in rows))
            return [npu for row in rows for npu in npu_views(row, specs[row.supernode])]

    npus.list(every_npu)

    @npus.change(
        "POST :release",
        row=lambda name: (NodeRow, name.node),
        after=replenish,
        summary="Release this NPU from its separation for frequent faults",
    )
    def release_npu(name: NpuName) -> NpuView:
        node = reports.release(name)
        with store.reading() as session:
            spec = spec_at(session, node.supernode)
        return next(npu for npu in npu_views(node, spec) if npu.name == name)


def _asking(lifecycle: NodeLifecycle, verb: str) -> Callable[..., NodeView]:
    def ask(name: NodeName, caller: Caller, body: NodeVerbRequest | None = None) -> NodeView:
        return lifecycle.execute_verb(name, verb, body or NodeVerbRequest(), by=caller.principal.name[:63])

    return ask


def _described(verb: Verb) -> str:
    risk = f" With `force`: {verb.risk}." if verb.risk else ""
    return f"{verb.sentence}. For nodes that are {', '.join(verb.after)}.{risk}"
