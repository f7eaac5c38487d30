"""The impact of one failure on a placement: members lost, and the share of its bandwidth on the UB plane.

The loss of a node, cabinet or supernode takes the members there. The loss of a switch takes no member but bandwidth
from many: an L1 switch a part of one node's, an L2 switch or a communication cabinet a part of that of every node in
its supernode. The sizes of these parts come from the supernode's graph, as agents found it (`SwitchLosses`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from matrixresource.scheduler.model.request import Placement
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.topology.compiled import CompiledTopology
from matrixresource.topology.regular import regular_topology


@dataclass(frozen=True)
class FailureImpact:
    """The worst case of losing one `over` (node, cabinet, supernode, l1, l2, communication-cabinet).

    `members` are lost entirely; `ub_share` (0 to 1) is the share of the UB bandwidth of all members, weighted by their
    NPUs.
    """

    over: str
    members: int
    ub_share: float


@dataclass(frozen=True, eq=False)
class SwitchLosses:
    """The share of a node's UB bandwidth that the loss of a switch takes, by the node's number in its supernode.

    `l1`: for each node, the worst among its own L1 switches. `others`: by kind, for each L2 switch or communication
    cabinet, the share that most nodes lose, and the nodes that lose another.
    """

    l1: dict[int, float]
    others: dict[str, list[tuple[float, dict[int, float]]]]


@cache
def switch_losses(topology: CompiledTopology, nodes: int) -> SwitchLosses:
    """Compiled from a supernode's graph; identical supernodes share it. `nodes` is the number of nodes per cabinet."""
    slots = {
        node: cabinet * nodes + place for node, (cabinet, place) in regular_topology(topology.spec).node_slots.items()
    }
    whole = topology.node_uplink_gbps

    def shares(switches: list[str]) -> dict[int, float]:
        lost = topology.uplink_gbps(switches)
        return {slots[node]: lost.get(node, 0.0) / whole[node] for node in topology.nodes if whole[node]}

    by_cabinet: dict[str | None, list[str]] = {}
    l1: dict[int, float] = {}
    for name, switch in topology.switches.items():
        if switch.kind == "l2":
            by_cabinet.setdefault(switch.cabinet, []).append(name)
        elif switch.kind == "l1" and switch.node is not None and whole[switch.node]:
            share = topology.uplink_gbps([name]).get(switch.node, 0.0) / whole[switch.node]
            l1[slots[switch.node]] = max(l1.get(slots[switch.node], 0.0), share)
    l2 = [_with_exceptions(shares([name])) for each in by_cabinet.values() for name in each]
    cabinets = [_with_exceptions(shares(each)) for each in by_cabinet.values()]
    return SwitchLosses(l1, {"l2": l2, "communication-cabinet": cabinets})


def _with_exceptions(shares: dict[int, float]) -> tuple[float, dict[int, float]]:
    usual = Counter(shares.values()).most_common(1)[0][0] if shares else 0.0
    return usual, {slot: share for slot, share in shares.items() if share != usual}


def blast_radius(
    ledger: LedgerState, place: Placement, topologies: Sequence[CompiledTopology]
) -> tuple[FailureImpact, ...]:
    """The worst failure of each kind. Spares, sockets and memory do not count. `topologies`: the graphs of the
    supernodes, in order; without them there are no switches in the result."""
    shape = ledger.shape
    npus = {c * shape.nodes + o: float(shape.npus) for c, mask in place.whole for o in ledger.index.offsets(mask)}
    for node, dies in place.parts:
        npus[node] = npus.get(node, 0.0) + dies.bit_count() / 2
    total = sum(npus.values())
    if not total:
        return ()
    found = []
    for over, size in (("node", 1), ("cabinet", shape.nodes), ("supernode", shape.nodes_per_supernode)):
        members, current = Counter[int](), Counter[int]()
        for node, count in npus.items():
            members[node // size] += 1
            current[node // size] += count  # type: ignore[assignment]
        found.append(FailureImpact(over, max(members.values()), max(current.values()) / total))
    worst: dict[str, float] = {}
    of_supernode: dict[int, dict[int, float]] = {}
    for node, count in npus.items():
        of_supernode.setdefault(node // shape.nodes_per_supernode, {})[node % shape.nodes_per_supernode] = count
    for number, topology in enumerate(topologies):
        here, losses = of_supernode.get(number, {}), switch_losses(topology, shape.nodes)
        if not here:
            continue
        worst["l1"] = max(worst.get("l1", 0.0), *(count * losses.l1.get(slot, 0.0) for slot, count in here.items()))
        together = sum(here.values())
        for over, switches in losses.others.items():
            lost = [
                usual * together + sum((share - usual) * here[slot] for slot, share in others.items() if slot in here)
                for usual, others in switches
            ]
            worst[over] = max(worst.get(over, 0.0), max(lost, default=0.0))
    found += [FailureImpact(over, 0, share / total) for over, share in worst.items()]
    return tuple(found)
