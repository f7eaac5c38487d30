"""Steps for broken members: fence them, repair them in place or replace them, and wait for the result."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from matrixcommon.model.errors import (
    BelowFloor,
    Conflict,
    InsufficientCapacity,
    MatrixError,
    NotFound,
)
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_key import name_of
from matrixcommon.workflows.workflow import RewindToStep, StepPending
from matrixcompute.contract import SliceSummary
from matrixcompute.model.observation import Observed, programmed_planes
from matrixcompute.operations.context import STOP, StepContext
from matrixcompute.recovery.ladder import REPLACE, RungTried
from matrixcompute.recovery.policy import EXHAUSTED, Recovery, broken_members, plan_recovery, suspect_domains
from matrixcompute.workflows.degraded_shape import degrade_shape
from matrixcompute.workflows.steps import admit_slices, bind_nodes, current_allocation, program_routes
from matrixresource.contract.allocations import AllocationView, MemberView
from matrixresource.contract.nodes import RECOVERY

POWER_STATES = {"On": "active", "Off": "off"}


async def begin_rungs(context: StepContext) -> None:
    """Begin the first rung for every failed member. Later rungs are begun by the steps that wait."""
    plan = await recovery(context, await current_allocation(context))
    raise_on_hold(plan)
    if newly_failed := {node for node, _, _ in plan.due_rungs} - context.notified():
        raise RewindToStep(fence_nodes.__name__, f"{', '.join(sorted(newly_failed))} failed during the repair")
    await _begin_rungs(context, plan)


async def _begin_rungs(context: StepContext, plan: Recovery) -> None:
    """Request the rungs that are due before recording them: an agent carries out a repeated request once, whereas a
    rung that was recorded but never requested would count as tried."""
    for node, rung, why in plan.due_rungs:
        if rung != REPLACE:
            with contextlib.suppress(Conflict, NotFound):  # no longer a member: decided again at the next attempt
                await context.control_plane.repair(context.instance, node, rung)
        context.record_rung(RungTried(node=node, rung=rung, at=context.clock.now(), why=why))


async def fence_nodes(context: StepContext) -> None:
    """Cordon broken nodes, so that nothing is placed there before a health check has passed. The health check also
    lifts the cordon, so nobody has to remember it, and a node that was only silent is back with its first report.

    If several nodes of a cabinet are out, the whole cabinet is isolated first, whoever holds its nodes; the same checks
    find out later which of them failed.
    """
    allocation, out = await asyncio.gather(current_allocation(context), context.control_plane.out_of_service())
    plan = await recovery(context, allocation, out)
    raise_on_hold(plan)
    domains = suspect_domains(plan.nodes, out)
    if plan.nodes:
        with contextlib.suppress(NotFound):  # they are no longer in the topology, so nothing is placed there
            await context.control_plane.cordon_all(plan.nodes, RECOVERY, cabinets=domains)
    if domains:
        message = f"several nodes of {', '.join(domains)} are out; the whole domain is isolated until it is checked"
        context.record_event("DomainLost", message, warning=True)


async def replace_members(context: StepContext) -> None:
    """Replace broken members as far as there are nodes, and continue without the rest down to the floor. Raises if
    neither is possible.

    Members that failed after the repair began are fenced and drained first: later steps go back for that.
    """
    allocation = await context.control_plane.find_allocation(context.instance)
    if allocation is None:
        raise NotFound(f"instance {context.instance} no longer has an allocation")
    plan = await recovery(context, allocation)
    raise_on_hold(plan)
    newly_failed = {node for node, _, _ in plan.due_rungs}
    refusal: MatrixError | None = None
    replaced, unreplaced = [], []
    for node in plan.nodes:
        if node in newly_failed:
            continue
        try:
            after = await context.control_plane.replace(context.instance, node, plan.reason)
            replaced.append((node, _replacement(allocation.members, after.members, node)))
        except InsufficientCapacity as error:
            refusal = error
            unreplaced.append(node)
    for node, successor in replaced:
        context.record_event("NodeReplaced", f"{node} ({plan.reason}) was replaced by {successor}", warning=True)
    if refusal is None:
        return
    try:
        degraded = await degrade_shape(context, await current_allocation(context), unreplaced, refusal)
    except BelowFloor:
        if not replaced:
            raise
        return  # the replacements are bound and connected first; later steps decide again
    if not replaced and not degraded:
        raise refusal


async def make_startable(context: StepContext) -> None:
    """Replace broken nodes of a stopped instance before anything is switched on. Raises BelowFloor if too few members
    would work, since its nodes would only be switched on and off again."""
    plan = await recovery(context, await current_allocation(context))
    if not plan.nodes:
        return
    await replace_members(context)
    allocation = await current_allocation(context)
    members = {each.node for each in allocation.members if each.role == "member"}
    broken = members & {member.node for member, _ in broken_members(allocation.members)}
    if broken and len(members) - len(broken) < context.shape.floor:
        raise BelowFloor(
            f"{len(members) - len(broken)} of {context.shape.nodes} members work, its floor is "
            f"{context.shape.floor}, and there is no node for {', '.join(sorted(broken))}",
            field="minNodes",
        )


def _replacement(before: list[MemberView], after: list[MemberView], node: str) -> str:
    rank = next((member.rank for member in before if member.node == node), None)
    if rank is None:
        return "another spare"
    return next((member.node for member in after if member.role == "member" and member.rank == rank), "nobody")


async def await_nodes(context: StepContext) -> None:
    """Wait until every member is active, reachable or not; repair what breaks meanwhile."""
    allocation = await healthy_allocation(context)
    members = [member for member in allocation.members if member.role == "member"]
    ready = sum(member.ready for member in members)
    if not allocation.bound or ready < len(members):
        raise StepPending(f"{ready} of {len(members)} nodes are {POWER_STATES[context.shape.power]}")


async def await_ready(context: StepContext) -> None:
    """Wait until every member is active and every route programmed; repair what breaks meanwhile.

    An instance that stops does not wait for broken nodes, which are replaced when it starts.
    """
    stopping = name_of(context.operation).startswith(STOP)
    allocation = await (current_allocation(context) if stopping else healthy_allocation(context))
    slices = await context.control_plane.slices_of(context.instance)
    if not Observed(allocation, tuple(slices)).slices_match:
        # A slice was withdrawn or a member replaced by somebody else. None can be admitted while one is withdrawing.
        if not any(each.state == "Withdrawing" for each in slices):
            await admit_slices(context)
            await program_routes(context)
        raise StepPending("its slices do not connect its members and are being admitted again")
    if any(each.state == "Admitted" for each in slices):  # readmitted, but programming was never requested
        await program_routes(context)
    broken = {member.node for member, _ in broken_members(allocation.members)}  # none but of one that stops
    members = [member for member in allocation.members if member.role == "member" and member.node not in broken]
    ready = sum(member.ready for member in members)
    programmed = programmed_planes(slices)
    if not allocation.bound or ready < len(members) or (len(programmed) < len(Plane) and not broken):
        raise StepPending(
            f"{ready} of {len(members)} nodes are {POWER_STATES[context.shape.power]}, "
            f"{len(programmed)} of 3 planes programmed{describe_unprogrammed(slices)}"
        )


async def healthy_allocation(context: StepContext) -> AllocationView:
    """The allocation, if nothing in it is broken; else replace that and raise StepPending. A member that fails during a
    repair joins it: the repair resumes at the fencing step, and repeats no request."""
    allocation = await current_allocation(context)
    plan = await recovery(context, allocation)
    raise_on_hold(plan)
    if plan.due_rungs:
        raise RewindToStep(fence_nodes.__name__, plan.message)
    if plan.action in ("repair", "replace"):
        if plan.nodes:
            await replace_members(context)
            await bind_nodes(context)
            await admit_slices(context)
            await program_routes(context)
        raise StepPending(plan.message)
    return allocation


async def recovery(context: StepContext, allocation: AllocationView, out: Sequence[str] | None = None) -> Recovery:
    """Decide what to do about broken members. The nodes that are `out` are read only if there are any."""
    if out is None:
        out = await context.control_plane.out_of_service() if broken_members(allocation.members) else []
    return plan_recovery(allocation.members, out, context.recovery_policy(), context.rungs(), context.clock.now())


def raise_on_hold(plan: Recovery) -> None:
    """Raise StepPending while nothing may be done now, or Conflict if every allowed rung is exhausted."""
    if plan.action == "hold":
        raise Conflict(plan.message) if plan.reason == EXHAUSTED else StepPending(plan.message)


def describe_unprogrammed(slices: Sequence[SliceSummary]) -> str:
    waiting = [f"{each.plane.value} {each.state}" for each in slices if not each.programmed]
    return f" ({', '.join(waiting)})" if waiting else ""
