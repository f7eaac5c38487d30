"""The steps that bring an instance in degraded shape back to full size, as far as there is room."""

from __future__ import annotations

import contextlib

from matrixcommon.model.errors import Conflict, InvalidField
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.contract import InstanceRequest
from matrixcompute.model.composition import compose
from matrixcompute.operations.context import StepContext
from matrixcompute.recovery.loss import active_or_none
from matrixcompute.workflows import steps
from matrixcompute.workflows.draining import exclude_nodes
from matrixresource.contract.allocations import AllocationView


async def largest_available_size(
    control_plane: ControlPlane, name: str, shape: InstanceRequest, present: AllocationView, desired: int
) -> int:
    """The largest number of members, up to `desired`, for which there is room without preemption; the present number if
    there is no room for more. Changes nothing."""
    for nodes in range(desired, present.nodes, -1):
        request = compose(name, shape.model_copy(update={"nodes": nodes, "spares": present.spares}))
        try:
            planned = await control_plane.reserve(name, request, validate_only=True)
        except (Conflict, InvalidField):  # with blocks, only some sizes are valid
            continue
        if not planned.preempts:
            return nodes
    return present.nodes


async def reserve_spares(control_plane: ControlPlane, name: str, shape: InstanceRequest) -> None:
    """Allocate the spares that were left out while members were missing, if nodes are free."""
    request = compose(name, shape)
    with contextlib.suppress(Conflict):
        if not (await control_plane.reserve(name, request, validate_only=True)).preempts:
            await control_plane.reserve(name, request)


async def take_members(context: StepContext) -> None:
    """Commit nodes for missing members, as many as there was room for."""
    size = {name: int(context.parameters[name]) for name in ("nodes", "spares")}
    allocation = await context.control_plane.reserve(
        context.instance, compose(context.instance, context.shape.model_copy(update=size))
    )
    added = {*steps.nodes_of(allocation, {"member"})} - {*context.parameters["members"].split()}
    of = f"{allocation.nodes} of {context.shape.nodes} members"
    context.record_event("Restoring", f"adding {', '.join(sorted(added))}, for {of}")


async def give_members_back(context: StepContext) -> None:
    """Undo: go back to the previous members, and to slices over those."""
    allocation = active_or_none(await context.control_plane.find_allocation(context.instance))
    if allocation is None:
        return
    members = {*steps.nodes_of(allocation, {"member"})}
    if added := sorted(members - {*context.parameters["members"].split()}):
        size = {"nodes": len(members) - len(added), "spares": int(context.parameters["spares"])}
        shape = context.shape.model_copy(update=size)
        await context.control_plane.reserve(context.instance, exclude_nodes(compose(context.instance, shape), added))
    await steps.admit(context, context.shape, {"member"})
    await steps.program_routes(context)
    await steps.bind_nodes(context)
