"""Routes for allocations, reservations of capacity, and project quotas."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter

from matrixcommon.api.resource_routes import KindRoutes, ResourceRoutes
from matrixresource.allocations.allocator import Allocator
from matrixresource.allocations.node_lifecycle import NodeLifecycle
from matrixresource.allocations.quotas import Quotas
from matrixresource.allocations.reservations import ReservationService
from matrixresource.api import access
from matrixresource.contract.allocations import AllocationView, RenewRequest, RepairRequest, ReplaceRequest
from matrixresource.store.store import ResourceStore


def allocation_routes(
    store: ResourceStore, allocator: Allocator, lifecycle: NodeLifecycle, replenish: Callable[[], None]
) -> APIRouter:
    """The routes over one allocator. `replenish` wakes the watcher that refills spares."""
    api = ResourceRoutes(store.records)
    allocations = api.of(access.ALLOCATIONS)
    allocations.list()
    allocations.get()
    allocations.change("PUT", fast=True)(allocator.reserve)
    allocations.change("DELETE", fast=True, after=replenish)(allocator.release)
    allocations.change("PUT /binding")(allocator.bind)
    _moves(allocations, allocator)
    _members(allocations, allocator, lifecycle)

    @allocations.change("POST :renew")
    def renew(name: str, body: RenewRequest) -> AllocationView:
        """Restart the lease."""
        return allocator.renew(name, body.lease_s)

    _reservations(api.of(access.RESERVATIONS), allocator.reservations)
    _quotas(api.of(access.QUOTAS), Quotas(store))
    return api.router


def _moves(allocations: KindRoutes, allocator: Allocator) -> None:
    allocations.change("PUT /move")(allocator.move)
    allocations.change("POST :changeOver", name="change_over")(allocator.cut_over)
    allocations.change("DELETE /move")(allocator.abort_move)


def _members(allocations: KindRoutes, allocator: Allocator, lifecycle: NodeLifecycle) -> None:
    """Verbs on a single member."""
    allocations.change("POST :relocate", summary="Begin moving one member to a named node")(allocator.relocate)

    @allocations.change("POST :replace")
    def replace(name: str, body: ReplaceRequest) -> AllocationView:
        return allocator.replace(name, body.node, body.reason)

    @allocations.change("POST :repair", summary="Have a member's agent repair it in place")
    def repair(name: str, body: RepairRequest) -> AllocationView:
        return lifecycle.repair(name, body.node, body.task)


def _reservations(kind: KindRoutes, reservations: ReservationService) -> None:
    kind.list()
    kind.get()
    kind.change("PUT", name="ensure_reservation")(reservations.put)
    kind.change("DELETE", name="delete_reservation")(reservations.delete)


def _quotas(kind: KindRoutes, quotas: Quotas) -> None:
    kind.list(quotas.list)
    kind.get(quotas.get)
    kind.change("PUT", name="ensure_quota")(quotas.put)
    kind.change("DELETE", name="delete_quota")(quotas.delete)
