"""The degraded shape: if there are no nodes for lost members, an instance continues with the others, down to its floor.
When there is room again, `restoring_steps` bring the missing ones back.

The number of missing members is not stored: it is what the allocation lacks of the last active shape.
"""

from __future__ import annotations

from collections.abc import Collection

from matrixcommon.model.errors import BelowFloor, MatrixError
from matrixcompute.model.composition import compose
from matrixcompute.model.whole_blocks import whole_blocks
from matrixcompute.operations.context import StepContext
from matrixcompute.recovery.ladder import DEGRADE, RungTried, recovery_rules
from matrixcompute.recovery.notice import still_serves
from matrixcompute.workflows.draining import exclude_nodes
from matrixresource.contract.allocations import AllocationView


async def degrade_shape(
    context: StepContext, allocation: AllocationView, nodes: Collection[str], refusal: MatrixError
) -> bool:
    """Release those of `nodes`, members without a replacement, that no longer serve. Returns whether any were released.

    Where blocks have to be whole, the rest of a broken block goes too. Returns False if no member may go: all still
    serve, the recovery policy leaves `degrade` out, or the size is being changed. Raises BelowFloor if too few would be
    left; `refusal` says why there is no node.
    """
    members = [each for each in allocation.members if each.role == "member"]
    lost = {each.node for each in members if each.node in nodes and not still_serves(each, recovery_rules())}
    applied, allowed = context.applied(), context.recovery_policy().rungs
    if not lost or applied is None or applied.nodes != context.shape.nodes:
        return False
    if allowed is not None and DEGRADE not in allowed:
        return False
    kept = whole_blocks([each for each in members if each.node not in lost], context.shape.placement.blocks)
    if len(kept) < context.shape.floor:
        raise BelowFloor(
            f"{len(members) - len(lost)} of {context.shape.nodes} members are left, its floor is "
            f"{context.shape.floor}, and there is no node for {', '.join(sorted(lost))}: {refusal.message}",
            field="minNodes",
        )
    released = sorted({each.node for each in members} - kept)
    # Missing spares wait until no member is missing, since a node that comes free is needed as a member first.
    spares = sum(each.role == "spare" for each in allocation.members)
    shape = context.shape.model_copy(update={"nodes": len(kept), "spares": min(spares, context.shape.spares)})
    after = await context.control_plane.reserve(
        context.instance, exclude_nodes(compose(context.instance, shape), released)
    )
    for node in released:
        why = refusal.message if node in lost else "its block is not whole without the others"
        context.record_rung(RungTried(node=node, rung=DEGRADE, at=context.clock.now(), why=why))
    context.record_event(
        "DegradedShape",
        f"it continues with {after.nodes} of {context.shape.nodes} members, without {', '.join(released)}",
        warning=True,
    )
    return True
