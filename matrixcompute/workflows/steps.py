"""Steps that allocate, connect and release nodes and slices. Each ensures one thing and is idempotent."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from matrixcommon.model.errors import (
    Conflict,
    InsufficientBandwidth,
    NotFound,
)
from matrixcommon.model.quantities import counted
from matrixcommon.model.resource_key import named, project_of
from matrixcommon.workflows.workflow import StepPending
from matrixcompute.contract import InstanceRequest
from matrixcompute.model.composition import SliceSpec, as_far_as_there_is, compose, slices_over
from matrixcompute.operations.context import StepContext
from matrixcompute.recovery.loss import active_or_none, diagnose_loss
from matrixcompute.recovery.policy import broken_members
from matrixcompute.workflows.draining import shrunk
from matrixcompute.workflows.new_members import note_source
from matrixresource.contract.allocations import AllocationView

RESTORE_S = 120.0
"""How long to wait for released nodes when a change is undone (s, emulated); cleaning takes half of it."""


async def reserve_nodes(work: StepContext) -> None:
    """Commit the nodes, or grow or shrink the present allocation. Waits for one that is still being released."""
    before = await work.neighbours.find_allocation(work.instance)
    if before is not None and active_or_none(before) is None:
        raise StepPending("its previous nodes are being cleaned")
    request = compose(work.instance, as_far_as_there_is(work.shape, work.applied(), before))
    if before is not None and before.nodes > work.shape.nodes:
        request = shrunk(request, before, work.leaving())
    allocation = await work.neighbours.reserve(work.instance, request)
    note_source(work, before, allocation)
    applied, where = work.applied(), f"in {counted(_cabinets(allocation), 'cabinet')} are committed"
    grew = allocation.growth if applied is not None and allocation.nodes > applied.nodes else ""
    size = f"{counted(allocation.nodes, 'node')} and {counted(allocation.spares, 'spare')}"
    work.record_event("Scheduled", f"{size} {where}" + (f"; {grew}" if grew else ""))
    preempted = [name for name in allocation.preempts if before is None or name not in before.preempts]
    if preempted:
        work.record_event("Preempting", f"preempting {named(preempted, project_of(work.instance))} of lower priority")


async def restore_shape(work: StepContext) -> None:
    """Go back to the shape that last was active, after a changed one was refused."""
    applied, present = work.applied(), active_or_none(await work.neighbours.find_allocation(work.instance))
    if applied is None or present is None:
        return
    try:
        await _have(work, as_far_as_there_is(applied, applied, present), present)
    except Conflict as refused:
        if work.clock.now() - work.undone_since(reserve_nodes.__name__) < RESTORE_S:
            raise StepPending(f"waiting for the nodes and bandwidth it had before: {refused.message}") from None
        await _keep_what_there_is(work, applied, present, refused)


async def _have(work: StepContext, shape: InstanceRequest, present: AllocationView) -> None:
    request = shrunk(compose(work.instance, shape), present, work.leaving())
    allocation = await work.neighbours.reserve(work.instance, request)
    await _admitted(work, slices_over(work.instance, shape, nodes_of(allocation, {"member"})))
    await program_routes(work)
    await work.neighbours.bind(work.instance, shape.power)


async def _keep_what_there_is(
    work: StepContext, applied: InstanceRequest, present: AllocationView, refused: Conflict
) -> None:
    """Others have taken what the instance gave up. Continue with the previous shape and the present members, or else
    with the changed shape. That becomes its last active shape, and the rest is requested as for any larger shape."""
    fewer = {"nodes": present.nodes, "min_nodes": applied.min_nodes and min(applied.min_nodes, present.nodes)}
    for shape in (applied.model_copy(update=fewer), work.shape):
        try:
            await _have(work, shape, present)
        except Conflict:
            continue
        message = f"it could not be restored and keeps {counted(shape.nodes, 'member')}: {refused.message}"
        with work.store.transaction() as session:
            work.store.instance(session, work.instance).applied = shape.wire()
            work.store.record_event(session, work.instance, "NotRestored", message, work.clock.now(), "Warning")
        return
    raise refused


async def release_nodes(work: StepContext) -> None:
    """Release every node, and wait until the agents have cleaned them."""
    if not await work.neighbours.release(work.instance):
        raise StepPending("nodes are being cleaned")


async def admit_slices(work: StepContext) -> None:
    """Admit a slice on each plane for the current members, within the capacity of every link."""
    await admit(work, work.shape, {"member"})


async def admit(work: StepContext, shape: InstanceRequest, roles: set[str]) -> None:
    allocation = await current_allocation(work)
    try:
        await _admitted(work, slices_over(work.instance, shape, nodes_of(allocation, roles)))
    except InsufficientBandwidth:
        if going := await _still_going(work, allocation):
            raise StepPending(
                f"{named(going, project_of(work.instance))} was preempted and has not released its floors yet", on=going
            ) from None
        raise


async def _admitted(work: StepContext, wanted: Sequence[SliceSpec]) -> None:
    """Admit exactly these slices; first withdraw those in supernodes without members."""
    names = {spec.name for spec in wanted}
    for name in await work.neighbours.owned_slices(work.instance):
        if name not in names:
            await work.neighbours.withdraw(name)
    for spec in wanted:
        await work.neighbours.admit(work.instance, spec)


def nodes_of(allocation: AllocationView, roles: Collection[str]) -> list[str]:
    """Its nodes in these roles, members first and by rank."""
    found = [member for member in allocation.members if member.role in roles]
    found.sort(key=lambda member: (member.role != "member", member.rank or 0, member.node))
    return [member.node for member in found]


async def _still_going(work: StepContext, allocation: AllocationView) -> list[str]:
    """The preempted instances whose nodes are gone but whose slices still exist."""
    return [
        name
        for name in allocation.preempts
        if await work.neighbours.slices_of(name) and active_or_none(await work.neighbours.find_allocation(name)) is None
    ]


async def withdraw_slices(work: StepContext) -> None:
    """Withdraw every slice, and wait until agents have cleared the routes."""
    gone = [await work.neighbours.withdraw(name) for name in await work.neighbours.owned_slices(work.instance)]
    if not all(gone):
        raise StepPending("routes are being cleared")


async def bind_nodes(work: StepContext) -> None:
    """Have the agents deploy members and prepare spares, or switch them off if the shape says so."""
    try:
        await work.neighbours.bind(work.instance, work.shape.power)
    except (NotFound, Conflict):
        await current_allocation(work)
        raise


async def switch_off(work: StepContext) -> None:
    """Have the agents stop the work of every node, and switch it off."""
    await current_allocation(work)
    await work.neighbours.bind(work.instance, "Off")


async def await_off(work: StepContext) -> None:
    """Wait until every member is off, except lost or faulty ones, which are replaced once the others are on."""
    allocation = await current_allocation(work)
    broken = {member.node for member, _ in broken_members(allocation.members)}
    waiting = [m.node for m in allocation.members if m.role == "member" and not m.ready and m.node not in broken]
    if waiting:
        raise StepPending(f"{len(waiting)} of {allocation.nodes} nodes have yet to be switched off")


async def program_routes(work: StepContext) -> None:
    """Have the agents program the routes of every slice."""
    for name in await work.neighbours.owned_slices(work.instance):
        await work.neighbours.program(name)


async def current_allocation(work: StepContext) -> AllocationView:
    """The allocation. Raises Preempted or InsufficientCapacity if it was revoked meanwhile."""
    allocation = await work.neighbours.find_allocation(work.instance)
    lost = diagnose_loss(work.instance, allocation, await _everybody(work, allocation), None, work.clock.now())
    if lost is not None:
        raise lost.error()
    assert allocation is not None
    return allocation


async def _everybody(work: StepContext, allocation: AllocationView | None) -> list[AllocationView]:
    return await work.neighbours.allocations() if active_or_none(allocation) is None else []


def _cabinets(allocation: AllocationView) -> int:
    return len({member.cabinet for member in allocation.members})
