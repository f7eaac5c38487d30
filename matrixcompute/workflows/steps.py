"""Steps that allocate, connect and release nodes and slices. Each ensures one thing and is idempotent."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from matrixcommon.model.errors import (
    Conflict,
    InsufficientBandwidth,
    NotFound,
)
from matrixcommon.model.quantities import pluralized
from matrixcommon.model.resource_key import names_shown_to, project_of
from matrixcommon.workflows.workflow import StepPending
from matrixcompute.contract import InstanceRequest
from matrixcompute.model.composition import SliceSpec, compose, limit_to_allocated, slices_over
from matrixcompute.operations.context import StepContext
from matrixcompute.recovery.loss import active_or_none, diagnose_loss
from matrixcompute.recovery.policy import broken_members
from matrixcompute.workflows.draining import shrink_request
from matrixcompute.workflows.new_members import record_source
from matrixresource.contract.allocations import AllocationView

RESTORE_TIMEOUT_S = 120.0
"""How long to wait for released nodes when a change is undone (s, emulated); cleaning takes half of it."""


async def reserve_nodes(context: StepContext) -> None:
    """Commit the nodes, or grow or shrink the present allocation. Waits for one that is still being released."""
    before = await context.control_plane.find_allocation(context.instance)
    if before is not None and active_or_none(before) is None:
        raise StepPending("its previous nodes are being cleaned")
    request = compose(context.instance, limit_to_allocated(context.shape, context.applied(), before))
    if before is not None and before.nodes > context.shape.nodes:
        request = shrink_request(request, before, context.leaving())
    allocation = await context.control_plane.reserve(context.instance, request)
    record_source(context, before, allocation)
    applied, where = context.applied(), f"in {pluralized(_cabinets(allocation), 'cabinet')} are committed"
    growth = allocation.growth if applied is not None and allocation.nodes > applied.nodes else ""
    size = f"{pluralized(allocation.nodes, 'node')} and {pluralized(allocation.spares, 'spare')}"
    context.record_event("Scheduled", f"{size} {where}" + (f"; {growth}" if growth else ""))
    preempted = [name for name in allocation.preempts if before is None or name not in before.preempts]
    if preempted:
        context.record_event(
            "Preempting", f"preempting {names_shown_to(preempted, project_of(context.instance))} of lower priority"
        )


async def restore_shape(context: StepContext) -> None:
    """Go back to the shape that last was active, after a changed one was refused."""
    applied, present = context.applied(), active_or_none(await context.control_plane.find_allocation(context.instance))
    if applied is None or present is None:
        return
    try:
        await _apply_shape(context, limit_to_allocated(applied, applied, present), present)
    except Conflict as refused:
        if context.clock.now() - context.undo_started_at(reserve_nodes.__name__) < RESTORE_TIMEOUT_S:
            raise StepPending(f"waiting for the nodes and bandwidth it had before: {refused.message}") from None
        await _keep_allocated(context, applied, present, refused)


async def _apply_shape(context: StepContext, shape: InstanceRequest, present: AllocationView) -> None:
    request = shrink_request(compose(context.instance, shape), present, context.leaving())
    allocation = await context.control_plane.reserve(context.instance, request)
    await _ensure_slices(context, slices_over(context.instance, shape, nodes_of(allocation, {"member"})))
    await program_routes(context)
    await context.control_plane.bind(context.instance, shape.power)


async def _keep_allocated(
    context: StepContext, applied: InstanceRequest, present: AllocationView, refused: Conflict
) -> None:
    """Others have taken what the instance gave up. Continue with the previous shape and the present members, or else
    with the changed shape. That becomes its last active shape, and the rest is requested as for any larger shape."""
    fewer = {"nodes": present.nodes, "min_nodes": applied.min_nodes and min(applied.min_nodes, present.nodes)}
    for shape in (applied.model_copy(update=fewer), context.shape):
        try:
            await _apply_shape(context, shape, present)
        except Conflict:
            continue
        message = f"it could not be restored and keeps {pluralized(shape.nodes, 'member')}: {refused.message}"
        with context.store.transaction() as session:
            context.store.instance(session, context.instance).applied = shape.wire()
            context.store.record_event(
                session, context.instance, "NotRestored", message, context.clock.now(), "Warning"
            )
        return
    raise refused


async def release_nodes(context: StepContext) -> None:
    """Release every node, and wait until the agents have cleaned them."""
    if not await context.control_plane.release(context.instance):
        raise StepPending("nodes are being cleaned")


async def admit_slices(context: StepContext) -> None:
    """Admit a slice on each plane for the current members, within the capacity of every link."""
    await admit(context, context.shape, {"member"})


async def admit(context: StepContext, shape: InstanceRequest, roles: set[str]) -> None:
    allocation = await current_allocation(context)
    try:
        await _ensure_slices(context, slices_over(context.instance, shape, nodes_of(allocation, roles)))
    except InsufficientBandwidth:
        if releasing := await _preempted_with_slices(context, allocation):
            raise StepPending(
                f"{names_shown_to(releasing, project_of(context.instance))} was preempted and has not released its "
                "floors yet",
                on=releasing,
            ) from None
        raise


async def _ensure_slices(context: StepContext, desired: Sequence[SliceSpec]) -> None:
    """Admit exactly these slices; first withdraw those in supernodes without members."""
    names = {spec.name for spec in desired}
    for name in await context.control_plane.owned_slices(context.instance):
        if name not in names:
            await context.control_plane.withdraw(name)
    for spec in desired:
        await context.control_plane.admit(context.instance, spec)


def nodes_of(allocation: AllocationView, roles: Collection[str]) -> list[str]:
    """Its nodes in these roles, members first and by rank."""
    found = [member for member in allocation.members if member.role in roles]
    found.sort(key=lambda member: (member.role != "member", member.rank or 0, member.node))
    return [member.node for member in found]


async def _preempted_with_slices(context: StepContext, allocation: AllocationView) -> list[str]:
    """The preempted instances whose nodes are gone but whose slices still exist."""
    return [
        name
        for name in allocation.preempts
        if await context.control_plane.slices_of(name)
        and active_or_none(await context.control_plane.find_allocation(name)) is None
    ]


async def withdraw_slices(context: StepContext) -> None:
    """Withdraw every slice, and wait until agents have cleared the routes."""
    gone = [
        await context.control_plane.withdraw(name)
        for name in await context.control_plane.owned_slices(context.instance)
    ]
    if not all(gone):
        raise StepPending("routes are being cleared")


async def bind_nodes(context: StepContext) -> None:
    """Have the agents deploy members and prepare spares, or switch them off if the shape says so."""
    try:
        await context.control_plane.bind(context.instance, context.shape.power)
    except (NotFound, Conflict):
        await current_allocation(context)
        raise


async def switch_off(context: StepContext) -> None:
    """Have the agents stop the work of every node, and switch it off."""
    await current_allocation(context)
    await context.control_plane.bind(context.instance, "Off")


async def await_off(context: StepContext) -> None:
    """Wait until every member is off, except lost or faulty ones, which are replaced once the others are on."""
    allocation = await current_allocation(context)
    broken = {member.node for member, _ in broken_members(allocation.members)}
    waiting = [m.node for m in allocation.members if m.role == "member" and not m.ready and m.node not in broken]
    if waiting:
        raise StepPending(f"{len(waiting)} of {allocation.nodes} nodes have yet to be switched off")


async def program_routes(context: StepContext) -> None:
    """Have the agents program the routes of every slice."""
    for name in await context.control_plane.owned_slices(context.instance):
        await context.control_plane.program(name)


async def current_allocation(context: StepContext) -> AllocationView:
    """The allocation. Raises Preempted or InsufficientCapacity if it was revoked meanwhile."""
    allocation = await context.control_plane.find_allocation(context.instance)
    lost = diagnose_loss(
        context.instance, allocation, await _preemptor_candidates(context, allocation), None, context.clock.now()
    )
    if lost is not None:
        raise lost.error()
    assert allocation is not None
    return allocation


async def _preemptor_candidates(context: StepContext, allocation: AllocationView | None) -> list[AllocationView]:
    return await context.control_plane.allocations() if active_or_none(allocation) is None else []


def _cabinets(allocation: AllocationView) -> int:
    return len({member.cabinet for member in allocation.members})
