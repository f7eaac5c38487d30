"""The steps that bring an instance in its degraded shape back to its size, as far as there is room for it."""

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
    """With how many members it would find room, more than it has and `wanted` at most, and nobody preempted for it;
    as many as it has where there is none. Nothing is changed."""
    for nodes in range(wanted, present.nodes, -1):
        request = compose(name, shape.model_copy(update={"nodes": nodes, "spares": present.spares}))
        try:
            planned = await neighbours.reserve(name, request, validate_only=True)
        except (Conflict, InvalidField):  # of blocks, only some sizes are any
            continue
        if not planned.preempts:
            return nodes
    return present.nodes


async def take_spares(neighbours: ControlPlane, name: str, shape: InstanceRequest) -> None:
    """The spares that were left out while members were missing, if there are any."""
    request = compose(name, shape)
    with contextlib.suppress(Conflict):
        if not (await neighbours.reserve(name, request, validate_only=True)).preempts:
            await neighbours.reserve(name, request)


async def take_members(work: StepContext) -> None:
    """Commit nodes for members it goes without, as many as there was room for."""
    size = {name: int(work.parameters[name]) for name in ("nodes", "spares")}
    allocation = await work.neighbours.reserve(
        work.instance, compose(work.instance, work.shape.model_copy(update=size))
    )
    coming = {*steps.nodes_of(allocation, {"member"})} - {*work.parameters["members"].split()}
    of = f"{allocation.nodes} of {work.shape.nodes} members"
    work.record_event("Restoring", f"there is room: {', '.join(sorted(coming))} make it {of}")


async def give_members_back(work: StepContext) -> None:
    """Go back to the members it had before, and to slices over those."""
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
