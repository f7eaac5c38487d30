"""What one failure would take of a placement: members, and the share of its bandwidth on the UB plane.

Nodes, cabinets and supernodes take the members that lie there. Switches take no member but bandwidth of many: an L1
switch a part of one node's, an L2 switch or a communication cabinet a part of every node's in its supernode. How large
these parts are is the topology's arithmetic (`Supernode.blast_radius`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache

from matrixresource.scheduler.model.request import Placement
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.topology.supernode import Supernode


@dataclass(frozen=True)
class FailureImpact:
    """The worst that the loss of one `over` (node, cabinet, supernode, l1, l2, communication-cabinet) takes.

    `members` are the members lost whole; `ub_share` (0 to 1) is of the UB bandwidth of all members, by their NPUs.
    """

    over: str
    members: int
    ub_share: float


def blast_radius(ledger: LedgerState, place: Placement) -> tuple[FailureImpact, ...]:
    """For each kind of failure, the worst one. Spares, sockets and memory do not count."""
    shape = ledger.shape
    npus = {c * shape.nodes + o: float(shape.npus) for c, mask in place.whole for o in ledger.index.offsets(mask)}
    for node, dies in place.parts:
        npus[node] = npus.get(node, 0.0) + dies.bit_count() / 2
    total = sum(npus.values())
    if not total:
        return ()
    found = []
    worst: dict[str, float] = {}
    for over, size in (("node", 1), ("cabinet", shape.nodes), ("supernode", shape.of_supernode)):
        members, current = Counter[int](), Counter[int]()
        for node, count in npus.items():
            members[node // size] += 1
            current[node // size] += count  # type: ignore[assignment]
        worst[over] = max(current.values()) / total
        found.append(FailureImpact(over, max(members.values()), worst[over]))
    for over, hits, share in switch_shares():
        found.append(FailureImpact(over, 0, worst[hits] * share))
    return tuple(found)


@cache
def switch_shares() -> tuple[tuple[str, str, float], ...]:
    """(kind of switch, which domain's nodes feel its loss, the share of their UB bandwidth it takes)."""
    supernode = Supernode()
    of_node = supernode.spec.node.ub_gbps
    first = supernode.nodes()[0]
    parts = (
        ("l1", "node", supernode.l1_switches(node=first)[0]),
        ("l2", "supernode", supernode.l2_switches()[0]),
        ("communication-cabinet", "supernode", supernode.communication_cabinets()[0]),
    )
    return tuple((kind, hits, supernode.blast_radius(part).uplink_gbps_lost / of_node) for kind, hits, part in parts)
