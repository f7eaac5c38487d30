"""Promotion of spares: which of an allocation's spares may become members, to replace one or to grow.

Either way `NodeAssignments.assign` makes the spare a member, in the transaction that also takes another spare in its
place. Its agent has booted it already and only has to join the planes (`promote` in `node_stages.yaml`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.contract.nodes import RECOVERY
from matrixresource.nodes.states import AVAILABLE
from matrixresource.scheduler.changes.repair import satisfies_constraints
from matrixresource.scheduler.model.request import PlacementRequest
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.tables import NodeRow


def fit_spares(
    ledger: LedgerSync, request: PlacementRequest, nodes: Iterable[NodeRow], members: set[int]
) -> Iterator[NodeRow]:
    """The working spares that the request's constraints allow to join these members."""
    for node in nodes:
        works = node.role == "spare" and in_use(node) and node.health != "Unhealthy"
        if works and satisfies_constraints(ledger.ledger, request, members, ledger.numbers[node.name]):
            yield node


def warm_spares(
    ledger: LedgerSync,
    request: PlacementRequest,
    allocation: AllocationRow,
    nodes: Sequence[NodeRow],
    members: Iterable[int],
) -> list[int]:
    """The ready spares that may all join these members, in the order in which they should.

    None if members are parts of nodes or switched off: a spare would then be ready no sooner than a free node. A spare
    that is closed to new work stays a spare, since a member on it would be new work.
    """
    if not allocation.bound or allocation.power != "On" or request.npus_per_node != ledger.ledger.shape.npus:
        return []
    joined, found = set(members), list[int]()
    cabinets = {number // ledger.ledger.shape.nodes for number in joined}
    waiting = [node for node in nodes if node.ready and node.open]
    waiting.sort(key=lambda node: (ledger.numbers[node.name] // ledger.ledger.shape.nodes not in cabinets, node.name))
    for node in waiting:
        number = ledger.numbers[node.name]
        if number not in request.excluded_nodes and any(fit_spares(ledger, request, [node], joined)):
            joined.add(number)
            found.append(number)
    return found


def in_use(node: NodeRow) -> bool:
    """Whether its agent is connected, nobody wants the node out of service, and recovery does not suspect it."""
    return node.agent == "Connected" and node.desired_state == AVAILABLE and RECOVERY not in (node.cordoned_by or ())
