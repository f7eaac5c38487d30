"""Routes over the UB plane: seven sub-planes of sixteen L2 chips, all used at once.

A sender spreads its traffic to a peer over all L2 chips whose cables to both nodes work, in proportion to what those
carry, and over the sub-planes in proportion to what is left of each between the two dies. A floor is booked on every
link at the largest weight that any peer makes a member put there (the hose model). Nodes whose ports are in the same
condition are one kind, so a healthy fabric is one kind and cheap to compute, and one that lost an L2 chip is one too.

The failures a slice is protected against are tried on pairs of kinds, not on the fabric: whichever node loses a cable,
and whether a chip is lost for everybody or for one node, a pair of nodes is left with the same paths, one chip or one
sub-plane fewer. The worst of those 112 (or 7) states, link by link, is what a protected floor reserves.

A slice stays inside its supernode: members of different supernodes have no path between them on this plane.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.fabric.contention.stripes import stripe_weights
from matrixlink.model.protection import CHIP, NOTHING, SUB_PLANE, Protection
from matrixlink.routing.routes import BandwidthNeeds, Demand, NodeRoutes, Routes, Stripe, Vector

Weights = tuple[float, ...]
Chips = tuple[Weights, ...]

PAIRS_CACHED = 8192
"""Pairs of port conditions whose weights are cached, about 1.5 KB each: enough for all pairs of 48 different nodes."""
DIE_PAIRS_CACHED = 4096
"""Pairs of dies of one node, by the conditions of their ports, whose weights are cached."""


@dataclass(frozen=True)
class PortCondition:
    """The condition of a node's UB ports: the share left of each uplink, and how many dies have which shares left."""

    chips: Chips
    dies: tuple[tuple[Weights, int], ...]

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        """Cached, as it hashes some hundred numbers."""
        return hash((self.chips, self.dies))

    @classmethod
    def of(cls, fabric: Fabric, node: str) -> PortCondition:
        spec = fabric.spec
        shares = fabric.usable_rates(Plane.UB, node) / fabric.whole(Plane.UB)
        split = spec.ub.sub_planes * spec.ub.l2_per_sub_plane
        chips = map(tuple, shares[:split].reshape(spec.ub.sub_planes, -1).tolist())
        dies = Counter(map(tuple, shares[split:].reshape(-1, spec.ub.sub_planes).tolist()))
        alike: dict[Weights, Weights] = {}  # most sub-planes are whole: one tuple for all of them, as caches keep it
        return cls(tuple(alike.setdefault(each, each) for each in chips), tuple(dies.items()))


@functools.cache
def undamaged_kind(sub_planes: int, chips: int, dies: int) -> PortCondition:
    """A node that has lost nothing."""
    return PortCondition(((1.0,) * chips,) * sub_planes, (((1.0,) * sub_planes, dies),))


def kinds_of(fabric: Fabric, members: Iterable[str]) -> dict[str, PortCondition]:
    spec = fabric.spec
    whole = undamaged_kind(spec.ub.sub_planes, spec.ub.l2_per_sub_plane, spec.node.dies)
    return {node: PortCondition.of(fabric, node) if fabric.unavailable_ports(node) else whole for node in members}


def _by_supernode(fabric: Fabric, members: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in members:
        found.setdefault(fabric.supernode_name(node), []).append(node)
    return found


def _cross_supernode_pairs(groups: dict[str, list[str]]) -> list[tuple[str, str]]:
    """Members of different supernodes, which no UB path connects."""
    if len(groups) < 2:
        return []
    everybody = [(name, node) for name, nodes in groups.items() for node in nodes]
    return [(a, b) for at, (one, a) in enumerate(everybody) for other, b in everybody[at + 1 :] if one != other]


# ---- what a floor takes ---------------------------------------------------------------------------------------------


def ub_needs(fabric: Fabric, members: list[str], protection: Protection) -> BandwidthNeeds:
    """What a floor among `members` takes of each link, now and after any one failure of that level."""
    groups = _by_supernode(fabric, members)
    need: Demand = {}
    reserve: Demand = {}
    cut, cut_by_failure = _cross_supernode_pairs(groups), _cross_supernode_pairs(groups)
    for nodes in groups.values():
        kinds = kinds_of(fabric, nodes)
        count = Counter(kinds.values())
        vectors, parted = _kind_vectors(count, protection.fails, fabric.spec.npu.dies)
        # Kinds with only one sort of dies do not depend on the order of these.
        alike: dict[int, tuple[Vector, Vector]] = {}
        for node, kind in kinds.items():
            made = alike.get(id(kind)) or _with_dies(fabric, node, kind, vectors[kind])
            need[node], reserve[node] = made
            if len(kind.dies) == 1:
                alike[id(kind)] = made
        for a, b, now in parted:
            pairs = _node_pairs(kinds, a, b)
            cut += pairs if now else []
            cut_by_failure += pairs
    return BandwidthNeeds(need, reserve, tuple(sorted(cut)), tuple(sorted(cut_by_failure)))


def _node_pairs(kinds: dict[str, PortCondition], a: PortCondition, b: PortCondition) -> list[tuple[str, str]]:
    ours, theirs = ([node for node, kind in kinds.items() if kind == each] for each in (a, b))
    return sorted({(min(one, other), max(one, other)) for one in ours for other in theirs if one != other})


PerKind = tuple[Vector, dict[Weights, Vector], Vector, dict[Weights, Vector]]
"""For one kind: uplinks and each kind of die's links, as needed now; the same as reserved."""


def _kind_vectors(
    count: Counter[PortCondition], fails: str, per_npu: int
) -> tuple[dict[PortCondition, PerKind], list[tuple[PortCondition, PortCondition, bool]]]:
    """Each kind's vectors, and which kinds have no path between them (True: already now)."""
    found: dict[PortCondition, PerKind] = {}
    parted = []
    for kind in count:
        others = [other for other in count if other != kind or count[kind] > 1] or [kind]
        now = _worst_loads(kind, tuple(others), NOTHING, per_npu)
        found[kind] = (*now, *(now if fails == NOTHING else _worst_loads(kind, tuple(others), fails, per_npu)))
        for other in others:
            if _is_cut(kind, other, NOTHING):
                parted.append((kind, other, True))
            elif fails != NOTHING and _is_cut(kind, other, fails):
                parted.append((kind, other, False))
    return found, parted


@functools.lru_cache(maxsize=PAIRS_CACHED)
def _is_cut(kind: PortCondition, other: PortCondition, fails: str) -> bool:
    """Whether nodes of two kinds are cut off: by their uplinks now, or between any two dies after a failure."""
    whole = (1.0,) * len(kind.chips)
    if fails == NOTHING:
        return _pair_weights(kind.chips, whole, other.chips, whole, fails).cut
    return any(
        _pair_weights(kind.chips, die, other.chips, their, fails).cut for die, _ in kind.dies for their, _ in other.dies
    )


def _with_dies(fabric: Fabric, node: str, kind: PortCondition, vectors: PerKind) -> tuple[Vector, Vector]:
    need_up, need_die, reserve_up, reserve_die = vectors
    if len(kind.dies) == 1:
        order = [kind.dies[0][0]] * kind.dies[0][1]
    else:
        shares = fabric.usable_rates(Plane.UB, node) / fabric.whole(Plane.UB)
        order = [tuple(each) for each in shares[need_up.size :].reshape(-1, len(kind.chips)).tolist()]
    need = _joined_vector(need_up, tuple(order), tuple(need_die.items()))
    reserved = need if reserve_up is need_up else _joined_vector(reserve_up, tuple(order), tuple(reserve_die.items()))
    return need, reserved


_JOINED_VECTORS: dict[tuple[int, tuple[Weights, ...]], tuple[Vector, Vector]] = {}
JOINED_VECTORS_MAX = 4096


def _joined_vector(uplinks: Vector, order: tuple[Weights, ...], dies: tuple[tuple[Weights, Vector], ...]) -> Vector:
    """A node's complete vector, shared by nodes of a kind whose dies are in the same order."""
    key = (id(uplinks), order)
    current = _JOINED_VECTORS.get(key)
    if current is None or current[0] is not uplinks:
        if len(_JOINED_VECTORS) >= JOINED_VECTORS_MAX:
            _JOINED_VECTORS.clear()
        by_die = dict(dies)
        vector = np.concatenate([uplinks, *(by_die[die] for die in order)])
        vector.flags.writeable = False
        current = _JOINED_VECTORS[key] = (uplinks, vector)
    return current[1]


@functools.lru_cache(maxsize=1024)
def _worst_loads(
    kind: PortCondition, others: tuple[PortCondition, ...], fails: str, per_npu: int
) -> tuple[Vector, dict[Weights, Vector]]:
    """Per GB/s of floor and NPU, the maximum over all peers and failures, on each uplink and on the links of each kind
    of die. An NPU's floor is divided over its `per_npu` dies."""
    uplink = np.zeros(len(kind.chips) * len(kind.chips[0]))
    links: dict[Weights, Vector] = {}
    for die, count in kind.dies:
        most_plane, most_chip = np.zeros(len(kind.chips)), np.zeros(uplink.size)
        for other in others:
            for their_die, _ in other.dies:
                way = _pair_weights(kind.chips, die, other.chips, their_die, fails)
                most_plane, most_chip = np.maximum(most_plane, way.planes), np.maximum(most_chip, way.chips)
        for their_die, _ in kind.dies:  # inside the node: die to die over the L1 switches, without uplinks
            most_plane = np.maximum(most_plane, _intra_node_weights(die, their_die, fails))
        links[die] = most_plane / per_npu
        uplink = uplink + count / per_npu * most_chip
    uplink.flags.writeable = False
    return uplink, links


@dataclass(frozen=True, slots=True, eq=False)
class UbPairWeights:
    """Between two dies: the weight of each sub-plane and of each L2 chip, and whether nothing is left. With a failure,
    the largest weights over all states, including the undamaged one."""

    planes: Vector
    chips: Vector
    cut: bool


@functools.lru_cache(maxsize=PAIRS_CACHED)
def _pair_weights(chips_a: Chips, die_a: Weights, chips_b: Chips, die_b: Weights, fails: str) -> UbPairWeights:
    if not chips_a[0]:  # the plane ends at the node: there is no capacity, and none to lose
        return UbPairWeights(np.zeros(len(chips_a)), np.zeros(0), cut=False)
    planes, chips = pair_states(chips_a, die_a, chips_b, die_b, fails)
    cut = bool((planes.sum(axis=1) <= 0).any())
    return UbPairWeights(planes.max(axis=0), chips.max(axis=0).ravel(), cut)


def pair_states(chips_a: Chips, die_a: Weights, chips_b: Chips, die_b: Weights, fails: str) -> tuple[Vector, Vector]:
    """Between two dies, the weight of each sub-plane (states x sub-planes) and L2 chip (states x sub-planes x chips):
    first in the undamaged state, then with one part less."""
    left = np.minimum(np.array(chips_a), np.array(chips_b))
    ends = np.minimum(np.array(die_a), np.array(die_b))
    chips, dies = _failure_states(fails, left.shape[0], left.shape[1])
    return stripe_weights(left * chips, ends * dies)


@functools.lru_cache(maxsize=DIE_PAIRS_CACHED)
def _intra_node_weights(die_a: Weights, die_b: Weights, fails: str) -> Vector:
    ends = np.minimum(np.array(die_a), np.array(die_b))
    _, dies = _failure_states(fails, len(die_a), 1)
    planes = ends * dies
    total = planes.sum(axis=1)
    weights: Vector = (planes / np.where(total > 0, total, 1)[:, None]).max(axis=0)
    return weights


@functools.cache
def _failure_states(fails: str, planes: int, chips: int) -> tuple[Vector, Vector]:
    """What is left of chips (states x sub-planes x chips) and of die links (states x sub-planes) in each state:
    undamaged, and with one part less."""
    count = {NOTHING: 0, CHIP: planes * chips, SUB_PLANE: planes}[fails]
    of_chips, of_dies = np.ones((count + 1, planes, chips)), np.ones((count + 1, planes))
    for at in range(count):
        if fails == CHIP:
            of_chips[at + 1, at // chips, at % chips] = 0
        else:
            of_chips[at + 1, at], of_dies[at + 1, at] = 0, 0
    return of_chips, of_dies


# ---- who sends over what --------------------------------------------------------------------------------------------


def choose_ub(fabric: Fabric, members: list[str]) -> Routes:
    """Every member's stripes, with detours for peers and dies that have lost ports."""
    routes: dict[str, NodeRoutes] = {}
    groups = _by_supernode(fabric, members)
    cut = set(_cross_supernode_pairs(groups))
    for nodes in groups.values():
        cut |= _choose_within(fabric, nodes, routes)
    return Routes(Plane.UB, {node: routes[node] for node in members}, tuple(sorted(cut)))


def _choose_within(fabric: Fabric, members: list[str], routes: dict[str, NodeRoutes]) -> set[tuple[str, str]]:
    spec = fabric.spec
    whole = undamaged_kind(spec.ub.sub_planes, spec.ub.l2_per_sub_plane, spec.node.dies)
    whole_die = whole.dies[0][0]
    condition = kinds_of(fabric, members)

    def towards(mine: PortCondition, die: Weights, peer: PortCondition) -> tuple[Stripe, ...]:
        return _stripes(mine.chips, die, peer.chips, whole_die)

    impaired = {node: kind for node, kind in condition.items() if kind != whole}
    impaired_dies = {node: _impaired_dies(fabric, node) for node, kind in impaired.items() if kind.dies != whole.dies}
    cut = set()
    for node, mine in condition.items():
        base = towards(mine, whole_die, whole)
        detours = {die: towards(mine, shares, whole) for die, shares in impaired_dies.get(node, {}).items()}
        for peer, kind in impaired.items():
            stripes = towards(mine, whole_die, kind)
            if peer != node and stripes != base:
                detours[peer] = stripes
                if not stripes:
                    cut.add((min(node, peer), max(node, peer)))
        for peer, dies in impaired_dies.items():
            if peer != node:
                detours |= {f"{peer}-{die}": towards(mine, shares, condition[peer]) for die, shares in dies.items()}
        routes[node] = NodeRoutes(base, detours)
    return cut


@functools.lru_cache(maxsize=PAIRS_CACHED)
def _stripes(chips_a: Chips, die_a: Weights, chips_b: Chips, die_b: Weights) -> tuple[Stripe, ...]:
    way = _pair_weights(chips_a, die_a, chips_b, die_b, NOTHING)
    found = []
    for p, weight in enumerate(way.planes.tolist()):
        if weight > 0:
            chips = way.chips.reshape(len(chips_a), -1)[p]
            even = chips.min() == chips.max()
            spread = () if even else tuple(round(float(share), 9) for share in chips / chips.sum())
            found.append(Stripe(p, round(weight, 9), spread))
    return tuple(found)


def _impaired_dies(fabric: Fabric, node: str) -> dict[str, Weights]:
    """The dies of a node that have lost ports, with what each has left per sub-plane."""
    links = len(fabric.ports.die_links)
    shares = (fabric.usable_rates(Plane.UB, node) / fabric.whole(Plane.UB))[-links:].reshape(len(fabric.ports.dies), -1)
    impaired = np.flatnonzero(shares.min(axis=1) < 1)
    return {fabric.ports.dies[at]: tuple(shares[at].tolist()) for at in impaired}
