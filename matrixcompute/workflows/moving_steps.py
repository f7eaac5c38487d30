"""The steps of a move: successors beside the members that shall lie elsewhere, and the change-over to them."""

from __future__ import annotations

from matrixcommon.model.errors import Conflict, StaleGeneration
from matrixcompute.instances.composition import compose
from matrixcompute.operations.saga import Waiting, Work
from matrixcompute.reconcilers.draining import lying_in, who_can_leave, without
from matrixcompute.recovery.policy import plan_recovery
from matrixcompute.workflows import steps
from matrixresource.contract.defragmentations import RelocateRequest


async def take_successors(work: Work) -> None:
    """Hold, beside every member that shall lie elsewhere, the node it moves to; nothing is given up yet.

    Members in a domain that drains lie elsewhere then, as many as there is room for.
    """
    wish = compose(work.instance, work.shape).allocation
    if nodes := lying_in((await steps.held(work)).members, await work.neighbours.draining()):
        wish = without(wish, (await who_can_leave(work.neighbours, work.instance, wish, nodes))[0])
    held = await work.neighbours.move(work.instance, wish)
    coming = [member for member in held.members if member.role == "successor"]
    if coming:
        work.say("Moving", f"{len(coming)} members move to {', '.join(sorted(each.node for each in coming))}")


async def give_up_move(work: Work) -> None:
    """Let the successors go: the instance stays where it is."""
    if await work.neighbours.allocation(work.instance) is not None:
        await work.neighbours.stay(work.instance)


async def take_successor(work: Work) -> None:
    """Hold, beside the member that shall lie elsewhere, the node that was named for it."""
    await work.neighbours.relocate(work.instance, RelocateRequest.model_validate(work.about))
    work.say("Moving", f"{work.about['node']} gives its place to {work.about['to']} ({work.about['defragmentation']})")


async def await_successor(work: Work) -> None:
    """Until the successor is deployed. A newer wish, or anything that broke, turns the move round."""
    if (newest := work.newest()) > work.wish:
        raise StaleGeneration(f"generation {newest} is wished now")
    allocation = await steps.held(work)
    plan = plan_recovery(allocation.members, await steps.silent(work), work.policy)
    if plan.action == "hold":
        raise Waiting(plan.message)
    if plan.action == "replace":
        raise Conflict(f"repaired first: {plan.message}")
    coming = [member for member in allocation.members if member.role == "successor" and not member.ready]
    if coming:
        raise Waiting(f"{coming[0].node} is {coming[0].state}; {work.about['node']} serves meanwhile")


async def await_successors(work: Work) -> None:
    """Until every successor is deployed; who breaks meanwhile is replaced, and the move planned anew.

    A newer wish turns the move round while it still can be.
    """
    if (newest := work.newest()) > work.wish:
        raise StaleGeneration(f"generation {newest} is wished now")
    allocation = await steps.held(work)
    plan = plan_recovery(allocation.members, await steps.silent(work), work.policy)
    if plan.action == "hold":
        raise Waiting(plan.message)
    if plan.action == "replace":
        successors = {member.node for member in allocation.members if member.role == "successor"}
        if set(plan.nodes) - successors:
            await steps.replace_members(work)
        await take_successors(work)
        await steps.bind_nodes(work)
        raise Waiting(plan.message)
    coming = [member for member in allocation.members if member.role == "successor"]
    ready = sum(member.ready for member in coming)
    if ready < len(coming):
        raise Waiting(f"{ready} of {len(coming)} successors are active; what was there serves meanwhile")


async def reach_both(work: Work) -> None:
    """Slices over members and successors together, so that routes are there before anybody changes over."""
    await steps.admit(work, work.shape, {"member", "successor"})
    await steps.program_routes(work)


async def reach_members(work: Work) -> None:
    """Slices over the members alone, with the shares that last were active."""
    await steps.admit(work, work.applied() or work.shape, {"member"})
    await steps.program_routes(work)


async def await_routes(work: Work) -> None:
    """Until the routes to the successors are programmed."""
    slices = (await work.neighbours.slices()).get(work.instance, [])
    if not all(each.programmed for each in slices):
        raise Waiting(f"routes to the successors are programmed{steps.states(slices)}")


async def change_over(work: Work) -> None:
    """Successors take over at once; the nodes they follow are cleaned."""
    before = await steps.held(work)
    after = await work.neighbours.change_over(work.instance, compose(work.instance, work.shape).allocation)
    gone = {m.node for m in before.members if m.role == "member"} - {m.node for m in after.members}
    if gone:
        work.say("Moved", f"{', '.join(sorted(gone))} gave their places up")
