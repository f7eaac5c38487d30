"""Routes over the RDMA plane: two die ports per NPU, each in its own subnet, with leaves and spines.

The two dies of an NPU share what its ports have. A pair of NPUs uses both subnets in proportion to what both ends have
left in each, and goes over the spines from one subnet to the other if they have none in common. Inside a cabinet a
subnet's leaf is enough; between cabinets, and between supernodes as far as the topology has switches, traffic is spread
evenly over the spines that both leaves reach, and uses the trunks of both.

Floors are booked by the hose model: each die port at the maximum that any peer can make it carry, each trunk at the sum
of what its cabinet's members may put on it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.model.protection import NOTHING, PORT, SUBNET, Protection
from matrixlink.routing.routes import BandwidthNeeds, Demand, NodeRoutes, Routes, Stripe, Vector

PAIRS_CACHED = 8192
"""Pairs of port conditions whose weights are cached: enough for all pairs of 48 different nodes."""
NODES_CACHED = 4096
"""Conditions of one node for which its part of a result is cached."""

Shares = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TrunkState:
    """The connection between two cabinets: by subnet, the share of the trunks' rate that both leaves have, and the part
    of it on each spine. A cabinet reaches itself fully without any trunk."""

    trunks: Shares
    spines: tuple[Shares, ...]
    same: bool = False


@dataclass(frozen=True, slots=True)
class RdmaPairWeights:
    """From one NPU to another: the weight of each die port, and whether traffic goes over the spines."""

    weights: Shares
    over_spines: bool


class RdmaPortState:
    """The ports and trunks of some members in their present condition."""

    def __init__(self, fabric: Fabric, members: list[str]) -> None:
        self.fabric = fabric
        self.members = members
        self.dies = fabric.spec.npu.dies
        whole = ((1.0,) * self.dies,) * fabric.spec.node.npus
        self.npus = {node: self._ports(node) if fabric.unavailable_ports(node) else whole for node in members}
        self.cabinets: dict[str, list[str]] = {}
        for node in members:
            self.cabinets.setdefault(fabric.cabinet_of(node), []).append(node)
        self.leaves = {cabinet: fabric.leaves_at(nodes[0]) for cabinet, nodes in self.cabinets.items()}
        """By cabinet, one per subnet."""
        self.kinds: dict[str, list[Shares]] = {
            cabinet: sorted({shares for node in nodes for shares in self.npus[node]})
            for cabinet, nodes in self.cabinets.items()
        }
        self._between: dict[tuple[str, str], TrunkState] = {}

    def _ports(self, node: str) -> tuple[Shares, ...]:
        shares = self.fabric.usable_rates(Plane.RDMA, node) / self.fabric.whole(Plane.RDMA)
        return tuple(map(tuple, shares.reshape(-1, self.dies).tolist()))

    def between(self, ours: str, theirs: str) -> TrunkState:
        found = self._between.get((ours, theirs))
        if found is None:
            found = self._between[ours, theirs] = self._look(ours, theirs)
        return found

    def _look(self, ours: str, theirs: str) -> TrunkState:
        count = self.fabric.spec.rdma.spines
        if ours == theirs:
            return _undamaged_trunks(self.dies, count, True)
        leaves = list(zip(self.leaves[ours], self.leaves[theirs], strict=False))
        if not any(self.fabric.unavailable_ports(each) for pair in leaves for each in pair):
            return _undamaged_trunks(self.dies, count, False)
        trunks, spines = [], []
        for a, b in leaves:
            left = np.minimum(self.fabric.usable_rates(Plane.RDMA, a), self.fabric.usable_rates(Plane.RDMA, b))
            left = left / self.fabric.whole(Plane.RDMA, of_leaf=True)
            trunks.append(float(left.mean()))
            spines.append(tuple((left / left.sum()).tolist()) if left.any() else (0.0,) * count)
        return TrunkState(tuple(trunks), tuple(spines))

    def peers(self, cabinet: str) -> Iterator[tuple[Shares, TrunkState]]:
        """Every kind of NPU that one in this cabinet may send to, and the connection to it."""
        for theirs, kinds in self.kinds.items():
            for shares in kinds:
                yield shares, self.between(cabinet, theirs)


@functools.cache
def _undamaged_trunks(subnets: int, spines: int, same: bool) -> TrunkState:
    return TrunkState((1.0,) * subnets, ((1 / spines,) * spines,) * subnets, same)


@functools.lru_cache(maxsize=PAIRS_CACHED)
def pair_weights(mine: Shares, theirs: Shares, between: TrunkState) -> RdmaPairWeights | None:
    """The weight of each die port, by what both ends and the trunks have in its subnet; over the spines into the other
    subnet if they share none; None if there is no path."""
    common = [min(a, b, t) for a, b, t in zip(mine, theirs, between.trunks, strict=True)]
    if total := sum(common):
        return RdmaPairWeights(tuple(share / total for share in common), not between.same)
    common = [min(a, t) for a, t in zip(mine, between.trunks, strict=True)]
    arrives = [min(b, t) for b, t in zip(theirs, between.trunks, strict=True)]
    total = sum(common) if any(arrives) else 0.0
    return RdmaPairWeights(tuple(share / total for share in common), True) if total else None


@functools.cache
def failure_states(fails: str, subnets: int) -> tuple[Shares, ...]:
    """What a failure leaves of a pair's subnets, in each state, the undamaged one first."""
    whole = (1.0,) * subnets
    if fails == NOTHING:
        return (whole,)
    return (whole, *(tuple(float(d != gone) for d in range(subnets)) for gone in range(subnets)))


# ---- what a floor takes ---------------------------------------------------------------------------------------------


def rdma_needs(fabric: Fabric, members: list[str], protection: Protection) -> BandwidthNeeds:
    """What a floor among `members` takes of each die port and trunk, now and after any one failure of that level."""
    survey = RdmaPortState(fabric, members)
    need, cut = _demand_with(survey, NOTHING)
    if protection.fails == NOTHING:
        return BandwidthNeeds(need, need, cut, cut)
    reserve, cut_by_failure = _demand_with(survey, protection.fails)
    return BandwidthNeeds(need, reserve, cut, cut_by_failure)


def _demand_with(survey: RdmaPortState, fails: str) -> tuple[Demand, tuple[tuple[str, str], ...]]:
    demand: Demand = {}
    cut: list[tuple[str, str]] = []
    for cabinet, nodes in survey.cabinets.items():
        most = {kind: _worst_load(survey, cabinet, kind, fails) for kind in survey.kinds[cabinet]}
        normal = most if fails != PORT else {kind: _worst_load(survey, cabinet, kind, NOTHING) for kind in most}
        trunks = np.zeros((survey.dies, survey.fabric.spec.rdma.spines))
        extra = np.zeros_like(trunks)
        for node in nodes:
            npus = survey.npus[node]
            demand[node] = _node_vector(tuple(most[npu].ports for npu in npus))
            for at, npu in enumerate(npus):
                trunks += normal[npu].trunks
                extra = np.maximum(extra, most[npu].trunks - normal[npu].trunks)
                cut += [(f"{node}-npu{at}", "*")] if most[npu].cut else []
        for leaf, vector in zip(survey.leaves[cabinet], trunks + extra, strict=False):
            if vector.any():  # the ports of a cabinet fail one at a time
                vector.flags.writeable = False
                demand[leaf] = vector
    return demand, tuple(cut)


@dataclass(frozen=True, slots=True, eq=False)
class WorstLoad:
    """The maximum that one NPU may have to carry per GB/s of floor, on each die port and on each trunk of its
    leaves."""

    ports: Shares
    trunks: Vector
    cut: bool


def _worst_load(survey: RdmaPortState, cabinet: str, kind: Shares, fails: str) -> WorstLoad:
    return _cached_worst_load(kind, tuple(dict.fromkeys(survey.peers(cabinet))), fails, survey.fabric.spec.rdma.spines)


@functools.lru_cache(maxsize=NODES_CACHED)
def _cached_worst_load(
    kind: Shares, peers: tuple[tuple[Shares, TrunkState], ...], fails: str, spines: int
) -> WorstLoad:
    ports, trunks, cut = np.zeros(len(kind)), np.zeros((len(kind), spines)), not any(kind)
    for shares, between in peers:
        for left in failure_states(fails, len(kind)):
            if fails == SUBNET:
                between_now = TrunkState(subtract_shares(between.trunks, left), between.spines, between.same)
            else:
                between_now = between
            mine, theirs = (
                (subtract_shares(kind, left), subtract_shares(shares, left)) if fails != NOTHING else (kind, shares)
            )
            found = pair_weights(mine, theirs, between_now)
            if found is None:
                cut = cut or (any(kind) and any(shares))
                continue
            ports = np.maximum(ports, found.weights)
            if found.over_spines:
                trunks = np.maximum(trunks, np.array(found.weights)[:, None] * np.array(between.spines))
    return WorstLoad(tuple(ports.tolist()), trunks, cut)


def subtract_shares(shares: Shares, left: Shares) -> Shares:
    return tuple(min(a, b) for a, b in zip(shares, left, strict=True))


@functools.lru_cache(maxsize=NODES_CACHED)
def _node_vector(npus: tuple[Shares, ...]) -> Vector:
    vector = np.array([share for npu in npus for share in npu])
    vector.flags.writeable = False
    return vector


# ---- who sends over what --------------------------------------------------------------------------------------------


def choose_rdma(fabric: Fabric, members: list[str]) -> Routes:
    """Every member's stripes; detours for own NPUs, peers' NPUs and peers' cabinets that have lost ports or trunks."""
    survey = RdmaPortState(fabric, members)
    whole = (1.0,) * survey.dies
    even = _stripes(
        RdmaPairWeights(tuple(1 / survey.dies for _ in whole), False), _undamaged_trunks(survey.dies, 1, True)
    )
    impaired = {
        node: [(at, npu) for at, npu in enumerate(npus) if min(npu) < 1]
        for node, npus in survey.npus.items()
        if any(min(npu) < 1 for npu in npus)
    }
    routes, cut = {}, []
    for cabinet, nodes in survey.cabinets.items():
        around = {other: survey.between(cabinet, other) for other in survey.cabinets}
        far = {other: each for other, each in around.items() if min(each.trunks) < 1}
        for node in nodes:
            detours: dict[str, tuple[Stripe, ...]] = {}
            for at, npu in impaired.get(node, ()):
                detours[f"npu{at}"] = _stripes(pair_weights(npu, whole, around[cabinet]), around[cabinet])
                if not any(npu):
                    cut.append((f"{node}-npu{at}", "*"))
            for other, between in far.items():
                stripes = _stripes(pair_weights(whole, whole, between), between)
                for peer in survey.cabinets[other]:
                    detours[peer] = stripes
                    if not stripes:
                        cut.append((min(node, peer), max(node, peer)))
            for peer, npus in impaired.items():
                between = around[fabric.cabinet_of(peer)]
                for at, npu in npus if peer != node else ():
                    detours[f"{peer}-npu{at}"] = _stripes(pair_weights(whole, npu, between), between)
            routes[node] = NodeRoutes(even, detours)
    return Routes(Plane.RDMA, {node: routes[node] for node in members}, tuple(sorted(set(cut))))


def _stripes(way: RdmaPairWeights | None, between: TrunkState) -> tuple[Stripe, ...]:
    found = []
    for d, weight in enumerate(way.weights if way else ()):
        spread = between.spines[d]
        even = min(spread) == max(spread)
        if weight:
            found.append(Stripe(d, round(weight, 9), () if even else tuple(round(s, 9) for s in spread)))
    return tuple(found)
