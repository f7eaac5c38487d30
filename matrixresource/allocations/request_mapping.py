"""map_request: convert a request to the ledger's form. Pure; requests without a meaning are refused.

The ledger counts members as nodes with `npus_per_node` NPUs on each. A request may give that itself, or give a number
of NPUs.
"""

from __future__ import annotations

from collections.abc import Callable

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.hardware_names import NodeName
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.requested_capacity import Affinity
from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.request import DomainConstraint, PlacementRequest

NEVER = float("inf")


def member_size(request: AllocationRequest, node_npus: int) -> tuple[int, float]:
    """(members, NPUs on each), with `node_npus` NPUs in a node; no members for sockets or memory alone. Raises
    InvalidField."""
    per_node = request.npus_per_node
    if per_node is not None:
        _check_part_size(per_node, "npusPerNode", node_npus)
    if request.nodes is not None:
        return request.nodes, per_node or node_npus
    if request.npus is None:
        return 0, node_npus
    npus = request.npus
    if per_node is not None:
        if npus % per_node:
            raise InvalidField(
                f"{npus:g} NPUs cannot be divided into nodes with {per_node:g} each", field="npusPerNode"
            )
        return int(npus / per_node), per_node
    if npus <= node_npus:
        _check_part_size(npus, "npus", node_npus)
        return 1, npus
    if npus != int(npus):
        raise InvalidField(
            f"more than one node of NPUs must be a whole number, not {npus:g}; for single dies, set npusPerNode to 0.5",
            field="npus",
        )
    whole = int(npus)
    per_node = next(size for size in range(node_npus, 0, -1) if whole % size == 0)
    return whole // per_node, per_node


def _check_part_size(npus: float, field: str, node_npus: int) -> None:
    if npus > node_npus or (npus != 0.5 and npus != int(npus)):
        raise InvalidField(
            f"a node cannot give {npus:g} NPUs: use 0.5 (one die) or a whole number from 1 to {node_npus}",
            field=field,
        )


def map_request(
    request: AllocationRequest, shape: ClusterShape, number: Callable[[NodeName], int | None], now: float = 0.0
) -> PlacementRequest:
    """The ledger's request. `number` gives a node's number, or None if it does not exist; the lease starts at `now`."""
    nodes, per_node = member_size(request, shape.npus)
    placement = request.placement
    if placement.policy == "pack" and placement.level == "node" and placement.required and nodes > 1:
        raise InvalidField(
            f"{nodes} members need {nodes} nodes; at most {shape.npus} NPUs can be packed into one",
            field="placement.level",
        )
    blocks = {"cabinet": 1, "supernode": 1}
    for position, block in enumerate(placement.blocks):
        if nodes % block.nodes:
            raise InvalidField(
                f"{nodes} members cannot be divided into blocks of {block.nodes}",
                field=f"placement.blocks[{position}].nodes",
            )
        blocks[block.level] = block.nodes
    if blocks["supernode"] % blocks["cabinet"] and blocks["supernode"] > 1:
        raise InvalidField(
            f"a supernode block of {blocks['supernode']} cannot be divided into cabinet blocks of {blocks['cabinet']}",
            field="placement.blocks",
        )
    excluded = (number(name) for name in request.exclude_nodes)
    named = ((number(name), gib) for name, gib in request.memory_gib_by_node.items())
    by_node = tuple(sorted((node, gib) for node, gib in named if node is not None))
    return PlacementRequest(
        nodes,
        per_node,
        required_domain=_required_domain(request),
        supernode_block=blocks["supernode"],
        cabinet_block=blocks["cabinet"],
        spread=_spread_constraint(request, nodes, shape),
        anti_affinity=_affinity_constraint(request.anti_affinity),
        affinity=_affinity_constraint(request.affinity),
        spares=request.spares,
        cpus=request.cpus,
        mem=sum(gib for _, gib in by_node) if request.memory_gib_by_node else request.memory_gib,
        mem_by_node=by_node,
        priority=request.priority,
        preempts=request.preemption == "LowerPriority",
        lease_end=NEVER if request.lease_s is None else now + request.lease_s,
        excluded_nodes=frozenset(each for each in excluded if each is not None),
    )


def _required_domain(request: AllocationRequest) -> str:
    placement = request.placement
    if request.nodes is None and request.npus is None:
        return placement.level if placement.required and placement.level != "node" else ""
    if placement.level == "supernode":
        return "supernode" if placement.policy == "pack" and placement.required else ""
    return (
        "cabinet" if placement.policy == "pack" and placement.required and placement.level == "cabinet" else "supernode"
    )


def _spread_constraint(request: AllocationRequest, nodes: int, shape: ClusterShape) -> DomainConstraint | None:
    placement = request.placement
    if placement.policy != "spread" or placement.level == "node" or not nodes:
        return None
    domains = shape.cabinets if placement.level == "cabinet" else shape.supernodes
    return DomainConstraint(
        placement.level, placement.max_per_domain or -(-nodes // domains), required=placement.required
    )


def _affinity_constraint(affinity: Affinity | None) -> DomainConstraint | None:
    return (
        None
        if affinity is None
        else DomainConstraint(affinity.level, others=tuple(affinity.allocations), required=affinity.required)
    )
