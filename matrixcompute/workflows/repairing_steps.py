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
from matrixcommon.workflows.workflow import StepAgain, StepPending
from matrixcompute.contract import SliceSummary
from matrixcompute.model.observation import Observed, programmed_planes
from matrixcompute.operations.context import STOP, StepContext
from matrixcompute.recovery.ladder import REPLACE, RungTried
from matrixcompute.recovery.policy import EXHAUSTED, Recovery, broken_members, plan_recovery, suspect_domains
from matrixcompute.workflows.degraded_shape import continue_without
from matrixcompute.workflows.steps import admit_slices, bind_nodes, current_allocation, program_routes
from matrixresource.contract.allocations import AllocationView, MemberView
from matrixresource.contract.nodes import RECOVERY

NODES_ARE = {"On": "active", "Off": "off"}


async def begin_rungs(work: StepContext) -> None:
    """Begin the first rung for every failed member. Later rungs are begun by the steps that wait."""
    plan = await recovery(work, await current_allocation(work))
    raise_on_hold(plan)
    if later := {node for node, _, _ in plan.begin} - work.informed():
        raise StepAgain(fence_nodes.__name__, f"{', '.join(sorted(later))} failed during the repair")
    await _begin_rungs(work, plan)


async def _begin_rungs(work: StepContext, plan: Recovery) -> None:
    """Request the rungs that are due before recording them: an agent carries out a repeated request once, whereas a
    rung that was recorded but never requested would count as tried."""
    for node, rung, why in plan.begin:
        if rung != REPLACE:
            with contextlib.suppress(Conflict, NotFound):  # no longer a member: decided again at the next attempt
                await work.neighbours.repair(work.instance, node, rung)
        work.note_rung(RungTried(node=node, rung=rung, at=work.clock.now(), why=why))


async def fence_nodes(work: StepContext) -> None:
    """Cordon broken nodes, so that nothing is placed there before a health check has passed. The health check also
    lifts the cordon, so nobody has to remember it, and a node that was only silent is back with its first report.

    If several nodes of a cabinet are out, the whole cabinet is isolated first, whoever holds its nodes; the same checks
    find out later which of them failed.
    """
    allocation, out = await asyncio.gather(current_allocation(work), work.neighbours.out_of_service())
    plan = await recovery(work, allocation, out)
    raise_on_hold(plan)
    domains = suspect_domains(plan.nodes, out)
    if plan.nodes:
        with contextlib.suppress(NotFound):  # they are no longer in the topology, so nothing is placed there
            await work.neighbours.cordon_all(plan.nodes, RECOVERY, cabinets=domains)
    if domains:
        message = f"several nodes of {', '.join(domains)} are out; the whole domain is isolated until it is checked"
        work.record_event("DomainLost", message, warning=True)


async def replace_members(work: StepContext) -> None:
    """Replace broken members as far as there are nodes, and continue without the rest down to the floor. Raises if
    neither is possible.

    Members that failed after the repair began are fenced and drained first: later steps go back for that.
    """
    allocation = await work.neighbours.find_allocation(work.instance)
    if allocation is None:
        raise NotFound(f"instance {work.instance} no longer has an allocation")
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
        work.record_event("NodeReplaced", f"{node} ({plan.reason}) was replaced by {successor}", warning=True)
    if full is None:
        return
    try:
        degraded = await continue_without(work, await current_allocation(work), left, full)
    except BelowFloor:
        if not replaced:
            raise
        return  # the replacements are bound and connected first; later steps decide again
    if not replaced and not degraded:
        raise full


async def make_startable(work: StepContext) -> None:
    """Replace broken nodes of a stopped instance before anything is switched on. Raises BelowFloor if too few members
    would work, since its nodes would only be switched on and off again."""
    plan = await recovery(work, await current_allocation(work))
    if not plan.nodes:
        return
    await replace_members(work)
    allocation = await current_allocation(work)
    members = {each.node for each in allocation.members if each.role == "member"}
    broken = members & {member.node for member, _ in broken_members(allocation.members)}
    if broken and len(members) - len(broken) < work.shape.floor:
        raise BelowFloor(
            f"{len(members) - len(broken)} of {work.shape.nodes} members work, its floor is {work.shape.floor}, and "
            f"there is no node for {', '.join(sorted(broken))}",
            field="minNodes",
        )


def _replacement(before: list[MemberView], after: list[MemberView], node: str) -> str:
    rank = next((member.rank for member in before if member.node == node), None)
    if rank is None:
        return "another spare"
    return next((member.node for member in after if member.role == "member" and member.rank == rank), "nobody")


async def await_nodes(work: StepContext) -> None:
    """Wait until every member is active, reachable or not; repair what breaks meanwhile."""
    allocation = await whole_allocation(work)
    members = [member for member in allocation.members if member.role == "member"]
    ready = sum(member.ready for member in members)
    if not allocation.bound or ready < len(members):
        raise StepPending(f"{ready} of {len(members)} nodes are {NODES_ARE[work.shape.power]}")


async def await_ready(work: StepContext) -> None:
    """Wait until every member is active and every route programmed; repair what breaks meanwhile.

    An instance that stops does not wait for broken nodes, which are replaced when it starts.
    """
    stops = name_of(work.operation).startswith(STOP)
    allocation = await (current_allocation(work) if stops else whole_allocation(work))
    slices = await work.neighbours.slices_of(work.instance)
    if not Observed(allocation, tuple(slices)).joined:
        # A slice was withdrawn or a member replaced by somebody else. None can be admitted while one is withdrawing.
        if not any(each.state == "Withdrawing" for each in slices):
            await admit_slices(work)
            await program_routes(work)
        raise StepPending("its slices do not connect its members and are being admitted again")
    if any(each.state == "Admitted" for each in slices):  # readmitted, but programming was never requested
        await program_routes(work)
    broken = {member.node for member, _ in broken_members(allocation.members)}  # none but of one that stops
    members = [member for member in allocation.members if member.role == "member" and member.node not in broken]
    ready = sum(member.ready for member in members)
    programmed = programmed_planes(slices)
    if not allocation.bound or ready < len(members) or (len(programmed) < len(Plane) and not broken):
        raise StepPending(
            f"{ready} of {len(members)} nodes are {NODES_ARE[work.shape.power]}, "
            f"{len(programmed)} of 3 planes programmed{states(slices)}"
        )


async def whole_allocation(work: StepContext) -> AllocationView:
    """The allocation, if nothing in it is broken; else replace that and raise StepPending. A member that fails during a
    repair joins it: the repair resumes at the fencing step, and repeats no request."""
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


async def recovery(work: StepContext, allocation: AllocationView, out: Sequence[str] | None = None) -> Recovery:
    """Decide what to do about broken members. The nodes that are `out` are read only if there are any."""
    if out is None:
        out = await work.neighbours.out_of_service() if broken_members(allocation.members) else []
    return plan_recovery(allocation.members, out, work.recovery_policy(), work.rungs(), work.clock.now())


def raise_on_hold(plan: Recovery) -> None:
    """Raise StepPending while nothing may be done now, or Conflict if every allowed rung is exhausted."""
    if plan.action == "hold":
        raise Conflict(plan.message) if plan.reason == EXHAUSTED else StepPending(plan.message)


def states(slices: Sequence[SliceSummary]) -> str:
    waiting = [f"{each.plane.value} {each.state}" for each in slices if not each.programmed]
    return f" ({', '.join(waiting)})" if waiting else ""
