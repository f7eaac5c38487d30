"""choose_routes: over which sub-planes, L2 chips and ports a slice's traffic goes, and what a floor takes of each link.

A slice has no fixed flows: any member may send to any other, up to its floor in all (the hose model). So a route is a
set of weights: a sender spreads what it has for a peer over all paths that both ends have left, in proportion to what
those paths carry. In the UB plane that means all healthy sub-planes and all L2 chips whose cables to both nodes are
whole; in the RDMA plane both die ports of an NPU, each to its own subnet; in the VPC plane the one card.

A floor is then booked on every link at the most it can be asked to carry: the sender's whole floor times the largest
weight that any peer makes it put there. Sums of such bookings within capacity keep every floor whatever the traffic.
Nodes whose ports are in the same condition are one class, so that a healthy fabric is one class and costs nothing.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from matrixlink.fabric.link import Fabric
from matrixresource.vocabulary.planes import Plane

Weights = tuple[float, ...]
Chips = tuple[Weights, ...]


@dataclass(frozen=True, slots=True)
class Stripe:
    """What goes over one sub-plane: `weight` of all traffic; `spread` over its paths, empty when even over all."""

    sub_plane: int
    weight: float
    spread: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRoutes:
    """One node's routes: `stripes` for peers in order, `detours` for the peers or own endpoints that are not."""

    stripes: tuple[Stripe, ...]
    detours: dict[str, tuple[Stripe, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Routes:
    """Everybody's routes on one plane, what one GB/s of floor per NPU takes of each link, and who cannot be reached."""

    plane: Plane
    nodes: dict[str, NodeRoutes]
    need: dict[str, float]
    cut: tuple[tuple[str, str], ...] = ()


def choose_routes(fabric: Fabric, plane: Plane, members: Iterable[str]) -> Routes:
    """Routes among `members` over what is healthy now. `need` is per GB/s of floor and NPU."""
    return _CHOOSERS[plane](fabric, list(members))


# ---- UB: seven sub-planes of sixteen L2 chips -----------------------------------------------------------------------


@dataclass(frozen=True)
class _UbNode:
    """The condition of a node's UB ports: shares left of each uplink, and how many dies have which shares left."""

    chips: Chips
    dies: tuple[tuple[Weights, int], ...]

    @classmethod
    def of(cls, fabric: Fabric, node: str) -> _UbNode:
        ub, spec = fabric.spec.ub, fabric.spec
        planes = range(ub.sub_planes)
        chips = tuple(
            tuple(fabric.share(node, f"ub-p{p}-k{k:02d}") for k in range(ub.l2_per_sub_plane)) for p in planes
        )
        dies = Counter(
            tuple(fabric.share(node, f"npu{n}-die{d}-p{p}") for p in planes)
            for n in range(spec.node.npus)
            for d in range(spec.npu.dies)
        )
        return cls(chips, tuple(dies.items()))


def _ub_weights(chips_a: Chips, die_a: Weights, chips_b: Chips, die_b: Weights) -> tuple[Weights, Chips] | None:
    """The weight of each sub-plane between two dies, and the spread over chips in it; None when nothing is left."""
    left = [tuple(map(min, a, b)) for a, b in zip(chips_a, chips_b, strict=True)]
    planes = [min(sum(chips) / len(chips), a, b) for chips, a, b in zip(left, die_a, die_b, strict=True)]
    total = sum(planes)
    if total <= 0:
        return None
    spread = tuple(
        tuple(share / sum(chips) for share in chips) if sum(chips) else tuple(0.0 for _ in chips) for chips in left
    )
    return tuple(plane / total for plane in planes), spread


def _ub_stripes(weights: Weights, spread: Chips) -> tuple[Stripe, ...]:
    return tuple(
        Stripe(p, round(weight, 9), () if min(chips) == max(chips) else tuple(round(s, 9) for s in chips))
        for p, (weight, chips) in enumerate(zip(weights, spread, strict=True))
        if weight > 0
    )


def _choose_ub(fabric: Fabric, members: list[str]) -> Routes:
    spec = fabric.spec
    whole_die: Weights = (1.0,) * spec.ub.sub_planes
    whole_chips: Chips = ((1.0,) * spec.ub.l2_per_sub_plane,) * spec.ub.sub_planes
    whole = _UbNode(whole_chips, ((whole_die, spec.node.dies),))
    condition = {n: _UbNode.of(fabric, n) if fabric.below(n) else whole for n in members}
    peers = Counter(condition.values())
    need: dict[str, float] = {}
    for kind, count in peers.items():
        others = [other for other in peers if other != kind or count > 1] or [kind]
        per_chip, per_die = _ub_need(kind, others)
        for node in (n for n in members if condition[n] == kind):
            need |= _ub_links(fabric, node, per_chip, per_die, spec.npu.dies)

    @functools.cache
    def towards(mine: _UbNode, die: Weights, peer: _UbNode) -> tuple[Stripe, ...]:
        found = _ub_weights(mine.chips, die, peer.chips, whole_die)
        return _ub_stripes(*found) if found else ()

    hurt = {node: kind for node, kind in condition.items() if kind != whole}
    hurt_dies = {node: _hurt_dies(fabric, node) for node, kind in hurt.items() if kind.dies != whole.dies}
    routes, cut = {}, set()
    for node, mine in condition.items():
        base = towards(mine, whole_die, whole)
        detours = {die: towards(mine, shares, whole) for die, shares in hurt_dies.get(node, {}).items()}
        for peer, kind in hurt.items():
            stripes = towards(mine, whole_die, kind)
            if peer != node and stripes != base:
                detours[peer] = stripes
                if not stripes:
                    cut.add((min(node, peer), max(node, peer)))
        for peer, dies in hurt_dies.items():
            if peer != node:
                detours |= {f"{peer}-{die}": towards(mine, shares, condition[peer]) for die, shares in dies.items()}
        routes[node] = NodeRoutes(base, detours)
    return Routes(Plane.UB, routes, need, tuple(sorted(cut)))


def _hurt_dies(fabric: Fabric, node: str) -> dict[str, Weights]:
    """The dies of a node that have lost ports, with what each has left per sub-plane."""
    spec, found = fabric.spec, {}
    for npu in range(spec.node.npus):
        for die in range(spec.npu.dies):
            shares = tuple(fabric.share(node, f"npu{npu}-die{die}-p{p}") for p in range(spec.ub.sub_planes))
            if min(shares) < 1:
                found[f"npu{npu}-die{die}"] = shares
    return found


def _ub_need(kind: _UbNode, others: list[_UbNode]) -> tuple[Callable[[int, int], float], dict[Weights, Weights]]:
    """Per GB/s of floor and NPU: what a node of this kind may put on each uplink, and each kind of die on its links."""
    sub_planes, chips = len(kind.chips), len(kind.chips[0])
    uplink = [[0.0] * chips for _ in range(sub_planes)]
    per_die: dict[Weights, Weights] = {}
    for die, count in kind.dies:
        most_plane, most_chip = [0.0] * sub_planes, [[0.0] * chips for _ in range(sub_planes)]
        for other in others:
            for their_die, _ in other.dies:
                found = _ub_weights(kind.chips, die, other.chips, their_die)
                if found is None:
                    continue
                for p, (weight, spread) in enumerate(zip(*found, strict=True)):
                    most_plane[p] = max(most_plane[p], weight)
                    most_chip[p] = [max(m, weight * s) for m, s in zip(most_chip[p], spread, strict=True)]
        for their_die, _ in kind.dies:  # inside the node: die to die over the L1 switches, no uplink
            inside = [min(a, b) for a, b in zip(die, their_die, strict=True)]
            if total := sum(inside):
                most_plane = [max(m, share / total) for m, share in zip(most_plane, inside, strict=True)]
        per_die[die] = tuple(most_plane)
        for p in range(sub_planes):
            uplink[p] = [u + count / 2 * m for u, m in zip(uplink[p], most_chip[p], strict=True)]
    return (lambda p, k: uplink[p][k]), per_die


def _ub_links(
    fabric: Fabric, node: str, per_chip: Callable[[int, int], float], per_die: dict[Weights, Weights], dies: int
) -> dict[str, float]:
    spec, need = fabric.spec, {}
    planes = range(spec.ub.sub_planes)
    for p in planes:
        for k in range(spec.ub.l2_per_sub_plane):
            need[f"{node}.ub-p{p}-k{k:02d}"] = per_chip(p, k)
    only = next(iter(per_die.values())) if len(per_die) == 1 else None
    for npu in range(spec.node.npus):
        for die in range(dies):
            most = only or per_die[tuple(fabric.share(node, f"npu{npu}-die{die}-p{p}") for p in planes)]
            for p in planes:
                need[f"{node}.npu{npu}-die{die}-p{p}"] = most[p] / dies
    return need


# ---- RDMA: two die ports per NPU, leaves and spines -----------------------------------------------------------------


def _choose_rdma(fabric: Fabric, members: list[str]) -> Routes:
    spec = fabric.spec
    ports = {
        node: [
            tuple(fabric.share(node, f"rdma-npu{npu}-die{die}") for die in range(spec.npu.dies))
            for npu in range(spec.node.npus)
        ]
        for node in members
    }
    kinds = sorted({shares for each in ports.values() for shares in each})
    trunks: dict[str, float] = {}
    need: dict[str, float] = {}
    routes, cut = {}, []
    for node in members:
        cabinet, detours = node.rpartition("-")[0], {}
        for npu, mine in enumerate(ports[node]):
            ways = [_rdma_weights(mine, theirs) for theirs in kinds]
            found = [way for way in ways if way]
            for die in range(spec.npu.dies):
                most = max((way[die] for way in found), default=0.0)
                need[f"{node}.rdma-npu{npu}-die{die}"] = most
                for spine in range(spec.rdma.spines):
                    trunk = f"{cabinet}-leaf{die}.spine{spine}"
                    trunks[trunk] = trunks.get(trunk, 0.0) + most / spec.rdma.spines
            if not any(mine):
                cut.append((f"{node}-npu{npu}", "*"))
            if min(mine) < 1:
                own = _rdma_weights(mine, (1.0,) * len(mine)) or (0.0,) * len(mine)
                detours[f"npu{npu}"] = tuple(Stripe(d, round(w, 9)) for d, w in enumerate(own) if w)
        for peer in members:
            for npu, theirs in enumerate(ports[peer]) if peer != node else ():
                if min(theirs) < 1:
                    way = _rdma_weights((1.0,) * len(theirs), theirs) or (0.0,) * len(theirs)
                    detours[f"{peer}-npu{npu}"] = tuple(Stripe(d, round(w, 9)) for d, w in enumerate(way) if w)
        even = tuple(Stripe(die, round(1 / spec.npu.dies, 9)) for die in range(spec.npu.dies))
        routes[node] = NodeRoutes(even, detours)
    return Routes(Plane.RDMA, routes, need | trunks, tuple(cut))


def _rdma_weights(mine: Weights, theirs: Weights) -> Weights | None:
    """Each die port's part: by what both ends have in its subnet; over the spines when they share no subnet."""
    common = [min(a, b) for a, b in zip(mine, theirs, strict=True)]
    if not any(common):
        common = list(mine) if any(theirs) else []
    total = sum(common)
    return tuple(share / total for share in common) if total else None


# ---- VPC: one card per node -----------------------------------------------------------------------------------------


def _choose_vpc(fabric: Fabric, members: list[str]) -> Routes:
    need = {f"{node}.vpc": float(fabric.spec.node.npus) for node in members}
    cut = tuple((node, "*") for node in members if fabric.rate(node, "vpc") <= 0)
    routes = {node: NodeRoutes((Stripe(0, 1.0),)) for node in members}
    return Routes(Plane.VPC, routes, need, cut)


_CHOOSERS: dict[Plane, Callable[[Fabric, list[str]], Routes]] = {
    Plane.UB: _choose_ub,
    Plane.RDMA: _choose_rdma,
    Plane.VPC: _choose_vpc,
}


def uplinks(fabric: Fabric, plane: Plane, node: str) -> list[list[str]]:
    """The links by which a node leaves itself on a plane, sub-plane by sub-plane."""
    ub, spec = fabric.spec.ub, fabric.spec
    if plane == Plane.UB:
        return [[f"{node}.ub-p{p}-k{k:02d}" for k in range(ub.l2_per_sub_plane)] for p in range(ub.sub_planes)]
    if plane == Plane.RDMA:
        return [[f"{node}.rdma-npu{n}-die{d}" for n in range(spec.node.npus) for d in range(spec.npu.dies)]]
    return [[f"{node}.vpc"]]


def slowest_endpoint(fabric: Fabric, plane: Plane, node: str) -> list[float]:
    """What the endpoint with the least left has on each sub-plane, GB/s. On RDMA the two dies of an NPU share whatever
    its ports have left: a die whose own port is down goes out by the other's."""
    spec = fabric.spec
    if plane == Plane.VPC:
        return [fabric.rate(node, "vpc")]
    dies = [f"npu{n}-die{d}" for n in range(spec.node.npus) for d in range(spec.npu.dies)]
    if plane == Plane.RDMA:
        ports = [
            [fabric.rate(node, f"rdma-npu{n}-die{d}") for d in range(spec.npu.dies)] for n in range(spec.node.npus)
        ]
        return [min(sum(rates) / len(rates) for rates in ports)]
    if not fabric.below(node):
        return [spec.die.ub_link_gbps] * spec.ub.sub_planes
    return min(([fabric.rate(node, f"{die}-p{p}") for p in range(spec.ub.sub_planes)] for die in dies), key=sum)
