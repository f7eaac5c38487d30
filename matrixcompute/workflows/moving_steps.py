"""The steps of a move: reserve successors for the members that have to move, and cut over to them."""

from __future__ import annotations

from matrixcommon.model.errors import Conflict, StaleGeneration
from matrixcommon.model.quantities import counted
from matrixcommon.workflows.workflow import StepPending
from matrixcompute.model.composition import as_far_as_there_is, compose
from matrixcompute.operations.context import StepContext
from matrixcompute.workflows import repairing_steps, steps
from matrixcompute.workflows.draining import lying_in, who_can_leave, without
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.defragmentations import RelocateRequest


async def take_successors(work: StepContext) -> None:
    """Reserve a successor for every member that has to move; nothing is released yet.

    That includes members in a draining domain, as many as there is room for.
    """
    request = await _request(work)
    if nodes := lying_in((await steps.current_allocation(work)).members, await work.neighbours.draining()):
        request = without(request, (await who_can_leave(work.neighbours, work.instance, request, nodes))[0])
    allocation = await work.neighbours.move(work.instance, request)
    coming = [member for member in allocation.members if member.role == "successor"]
    if coming:
        work.record_event(
            "Moving", f"moving {counted(len(coming), 'member')} to {', '.join(sorted(each.node for each in coming))}"
        )


async def give_up_move(work: StepContext) -> None:
    """Release the successors; the instance stays where it is."""
    if await work.neighbours.find_allocation(work.instance) is not None:
        await work.neighbours.abort_move(work.instance)


async def take_successor(work: StepContext) -> None:
    """Reserve the named node as successor of the member that has to move."""
    await work.neighbours.relocate(work.instance, RelocateRequest.from_stored(work.parameters))
    work.record_event(
        "Moving",
        f"moving {work.parameters['node']} to {work.parameters['to']} (defragmentation "
        f"{work.parameters['defragmentation']})",
    )


async def await_successor(work: StepContext) -> None:
    """Wait until the successor is deployed. A newer spec or any failure rolls the move back."""
    check_newest(work)
    allocation = await steps.current_allocation(work)
    plan = await repairing_steps.recovery(work, allocation)
    if plan.action == "hold":
        raise StepPending(plan.message)
    if plan.action == "replace":
        raise Conflict(f"failed members have to be repaired before the move: {plan.message}")
    coming = [member for member in allocation.members if member.role == "successor" and not member.ready]
    if coming:
        raise StepPending(f"{coming[0].node} is {coming[0].state}; {work.parameters['node']} keeps serving")


async def await_successors(work: StepContext) -> None:
    """Wait until every successor is deployed; replace what breaks meanwhile, and plan the move again.

    A newer spec rolls the move back.
    """
    check_newest(work)
    allocation = await steps.current_allocation(work)
    plan = await repairing_steps.recovery(work, allocation)
    if plan.action == "hold":
        raise StepPending(plan.message)
    if plan.action == "replace":
        successors = {member.node for member in allocation.members if member.role == "successor"}
        if set(plan.nodes) - successors:
            await repairing_steps.replace_members(work)
        await take_successors(work)
        await steps.bind_nodes(work)
        raise StepPending(plan.message)
    coming = [member for member in allocation.members if member.role == "successor"]
    ready = sum(member.ready for member in coming)
    if ready < len(coming):
        raise StepPending(f"{ready} of {len(coming)} successors are active; the members keep serving")


async def reach_both(work: StepContext) -> None:
    """Admit slices over members and successors together, so that routes exist before the cutover."""
    await steps.admit(work, work.shape, {"member", "successor"})
    await steps.program_routes(work)


async def reach_members(work: StepContext) -> None:
    """Admit slices over the members alone, with the shares that were last active."""
    await steps.admit(work, work.applied() or work.shape, {"member"})
    await steps.program_routes(work)


async def await_routes(work: StepContext) -> None:
    """Wait until the routes to the successors are programmed. A lost agent programs none, so it is replaced first."""
    slices = await work.neighbours.slices_of(work.instance)
    if not all(each.programmed for each in slices):
        await still_wanted(work)
        raise StepPending(f"routes to the successors are being programmed{repairing_steps.states(slices)}")


async def still_wanted(work: StepContext) -> None:
    """Roll a move back on a newer spec or any failure, as long as it has not been made. Does nothing in a repair."""
    if work.rungs() is not None:
        return
    check_newest(work)
    plan = await repairing_steps.recovery(work, await steps.current_allocation(work))
    if plan.action in ("repair", "replace"):
        raise Conflict(f"failed members have to be repaired before the move: {plan.message}")


def check_newest(work: StepContext) -> None:
    """Raises StaleGeneration if the spec has changed since the move was opened."""
    if (newest := work.newest()) > work.asked_generation:
        raise StaleGeneration(f"generation {newest} is requested now")


async def cut_over(work: StepContext) -> None:
    """Let all successors take over at once; the nodes they replace are cleaned."""
    before = await steps.current_allocation(work)
    after = await work.neighbours.cut_over(work.instance, await _request(work))
    gone = {m.node for m in before.members if m.role == "member"} - {m.node for m in after.members}
    if gone:
        work.record_event("Moved", f"moved away from {', '.join(sorted(gone))}")


async def _request(work: StepContext) -> AllocationRequest:
    """The allocation after the move. A move does not restore missing members."""
    present = await work.neighbours.find_allocation(work.instance)
    return compose(work.instance, as_far_as_there_is(work.shape, work.applied(), present))
