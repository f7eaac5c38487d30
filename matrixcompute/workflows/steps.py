"""The steps that the workflows are made of. Each ensures one thing, and may be asked for it any number of times."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence

from sqlalchemy.orm import Session

from matrixcommon.model.errors import (
    BelowFloor,
    Conflict,
    InsufficientBandwidth,
    InsufficientCapacity,
    MatrixError,
    NotFound,
)
from matrixcommon.model.planes import Plane
from matrixcommon.model.quantities import counted
from matrixcommon.model.resource_key import named, project_of
from matrixcommon.model.resource_model import is_true
from matrixcommon.persistence.database_session import find
from matrixcommon.workflows.workflow import StepAgain, StepPending
from matrixcompute.contract import InstanceRequest, SliceSummary
from matrixcompute.model.composition import SliceSpec, as_far_as_there_is, compose, slices_over
from matrixcompute.model.observation import Observed, programmed_planes
from matrixcompute.model.states import settled_state
from matrixcompute.operations.context import StepContext
from matrixcompute.recovery.ladder import REPLACE, RungTried
from matrixcompute.recovery.loss import active_or_none, diagnose_loss
from matrixcompute.recovery.policy import EXHAUSTED, Recovery, broken_members, plan_recovery, suspect_domains
from matrixcompute.recovery.times import in_words, parts_at_the_end
from matrixcompute.store.store import InstanceRow, OperationRow
from matrixcompute.workflows.degraded_shape import continue_without
from matrixcompute.workflows.draining import without
from matrixcompute.workflows.new_members import note_source, note_wait
from matrixresource.contract.allocations import AllocationView, MemberView
from matrixresource.contract.nodes import RECOVERY

NODES_ARE = {"On": "active", "Off": "off"}


async def reserve_nodes(work: StepContext) -> None:
    """Commit the nodes; grows and shrinks what is already held. What is still being released is waited for."""
    before = await work.neighbours.find_allocation(work.instance)
    if before is not None and active_or_none(before) is None:
        raise StepPending("the nodes it had before are being cleaned")
    request = compose(work.instance, as_far_as_there_is(work.shape, work.applied(), before))
    if before is not None and before.nodes > work.shape.nodes:
        request = without(request, work.leaving())
    allocation = await work.neighbours.reserve(work.instance, request)
    note_source(work, before, allocation)
    applied, where = work.applied(), f"in {counted(_cabinets(allocation), 'cabinet')} are committed"
    grew = allocation.growth if applied is not None and allocation.nodes > applied.nodes else ""
    size = f"{counted(allocation.nodes, 'node')} and {counted(allocation.spares, 'spare')}"
    work.record_event("Scheduled", f"{size} {where}" + (f"; {grew}" if grew else ""))
    preempted = [name for name in allocation.preempts if before is None or name not in before.preempts]
    if preempted:
        work.record_event("Preempting", f"{named(preempted, project_of(work.instance))} of lower priority made way")


async def restore_shape(work: StepContext) -> None:
    """Go back to the shape that last was active, after a changed one was refused."""
    applied, present = work.applied(), active_or_none(await work.neighbours.find_allocation(work.instance))
    if applied is None or present is None:
        return
    applied = as_far_as_there_is(applied, applied, present)
    allocation = await work.neighbours.reserve(work.instance, compose(work.instance, applied))
    await _admitted(work, slices_over(work.instance, applied, nodes_of(allocation, {"member"})))
    await program_routes(work)
    await work.neighbours.bind(work.instance, applied.power)


async def release_nodes(work: StepContext) -> None:
    """Give every node back; waits until the agents have cleaned them."""
    if not await work.neighbours.release(work.instance):
        raise StepPending("nodes are being cleaned")


async def admit_slices(work: StepContext) -> None:
    """A slice on each plane for the current members, each within what every link has."""
    await admit(work, work.shape, {"member"})


async def admit(work: StepContext, shape: InstanceRequest, roles: set[str]) -> None:
    allocation = await current_allocation(work)
    try:
        await _admitted(work, slices_over(work.instance, shape, nodes_of(allocation, roles)))
    except InsufficientBandwidth:
        if going := await _still_going(work, allocation):
            raise StepPending(
                f"{named(going, project_of(work.instance))} made way and has yet to give up its floors", on=going
            ) from None
        raise


async def _admitted(work: StepContext, wanted: Sequence[SliceSpec]) -> None:
    """Exactly these slices, as promised; one in a supernode that has no member any more is withdrawn first."""
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
    """Whom it preempted, as far as their slices are still there though their nodes are gone."""
    return [
        name
        for name in allocation.preempts
        if await work.neighbours.slices_of(name) and active_or_none(await work.neighbours.find_allocation(name)) is None
    ]


async def withdraw_slices(work: StepContext) -> None:
    """Take every slice back; waits until agents have cleared the routes."""
    gone = [await work.neighbours.withdraw(name) for name in await work.neighbours.owned_slices(work.instance)]
    if not all(gone):
        raise StepPending("routes are being cleared")


async def bind_nodes(work: StepContext) -> None:
    """Have the agents deploy members and prepare spares, or switch them off where the shape says so."""
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
    """Until every member is off; one that is lost or faulty is not waited for: it is replaced when the rest is on."""
    allocation = await current_allocation(work)
    broken = {member.node for member, _ in broken_members(allocation.members)}
    waiting = [m.node for m in allocation.members if m.role == "member" and not m.ready and m.node not in broken]
    if waiting:
        raise StepPending(f"{len(waiting)} of {allocation.nodes} nodes have yet to be switched off")


async def program_routes(work: StepContext) -> None:
    """Have the agents program the routes of every slice."""
    for name in await work.neighbours.owned_slices(work.instance):
        await work.neighbours.program(name)


async def begin_rungs(work: StepContext) -> None:
    """Begin the first rung for every member that failed; the later ones follow while its end is waited for."""
    plan = await recovery(work, await current_allocation(work))
    raise_on_hold(plan)
    if later := {node for node, _, _ in plan.begin} - work.informed():
        raise StepAgain(fence_nodes.__name__, f"{', '.join(sorted(later))} failed meanwhile")
    await _begin_rungs(work, plan)


async def _begin_rungs(work: StepContext, plan: Recovery) -> None:
    """Ask for what is due before it is written down: asked twice, an agent does it once, and what was written down and
    never asked for would count as tried."""
    for node, rung, why in plan.begin:
        if rung != REPLACE:
            with contextlib.suppress(Conflict, NotFound):  # nobody serves there any more: the next look decides
                await work.neighbours.repair(work.instance, node, rung)
        work.note_rung(RungTried(node=node, rung=rung, at=work.clock.now(), why=why))


async def fence_nodes(work: StepContext) -> None:
    """Keep newcomers off what is broken, so that nothing comes to lie there before a health check has passed. That is
    also who lifts it: nobody has to remember, and a node that was only silent is back with its first report.

    Where several nodes of a cabinet are out, all of it is isolated first, whoever has its nodes: which of them failed
    is found out later, by the same checks.
    """
    allocation, out = await asyncio.gather(current_allocation(work), work.neighbours.out_of_service())
    plan = await recovery(work, allocation, out)
    raise_on_hold(plan)
    domains = suspect_domains(plan.nodes, out)
    cabinets = await asyncio.gather(*(work.neighbours.nodes_of_cabinet(each) for each in domains))
    group = dict.fromkeys([*plan.nodes, *(node.name for nodes in cabinets for node in nodes)])
    if group:
        await work.neighbours.cordon_all([*group], RECOVERY)
    if domains:
        message = f"several nodes of {', '.join(domains)} are out: all of it is isolated until it is checked"
        work.record_event("DomainLost", message, warning=True)


async def replace_members(work: StepContext) -> None:
    """Replace what is broken, as far as there are nodes for it, and continue without the rest as far as that goes.
    Refused when nothing could be done.

    Who failed after a repair had begun with the others is fenced and told first: the steps after this one see to it.
    """
    allocation = await work.neighbours.find_allocation(work.instance)
    if allocation is None:
        raise NotFound(f"instance {work.instance} has no allocation any more")
    plan = await recovery(work, allocation)
    raise_on_hold(plan)
    later = {node for node, _, _ in plan.begin}
    full: MatrixError | None = None
    replaced, left = [], []
    for node in plan.nodes:
        if node in later:
            continue
        try:
            after = await work.neighbours.replace(work.instance, node, plan.reason)
            replaced.append((node, _replacement(allocation.members, after.members, node)))
        except InsufficientCapacity as why:
            full = why
            left.append(node)
    for node, successor in replaced:
        work.record_event("NodeReplaced", f"{node} ({plan.reason}) gave its place to {successor}", warning=True)
    if full is None:
        return
    try:
        degraded = await continue_without(work, await current_allocation(work), left, full)
    except BelowFloor:
        if not replaced:
            raise
        return  # who was replaced is bound and connected first; the steps after this one look again
    if not replaced and not degraded:
        raise full


async def await_nodes(work: StepContext) -> None:
    """Until every member is active, whether it can be reached or not; heals on the way what breaks on the way."""
    allocation = await whole_allocation(work)
    members = [member for member in allocation.members if member.role == "member"]
    ready = sum(member.ready for member in members)
    if not allocation.bound or ready < len(members):
        raise StepPending(f"{ready} of {len(members)} nodes are {NODES_ARE[work.shape.power]}")


def raise_on_hold(plan: Recovery) -> None:
    """Raise StepPending while nothing may be done, or Conflict where nothing more may be at all."""
    if plan.action == "hold":
        raise Conflict(plan.message) if plan.reason == EXHAUSTED else StepPending(plan.message)


async def whole_allocation(work: StepContext) -> AllocationView:
    """The allocation, of which nothing is broken; else that is replaced, and StepPending raised. Who fails while a
    repair is under way joins it: the repair begins again with the step that fences, and asks for nothing twice."""
    allocation = await current_allocation(work)
    plan = await recovery(work, allocation)
    raise_on_hold(plan)
    if plan.begin:
        raise StepAgain(fence_nodes.__name__, plan.message)
    if plan.action in ("repair", "replace"):
        if plan.nodes:
            await replace_members(work)
            await bind_nodes(work)
            await admit_slices(work)
            await program_routes(work)
        raise StepPending(plan.message)
    return allocation


async def await_ready(work: StepContext) -> None:
    """Until every member is active and every route programmed; heals on the way what breaks on the way."""
    allocation = await whole_allocation(work)
    slices = await work.neighbours.slices_of(work.instance)
    if not Observed(allocation, tuple(slices)).joined:
        # One was withdrawn, or a member replaced, by somebody; while any is going, none can be admitted again.
        if not any(each.state == "Withdrawing" for each in slices):
            await admit_slices(work)
            await program_routes(work)
        raise StepPending("its slices do not join its members, and are admitted again")
    if any(each.state == "Admitted" for each in slices):  # admitted again, and its programming was never heard of
        await program_routes(work)
    members = [member for member in allocation.members if member.role == "member"]
    ready = sum(member.ready for member in members)
    programmed = programmed_planes(slices)
    if not allocation.bound or ready < len(members) or len(programmed) < len(Plane):
        raise StepPending(
            f"{ready} of {len(members)} nodes are {NODES_ARE[work.shape.power]}, "
            f"{len(programmed)} of 3 planes programmed{states(slices)}"
        )


async def mark_active(work: StepContext) -> None:
    """The spec that this workflow carried is fulfilled: said together with the members and slices that fulfil it."""
    allocation = await current_allocation(work)
    plan = await recovery(work, allocation)
    observed = Observed(allocation, tuple(await work.neighbours.slices_of(work.instance)))
    done, now, state = work.spec_generation, work.clock.now(), settled_state(work.shape.power)
    with work.store.transaction() as session:
        instance = work.store.instance(session, work.instance)
        instance.move(state)
        instance.observed_generation = done
        instance.applied = work.shape.wire()
        if is_true(instance.conditions or [], "Preempted"):
            instance.set_condition("Preempted", False, "Returned", "it has its place again", now, done)
        instance.observe(observed, plan, now)
        of = f"{allocation.nodes} of " if instance.lacks(allocation) else ""
        verb = "is" if work.shape.nodes == 1 else "are"
        message = f"generation {done}: {of}{counted(work.shape.nodes, 'node')} {verb} {NODES_ARE[work.shape.power]}"
        _note_recovery(work, session, instance, now)
        note_wait(work, session, instance)
        if instance.lacks(allocation):
            instance.down_time = instance.down.failed(now).wire()
        work.store.record_event(session, work.instance, state, message, now)


def _note_recovery(work: StepContext, session: Session, instance: InstanceRow, now: float) -> None:
    """What the recovery that ends here took, kept once with its operation and with the instance."""
    operation = find(session, OperationRow, work.operation)
    if operation.recovery is not None:
        return  # repeated after a crash
    since, on = operation.failed_since(), work.shape.power == "On"
    if since is None:
        instance.down_time = instance.down.settled(now, on).wire()
        return
    operation.recovery = parts_at_the_end(*since, operation.trace or {}, now)
    instance.last_recovery = operation.recovery
    instance.down_time = instance.down.settled(now, on, operation.recovery).wire()
    rungs = {each.node: each.rung for each in operation.rungs_tried}
    about = ", ".join(f"{node} ({rung})" for node, rung in rungs.items()) or (operation.parameters or {}).get(
        "nodes", ""
    )
    message = f"{about}: in {in_words(operation.recovery)}"
    work.store.record_event(session, work.instance, "Recovered", message, now)


async def mark_pending(work: StepContext) -> None:
    """Nothing is held any more: it is to be created again, now or when there is room."""
    with work.store.transaction() as session:
        instance = work.store.instance(session, work.instance)
        instance.expires_at = None
        instance.down_time = instance.down.failed(work.clock.now()).wire()
        instance.retry_at = 0.0


async def mark_suspended(work: StepContext) -> None:
    """Nothing is held any more, and nothing is to be until `suspend` ends."""
    with work.store.transaction() as session:
        instance, now = work.store.instance(session, work.instance), work.clock.now()
        if instance.state == "Suspended":
            return
        instance.move("Suspended")
        instance.observed_generation, instance.expires_at, instance.leaving = work.spec_generation, None, None
        instance.down_time = instance.down.settled(now, on=False).wire()
        instance.set_condition("Progressing", False, "Settled", "nothing is under way", now)
        work.store.record_event(session, work.instance, "Suspended", "its nodes and slices were given back", now)


async def mark_deleted(work: StepContext) -> None:
    """Nothing is left to give back: the instance is gone."""
    with work.store.transaction() as session:
        if (instance := session.get(InstanceRow, work.instance)) is not None:  # else repeated after a crash
            work.store.record_event(session, work.instance, "Deleted", "everything was given back", work.clock.now())
            session.delete(instance)


async def current_allocation(work: StepContext) -> AllocationView:
    """The allocation. Raises Preempted or InsufficientCapacity when it was revoked meanwhile."""
    allocation = await work.neighbours.find_allocation(work.instance)
    lost = diagnose_loss(work.instance, allocation, await _everybody(work, allocation), None, work.clock.now())
    if lost is not None:
        raise lost.error()
    assert allocation is not None
    return allocation


async def _everybody(work: StepContext, allocation: AllocationView | None) -> list[AllocationView]:
    return await work.neighbours.allocations() if active_or_none(allocation) is None else []


async def recovery(work: StepContext, allocation: AllocationView, out: Sequence[str] | None = None) -> Recovery:
    """What to do about the members that broke. Who else is `out` matters, and is asked, only where somebody did."""
    if out is None:
        out = await work.neighbours.out_of_service() if broken_members(allocation.members) else []
    return plan_recovery(allocation.members, out, work.recovery_policy(), work.rungs(), work.clock.now())


def _replacement(before: list[MemberView], after: list[MemberView], node: str) -> str:
    rank = next((member.rank for member in before if member.node == node), None)
    if rank is None:
        return "another spare"
    return next((member.node for member in after if member.role == "member" and member.rank == rank), "nobody")


def _cabinets(allocation: AllocationView) -> int:
    return len({member.cabinet for member in allocation.members})


def states(slices: Sequence[SliceSummary]) -> str:
    waiting = [f"{each.plane.value} {each.state}" for each in slices if not each.programmed]
    return f" ({', '.join(waiting)})" if waiting else ""
