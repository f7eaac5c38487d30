"""The degraded shape: an instance for whose lost members there are no other nodes continues with those it has, as long
as they are at least its floor. When there is room again, `restoring_steps` have the missing ones back.

How many it goes without is nowhere written down: it is what its allocation lacks of the shape that was active last.
"""

from __future__ import annotations

from collections.abc import Collection

from matrixcommon.model.errors import BelowFloor, MatrixError
from matrixcompute.model.composition import compose
from matrixcompute.model.whole_blocks import whole_blocks
from matrixcompute.operations.context import StepContext
from matrixcompute.recovery.ladder import DEGRADE, RungTried, recovery_rules
from matrixcompute.recovery.notice import still_serves
from matrixcompute.workflows.draining import without
from matrixresource.contract.allocations import AllocationView


async def continue_without(
    work: StepContext, allocation: AllocationView, nodes: Collection[str], full: MatrixError
) -> bool:
    """Let these members go, for which there is no other node, unless they still serve; whether any were.

    Where blocks are to be whole, the others of theirs go with them. Raises BelowFloor where too few would be left, and
    `full` where nobody may go: its recovery policy leaves `degrade` out, or another size is being brought about.
    """
    members = [each for each in allocation.members if each.role == "member"]
    dead = {each.node for each in members if each.node in nodes and not still_serves(each, recovery_rules())}
    applied, allowed = work.applied(), work.recovery_policy().rungs
    if not dead or applied is None or applied.nodes != work.shape.nodes:
        return False
    if allowed is not None and DEGRADE not in allowed:
        return False
    kept = whole_blocks([each for each in members if each.node not in dead], work.shape.placement.blocks)
    if len(kept) < work.shape.floor:
        raise BelowFloor(
            f"{len(members) - len(dead)} of {work.shape.nodes} members are left, its floor is {work.shape.floor}, "
            f"and there is no node for {', '.join(sorted(dead))}: {full.message}",
            field="minNodes",
        )
    gone = sorted({each.node for each in members} - kept)
    # Spares that are missing wait until members are not: a node that comes free is wanted as one.
    spares = sum(each.role == "spare" for each in allocation.members)
    shape = work.shape.model_copy(update={"nodes": len(kept), "spares": min(spares, work.shape.spares)})
    after = await work.neighbours.reserve(work.instance, without(compose(work.instance, shape), gone))
    for node in gone:
        why = full.message if node in dead else "its block is not whole without the others"
        work.note_rung(RungTried(node=node, rung=DEGRADE, at=work.clock.now(), why=why))
    work.record_event(
        "DegradedShape",
        f"it continues with {after.nodes} of {work.shape.nodes} members, without {', '.join(gone)}",
        warning=True,
    )
    return True
