"""Instances over HTTP, and the operations on them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query

from matrixcommon.api.operations import operation_routes
from matrixcommon.api.resource_routes import KindRoutes, ResourceRoutes
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.workflows.operations import Operations
from matrixcompute import access
from matrixcompute.contract import InstanceRequest, InstanceView
from matrixcompute.instances.service import InstanceService
from matrixcompute.operations.context import StepContext
from matrixcompute.store.store import ComputeStore, OperationRow
from matrixresource.contract.allocations import RenewRequest
from matrixresource.contract.nodes import Power
from matrixresource.contract.requested_capacity import PlacementPolicy

LeavingMembers = Annotated[
    Sequence[NodeName], Query(max_length=1024, description="where it shrinks: the members that go, drained before")
]


def instance_routes(
    store: ComputeStore, service: InstanceService, operations: Operations[StepContext, OperationRow]
) -> APIRouter:
    """The routes of instances and of the operations on them."""
    api = ResourceRoutes(store.records)
    instances = api.of(access.INSTANCES)
    instances.list()
    instances.get()
    instances.change("DELETE", status_code=202, name="delete_instance")(service.delete)
    instances.change("POST :retry", status_code=202)(service.retry)
    _specs(instances, service)
    _power(instances, service)
    operation_routes(api, access.OPERATIONS, access.WORKFLOW_DRAINS, operations)
    return api.router


def _specs(instances: KindRoutes, service: InstanceService) -> None:
    """The routes that change an instance's spec, as a whole or in part."""

    @instances.change("PUT", status_code=202)
    async def ensure_instance(
        name: str,
        body: InstanceRequest,
        leaving: LeavingMembers = (),
        if_match: str | None = None,
        validate_only: bool = False,
    ) -> InstanceView:
        return await service.ensure(name, body, leaving=leaving, if_match=if_match, validate_only=validate_only)

    @instances.change("POST :resize", status_code=202)
    async def resize(
        name: str,
        nodes: Annotated[int, Query(ge=1, le=49152)],
        leaving: LeavingMembers = (),
        if_match: str | None = None,
        validate_only: bool = False,
    ) -> InstanceView:
        return await service.change(
            name, {"nodes": nodes}, leaving=leaving, if_match=if_match, validate_only=validate_only
        )

    @instances.change("POST :move", status_code=202)
    async def move(
        name: str, body: PlacementPolicy, if_match: str | None = None, validate_only: bool = False
    ) -> InstanceView:
        """Change the placement and keep the shape. With `validateOnly`, the view's members are those it would have."""
        return await service.change(name, {"placement": body}, if_match=if_match, validate_only=validate_only)

    @instances.change("POST :renew", status_code=202)
    async def renew(
        name: str, body: RenewRequest, if_match: str | None = None, validate_only: bool = False
    ) -> InstanceView:
        """Restart its lease with this duration; the spec does not change."""
        return await service.renew(name, body.lease_s, if_match=if_match, validate_only=validate_only)


def _power(instances: KindRoutes, service: InstanceService) -> None:
    def switch(power: Power) -> Callable[..., Awaitable[InstanceView]]:
        async def switch_power(name: str, if_match: str | None = None, validate_only: bool = False) -> InstanceView:
            return await service.change(name, {"power": power}, if_match=if_match, validate_only=validate_only)

        return switch_power

    instances.change("POST :stop", status_code=202, name="stop_instance")(switch("Off"))
    instances.change("POST :start", status_code=202, name="start_instance")(switch("On"))
    instances.change("POST :restart", status_code=202, name="restart_instance")(service.restart)
