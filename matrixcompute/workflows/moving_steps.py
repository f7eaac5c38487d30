"""The steps of a move: reserve successors for the members that have to move, and cut over to them."""

from __future__ import annotations

from matrixcommon.model.errors import Conflict, StaleGeneration
from matrixcommon.model.quantities import pluralized
from matrixcommon.workflows.workflow import StepPending
from matrixcompute.model.composition import compose, limit_to_allocated
from matrixcompute.operations.context import StepContext
from matrixcompute.workflows import repairing_steps, steps
from matrixcompute.workflows.draining import exclude_nodes, nodes_in_domains, select_movable
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.defragmentations import RelocateRequest


async def take_successors(context: StepContext) -> None:
    """Reserve a successor for every member that has to move; nothing is released yet.

    That includes members in a draining domain, as many as there is room for.
    """
    request = await _request(context)
    if nodes := nodes_in_domains(
        (await steps.current_allocation(context)).members, await context.control_plane.draining()
    ):
        request = exclude_nodes(
            request, (await select_movable(context.control_plane, context.instance, request, nodes))[0]
        )
    allocation = await context.control_plane.move(context.instance, request)
    successors = [member for member in allocation.members if member.role == "successor"]
    if successors:
        context.record_event(
            "Moving",
            f"moving {pluralized(len(successors), 'member')} to {', '.join(sorted(each.node for each in successors))}",
        )


async def give_up_move(context: StepContext) -> None:
    """Release the successors; the instance stays where it is."""
    if await context.control_plane.find_allocation(context.instance) is not None:
        await context.control_plane.abort_move(context.instance)


async def take_successor(context: StepContext) -> None:
    """Reserve the named node as successor of the member that has to move."""
    await context.control_plane.relocate(context.instance, RelocateRequest.from_stored(context.parameters))
    context.record_event(
        "Moving",
        f"moving {context.parameters['node']} to {context.parameters['to']} (defragmentation "
        f"{context.parameters['defragmentation']})",
    )


async def await_successor(context: StepContext) -> None:
    """Wait until the successor is deployed. A newer spec or any failure rolls the move back."""
    check_newest(context)
    allocation = await steps.current_allocation(context)
    plan = await repairing_steps.recovery(context, allocation)
    if plan.action == "hold":
        raise StepPending(plan.message)
    if plan.action == "replace":
        raise Conflict(f"failed members have to be repaired before the move: {plan.message}")
    successors = [member for member in allocation.members if member.role == "successor" and not member.ready]
    if successors:
        raise StepPending(f"{successors[0].node} is {successors[0].state}; {context.parameters['node']} keeps serving")


async def await_successors(context: StepContext) -> None:
    """Wait until every successor is deployed; replace what breaks meanwhile, and plan the move again.

    A newer spec rolls the move back.
    """
    check_newest(context)
    allocation = await steps.current_allocation(context)
    plan = await repairing_steps.recovery(context, allocation)
    if plan.action == "hold":
        raise StepPending(plan.message)
    if plan.action == "replace":
        nodes = {member.node for member in allocation.members if member.role == "successor"}
        if set(plan.nodes) - nodes:
            await repairing_steps.replace_members(context)
        await take_successors(context)
        await steps.bind_nodes(context)
        raise StepPending(plan.message)
    successors = [member for member in allocation.members if member.role == "successor"]
    ready = sum(member.ready for member in successors)
    if ready < len(successors):
        raise StepPending(f"{ready} of {len(successors)} successors are active; the members keep serving")


async def reach_both(context: StepContext) -> None:
    """Admit slices over members and successors together, so that routes exist before the cutover."""
    await steps.admit(context, context.shape, {"member", "successor"})
    await steps.program_routes(context)


async def reach_members(context: StepContext) -> None:
    """Admit slices over the members alone, with the shares that were last active."""
    await steps.admit(context, context.applied() or context.shape, {"member"})
    await steps.program_routes(context)


async def await_routes(context: StepContext) -> None:
    """Wait until the routes to the successors are programmed. A lost agent programs none, so it is replaced first."""
    slices = await context.control_plane.slices_of(context.instance)
    if not all(each.programmed for each in slices):
        await check_move_is_current(context)
        raise StepPending(
            f"routes to the successors are being programmed{repairing_steps.describe_unprogrammed(slices)}"
        )


async def check_move_is_current(context: StepContext) -> None:
    """Roll a move back on a newer spec or any failure, as long as it has not been made. Does nothing in a repair."""
    if context.rungs() is not None:
        return
    check_newest(context)
    plan = await repairing_steps.recovery(context, await steps.current_allocation(context))
    if plan.action in ("repair", "replace"):
        raise Conflict(f"failed members have to be repaired before the move: {plan.message}")


def check_newest(context: StepContext) -> None:
    """Raises StaleGeneration if the spec has changed since the move was opened."""
    if (generation := context.current_generation()) > context.requested_generation:
        raise StaleGeneration(f"generation {generation} is requested now")


async def cut_over(context: StepContext) -> None:
    """Let all successors take over at once; the nodes they replace are cleaned."""
    before = await steps.current_allocation(context)
    after = await context.control_plane.cut_over(context.instance, await _request(context))
    gone = {m.node for m in before.members if m.role == "member"} - {m.node for m in after.members}
    if gone:
        context.record_event("Moved", f"moved away from {', '.join(sorted(gone))}")


async def _request(context: StepContext) -> AllocationRequest:
    """The allocation after the move. A move does not restore missing members."""
    present = await context.control_plane.find_allocation(context.instance)
    return compose(context.instance, limit_to_allocated(context.shape, context.applied(), present))
