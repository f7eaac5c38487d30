"""The steps that bring an instance in its degraded shape back to its size, as far as there is room for it."""

from __future__ import annotations

from matrixcommon.model.errors import Conflict, InvalidField
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.contract import InstanceRequest
from matrixcompute.model.composition import compose
from matrixcompute.operations.saga import StepContext
from matrixcompute.recovery.loss import active_or_none
from matrixcompute.workflows import steps
from matrixcompute.workflows.draining import without


async def room_for(neighbours: ControlPlane, name: str, shape: InstanceRequest, held: int, wanted: int) -> int:
    """With how many members it would find room, more than it has and `wanted` at most, and nobody preempted for it;
    `held` where there is none. Nothing is changed."""
    for nodes in range(wanted, held, -1):
        request = compose(name, shape.model_copy(update={"nodes": nodes}))
        try:
            planned = await neighbours.reserve(name, request, validate_only=True)
        except (Conflict, InvalidField):  # of blocks, only some sizes are any
            continue
        if not planned.preempts:
            return nodes
    return held


async def take_members(work: StepContext) -> None:
    """Commit nodes for members it goes without, as many as there was room for."""
    shape = work.shape.model_copy(update={"nodes": int(work.parameters["nodes"])})
    allocation = await work.neighbours.reserve(work.instance, compose(work.instance, shape))
    coming = {*steps.nodes_of(allocation, {"member"})} - {*work.parameters["members"].split()}
    size = f"{allocation.nodes} of {work.shape.nodes} members"
    work.record_event("Restoring", f"there is room: {', '.join(sorted(coming))} make it {size}")


async def give_members_back(work: StepContext) -> None:
    """Go back to the members it had before, and to slices over those."""
    allocation = active_or_none(await work.neighbours.find_allocation(work.instance))
    if allocation is None:
        return
    members = {*steps.nodes_of(allocation, {"member"})}
    if coming := sorted(members - {*work.parameters["members"].split()}):
        shape = work.shape.model_copy(update={"nodes": len(members) - len(coming)})
        await work.neighbours.reserve(work.instance, without(compose(work.instance, shape), coming))
    await steps.admit(work, work.shape, {"member"})
    await steps.program_routes(work)
    await steps.bind_nodes(work)
