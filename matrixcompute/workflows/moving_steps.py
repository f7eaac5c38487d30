"""The steps of a move: successors beside the members that shall lie elsewhere, and the change-over to them."""

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
    """Hold, beside every member that shall lie elsewhere, the node it moves to; nothing is given up yet.

    Members in a domain that drains lie elsewhere then, as many as there is room for.
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
    """Let the successors go: the instance stays where it is."""
    if await work.neighbours.find_allocation(work.instance) is not None:
        await work.neighbours.abort_move(work.instance)


async def take_successor(work: StepContext) -> None:
    """Hold, beside the member that shall lie elsewhere, the node that was named for it."""
    await work.neighbours.relocate(work.instance, RelocateRequest.from_stored(work.parameters))
    work.record_event(
        "Moving",
        f"{work.parameters['node']} gives its place to {work.parameters['to']} ({work.parameters['defragmentation']})",
    )


async def await_successor(work: StepContext) -> None:
    """Until the successor is deployed. A newer spec, or anything that broke, rolls the move back."""
    check_newest(work)
    allocation = await steps.current_allocation(work)
    plan = await repairing_steps.recovery(work, allocation)
    if plan.action == "hold":
        raise StepPending(plan.message)
    if plan.action == "replace":
        raise Conflict(f"what failed has to be repaired before it moves: {plan.message}")
    coming = [member for member in allocation.members if member.role == "successor" and not member.ready]
    if coming:
        raise StepPending(f"{coming[0].node} is {coming[0].state}; {work.parameters['node']} serves meanwhile")


async def await_successors(work: StepContext) -> None:
    """Until every successor is deployed; who breaks meanwhile is replaced, and the move planned anew.

    A newer spec rolls the move back while it still can be.
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
        raise StepPending(f"{ready} of {len(coming)} successors are active; what was there serves meanwhile")


async def reach_both(work: StepContext) -> None:
    """Slices over members and successors together, so that routes are there before anybody changes over."""
    await steps.admit(work, work.shape, {"member", "successor"})
    await steps.program_routes(work)


async def reach_members(work: StepContext) -> None:
    """Slices over the members alone, with the shares that last were active."""
    await steps.admit(work, work.applied() or work.shape, {"member"})
    await steps.program_routes(work)


async def await_routes(work: StepContext) -> None:
    """Until the routes to the successors are programmed. Whose agent is lost programs none: it is replaced first."""
    slices = await work.neighbours.slices_of(work.instance)
    if not all(each.programmed for each in slices):
        await still_wanted(work)
        raise StepPending(f"routes to the successors are programmed{repairing_steps.states(slices)}")


async def still_wanted(work: StepContext) -> None:
    """Until the move is made, a newer spec, or anything that broke, rolls it back. What of a repair asks this goes
    on."""
    if work.rungs() is not None:
        return
    check_newest(work)
    plan = await repairing_steps.recovery(work, await steps.current_allocation(work))
    if plan.action in ("repair", "replace"):
        raise Conflict(f"what failed has to be repaired before it moves: {plan.message}")


def check_newest(work: StepContext) -> None:
    """Raises StaleGeneration where another spec has been asked for since the move was opened."""
    if (newest := work.newest()) > work.asked_generation:
        raise StaleGeneration(f"generation {newest} is requested now")


async def cut_over(work: StepContext) -> None:
    """Successors take over at once; the nodes they follow are cleaned."""
    before = await steps.current_allocation(work)
    after = await work.neighbours.cut_over(work.instance, await _request(work))
    gone = {m.node for m in before.members if m.role == "member"} - {m.node for m in after.members}
    if gone:
        work.record_event("Moved", f"{', '.join(sorted(gone))} gave their places up")


async def _request(work: StepContext) -> AllocationRequest:
    """The allocation it is to be in the end; whom it goes without is not had back by a move."""
    present = await work.neighbours.find_allocation(work.instance)
    return compose(work.instance, as_far_as_there_is(work.shape, work.applied(), present))
