"""Which members have to leave a draining domain or node, and how many can at once. They keep running until they have
moved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from matrixcommon.model.errors import Conflict, MatrixError
from matrixcommon.model.hardware_names import NodeName
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.model.whole_blocks import whole_blocks
from matrixcompute.recovery.policy import broken_members
from matrixresource.contract.allocations import AllocationRequest, AllocationView, MemberView


def nodes_in_domains(members: Iterable[MemberView], domains: Sequence[str], role: str = "member") -> list[str]:
    """The nodes of `members` with that role that drain or are in one of these cabinets or supernodes, in rank order."""
    inside = [
        each
        for each in members
        if each.role == role and (each.state == "Draining" or any(each.node.startswith(f"{d}-") for d in domains))
    ]
    return [each.node for each in sorted(inside, key=lambda each: (each.rank or 0, each.node))]


async def select_movable(
    control_plane: ControlPlane, name: str, request: AllocationRequest, nodes: Sequence[str]
) -> tuple[list[str], MatrixError | None]:
    """The members among `nodes` for which there is room elsewhere, all at once if possible, and what blocks the others.

    Changes nothing: MatrixResource only plans each move.
    """
    leaving: list[str] = []
    refusal: MatrixError | None = None
    for candidates in [list(nodes), *([node] for node in nodes)]:
        allocation_request = exclude_nodes(request, [*leaving, *candidates])
        try:
            await control_plane.move(name, allocation_request, validate_only=True)
        except Conflict as error:
            refusal = error
        else:
            leaving += candidates
        if len(leaving) == len(nodes):
            return leaving, None
    return leaving, refusal


def shrink_request(
    request: AllocationRequest, present: AllocationView | None, leaving: Sequence[str]
) -> AllocationRequest:
    """The request, with the members that leave if it shrinks: those in `leaving`, or else broken members before working
    ones, together with the rest of their blocks if enough remain. MatrixResource chooses any others."""
    nodes = request.nodes or 0
    if present is None or present.nodes <= nodes or leaving:
        return exclude_nodes(request, leaving)
    broken = {member.node for member, _ in broken_members(present.members)}
    members = [each for each in present.members if each.role == "member"]
    gone = sorted(each.node for each in members if each.node in broken)
    if not request.placement.blocks:
        return exclude_nodes(request, gone[: present.nodes - nodes])
    kept = whole_blocks([each for each in members if each.node not in broken], request.placement.blocks)
    return exclude_nodes(request, sorted({each.node for each in members} - kept) if gone and len(kept) >= nodes else [])


def exclude_nodes(request: AllocationRequest, nodes: Iterable[str]) -> AllocationRequest:
    """The same request, excluding these nodes."""
    return request.model_copy(update={"exclude_nodes": [NodeName(node) for node in nodes]})
