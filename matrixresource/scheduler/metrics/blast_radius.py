"""What one failure would take of a placement: members, and the share of its bandwidth on the UB plane.

Nodes, cabinets and supernodes take the members that lie there. Switches take no member but bandwidth of many: an L1
switch a part of one node's, an L2 switch or a communication cabinet a part of every node's in its supernode. How large
these parts are is read off the supernode's graph, as agents found it (`SwitchLosses`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from matrixresource.scheduler.model.request import Placement
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.topology.compiled import CompiledTopology, frame_of


@dataclass(frozen=True)
class FailureImpact:
    """The worst that the loss of one `over` (node, cabinet, supernode, l1, l2, communication-cabinet) takes.

    `members` are the members lost whole; `ub_share` (0 to 1) is of the UB bandwidth of all members, by their NPUs.
    """

    over: str
    members: int
    ub_share: float


@dataclass(frozen=True, eq=False)
class SwitchLosses:
    """What the loss of a switch takes of a node's UB bandwidth, as shares, by the node's number in its supernode.

    `l1`: of each node, with the worst of its own. `others`: by kind, for each L2 switch or communication cabinet, what
    most nodes lose, and those that lose something else.
    """

    l1: dict[int, float]
    others: dict[str, list[tuple[float, dict[int, float]]]]


@cache
def switch_losses(topology: CompiledTopology, nodes: int) -> SwitchLosses:
    """Compiled from a supernode's graph; alike supernodes share them. `nodes` to a cabinet, as they are counted."""
    slots = {node: cabinet * nodes + place for node, (cabinet, place) in frame_of(topology.spec).node_slots.items()}
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
    """For each kind of failure, the worst one. Spares, sockets and memory do not count. `topologies`: the graphs of the
    supernodes, in their order; of switches nothing is said without."""
    shape = ledger.shape
    npus = {c * shape.nodes + o: float(shape.npus) for c, mask in place.whole for o in ledger.index.offsets(mask)}
    for node, dies in place.parts:
        npus[node] = npus.get(node, 0.0) + dies.bit_count() / 2
    total = sum(npus.values())
    if not total:
        return ()
    found = []
    for over, size in (("node", 1), ("cabinet", shape.nodes), ("supernode", shape.of_supernode)):
        members, current = Counter[int](), Counter[int]()
        for node, count in npus.items():
            members[node // size] += 1
            current[node // size] += count  # type: ignore[assignment]
        found.append(FailureImpact(over, max(members.values()), max(current.values()) / total))
    worst: dict[str, float] = {}
    of_supernode: dict[int, dict[int, float]] = {}
    for node, count in npus.items():
        of_supernode.setdefault(node // shape.of_supernode, {})[node % shape.of_supernode] = count
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
