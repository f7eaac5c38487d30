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
from matrixcompute.workflows.draining import without
from matrixresource.contract.allocations import AllocationView


async def room_for(
    neighbours: ControlPlane, name: str, shape: InstanceRequest, present: AllocationView, wanted: int
) -> int:
    """The largest number of members, up to `wanted`, for which there is room without preemption; the present number if
    there is no room for more. Changes nothing."""
    for nodes in range(wanted, present.nodes, -1):
        request = compose(name, shape.model_copy(update={"nodes": nodes, "spares": present.spares}))
        try:
            planned = await neighbours.reserve(name, request, validate_only=True)
        except (Conflict, InvalidField):  # with blocks, only some sizes are valid
            continue
        if not planned.preempts:
            return nodes
    return present.nodes


async def take_spares(neighbours: ControlPlane, name: str, shape: InstanceRequest) -> None:
    """Allocate the spares that were left out while members were missing, if nodes are free."""
    request = compose(name, shape)
    with contextlib.suppress(Conflict):
        if not (await neighbours.reserve(name, request, validate_only=True)).preempts:
            await neighbours.reserve(name, request)


async def take_members(work: StepContext) -> None:
    """Commit nodes for missing members, as many as there was room for."""
    size = {name: int(work.parameters[name]) for name in ("nodes", "spares")}
    allocation = await work.neighbours.reserve(
        work.instance, compose(work.instance, work.shape.model_copy(update=size))
    )
    coming = {*steps.nodes_of(allocation, {"member"})} - {*work.parameters["members"].split()}
    of = f"{allocation.nodes} of {work.shape.nodes} members"
    work.record_event("Restoring", f"adding {', '.join(sorted(coming))}, for {of}")


async def give_members_back(work: StepContext) -> None:
    """Undo: go back to the previous members, and to slices over those."""
    allocation = active_or_none(await work.neighbours.find_allocation(work.instance))
    if allocation is None:
        return
    members = {*steps.nodes_of(allocation, {"member"})}
    if coming := sorted(members - {*work.parameters["members"].split()}):
        size = {"nodes": len(members) - len(coming), "spares": int(work.parameters["spares"])}
        shape = work.shape.model_copy(update=size)
        await work.neighbours.reserve(work.instance, without(compose(work.instance, shape), coming))
    await steps.admit(work, work.shape, {"member"})
    await steps.program_routes(work)
    await steps.bind_nodes(work)
