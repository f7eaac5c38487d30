"""Routes for slices, for what their members may use of the fabric, and for their paths after a failure."""

from __future__ import annotations

from fastapi import APIRouter, Response
from sqlalchemy.orm import Session

from matrixcommon.api.listing import json_response
from matrixcommon.api.resource_routes import KindRoutes, ResourceRoutes
from matrixcommon.model.errors import NotFound
from matrixcommon.model.planes import Plane
from matrixlink.admission.backup_paths import backup_paths
from matrixlink.api import access
from matrixlink.contract.slices import BackupPathsView, SliceRequest
from matrixlink.fabric.condition.fabric_view import FabricView, PlaneView, merge_views
from matrixlink.model.protection import Protection
from matrixlink.model.slice_states import WITHDRAWING
from matrixlink.ports import Allocations
from matrixlink.slices.slice_controller import SliceController
from matrixlink.store.tables import SliceRow


def slice_routes(slice_controller: SliceController, allocations: Allocations | None = None) -> APIRouter:
    """The routes over one slice controller. `allocations`, if given, checks which nodes a slice may have."""
    api = ResourceRoutes(slice_controller.store.records)
    slices = api.of(access.SLICES)
    slices.list()
    slices.get()
    slices.change("POST :program")(slice_controller.program)
    slices.change("DELETE", fast=True)(slice_controller.withdraw)

    async def are_allocated(request: SliceRequest) -> None:
        if allocations is not None:
            await allocations.check(request.allocation, request.members)

    slices.change("PUT", name="ensure_slice", before=are_allocated, fast=True)(slice_controller.admit)
    _fabric_views(slices, api.of(access.FABRIC_VIEWS), slice_controller)
    _backup_paths(api.of(access.BACKUP_PATHS), slice_controller)
    return api.router


def _fabric_views(slices: KindRoutes, instances: KindRoutes, slice_controller: SliceController) -> None:
    """What a slice, or all slices of an instance, may use."""
    store = slice_controller.store

    def fabric_view(row: SliceRow) -> FabricView:
        return FabricView(
            slice=row.name,
            instance=row.instance,
            machine=slice_controller.fabric.spec.model,
            generation=row.view_generation,
            planes={Plane(row.plane): PlaneView.from_stored(row.fabric_view)},
        )

    @slices.ask("GET /fabric-view")
    async def slice_fabric_view(name: str) -> FabricView:
        with store.reading() as session:
            return fabric_view(store.slice(session, name))

    @instances.ask("GET", response_model=FabricView)
    async def instance_fabric_view(name: str) -> Response:
        def ask(session: Session) -> FabricView | None:
            rows = [row for row in store.of_instance(session, name) if row.state != WITHDRAWING]
            return merge_views(name, [fabric_view(row) for row in rows]) if rows else None

        view = store.records.cached_query(SliceRow, ("fabric view", name), ask)
        if view is None:
            raise NotFound(f"no slice belongs to an instance named {name[:80]!r}", field="instance")
        return json_response(view)


def _backup_paths(paths: KindRoutes, slice_controller: SliceController) -> None:
    def all_backup_paths() -> list[BackupPathsView]:
        protected = [terms for terms in slice_controller.promises.slices if terms.protection != Protection.NONE]
        return [backup_paths(slice_controller.fabric, terms) for terms in protected]

    def one_backup_path(name: str) -> BackupPathsView:
        terms = slice_controller.promises.slices.get(name)
        if terms is None or terms.protection == Protection.NONE:
            raise NotFound(f"there is no protected slice named {name[:80]!r}", field="name")
        return backup_paths(slice_controller.fabric, terms)

    paths.list(all_backup_paths, summary="The paths that each protected slice would use after a failure")
    paths.get(one_backup_path)
