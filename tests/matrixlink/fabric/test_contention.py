"""What a collective gets beside others, against the exact run of every single flow: die by die, cable by cable.

The exact run (`Timeline`) has a flow for each pair of dies, sub-plane and L2 chip, and the neighbours' beside them; its
answer is when the last byte of the collective has arrived."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from benchmarks.fabric_oracles.timeline import Timeline
from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.fabric.contention.offers import Offer
from matrixlink.fabric.contention.port_groups import PortGroups, PortShape
from matrixlink.fabric.contention.programs import PortCondition, Tenant
from matrixlink.fabric.contention.shared_ports import SharedPorts
from matrixlink.fabric.contention.stripes import stripe_weights
from matrixlink.fabric.sharing.flow import Flow
from matrixlink.routing.routing import choose_routes
from matrixresource.topology import Supernode

SHAPE = PortShape(2, 4, 2, 2, 28.0, 28.0, 25.0, 50.0)
"""Two sub-planes of four L2 chips, four dies a node."""
NAMES = ("a", "b", "c")
OWN = Tenant("own", "ub", NAMES)
NODE_GBPS = SHAPE.uplinks * SHAPE.uplink_gbps
LARGE_SIZE = 1e30


def condition(*losses) -> PortCondition:
    """("chip", p, k, share): of everybody's cables to an L2 chip; ("cables", node, share): of all of a node's; ("die",
    node, die, p, share)."""
    made = PortCondition.whole(SHAPE, NAMES)
    for kind, *where in losses:
        if kind == "chip":
            p, k, share = where
            made.share[:, p * SHAPE.chips + k] = share
        elif kind == "cables":
            node, share = where
            made.share[node, : SHAPE.uplinks] = share
        else:
            node, die, p, share = where
            made.die_share[node, die, p] = share
    return made


def contention_result(now: PortCondition, own: Tenant, neighbours: list[tuple[Tenant, float]]) -> float:
    """GB/s a die by the product: the neighbours offer so much an NPU."""
    offers = []
    for tenant, gbps in neighbours:
        programs = now.programs(tenant)
        offers.append(Offer(tenant.slice, "all-to-all", gbps, programs, list(programs)))
    ports = SharedPorts(PortGroups(SHAPE, now.share, now.die_share), NAMES, offers)
    return ports.exchange_gbps(own.slice, now.programs(own))


def exact_result(now: PortCondition, own: Tenant, neighbours: list[tuple[Tenant, float]]) -> float:
    """The same by the run of every flow."""
    links, flows = {}, []
    for node in range(len(NAMES)):
        for p in range(SHAPE.sub_planes):
            for way in ("up", "down"):
                for k in range(SHAPE.chips):
                    links[way, node, p, k] = SHAPE.uplink_gbps * now.share[node, p * SHAPE.chips + k]
                for die in range(SHAPE.dies):
                    links[way, "die", node, die, p] = SHAPE.die_gbps * now.die_share[node, die, p]
    size = 1e6
    ranks = SHAPE.dies * len(own.members)
    for path, part in all_pairs(now, own.members, True):
        share = part / (ranks - 1) / SHAPE.dies
        flows.append(Flow(path, own.weight * share, own.floor_gbps * share, size=size * part))
    count = len(flows)
    for tenant, gbps in neighbours:
        away = SHAPE.dies * (len(tenant.members) - 1)
        for path, part in all_pairs(now, tenant.members, False):
            share = part / away / SHAPE.dies
            most = gbps * SHAPE.npus * share
            flows.append(Flow(path, tenant.weight * share, min(most, tenant.floor_gbps * share), most, size=LARGE_SIZE))
    last = max(Timeline(flows, links).run().at[:count])
    return math.inf if last == math.inf else size * (ranks - 1) / float(last)


def all_pairs(now: PortCondition, members, inside: bool):
    """(links, part of the pair's bytes) of every pair of dies, sub-plane and chip."""
    rows = [NAMES.index(node) for node in members]
    cables = now.share[:, : SHAPE.uplinks].reshape(len(NAMES), SHAPE.sub_planes, -1)
    for source, target in ((s, t) for s in rows for t in rows):
        for die in range(SHAPE.dies):
            for peer in range(SHAPE.dies):
                ends = np.minimum(now.die_share[source, die], now.die_share[target, peer])
                if source == target:
                    if inside and die != peer:
                        for p in range(SHAPE.sub_planes):
                            if ends[p] > 0:
                                path = (("up", "die", source, die, p), ("down", "die", target, peer, p))
                                yield path, float(ends[p] / ends.sum())
                    continue
                _, each = stripe_weights(np.minimum(cables[source], cables[target]), ends)
                for p, k in np.argwhere(each > 0).tolist():
                    path = (
                        ("up", "die", source, die, p), ("up", source, p, k),
                        ("down", target, p, k), ("down", "die", target, peer, p),
                    )  # fmt: skip
                    yield path, float(each[p, k])


HALF = NODE_GBPS / 2 / SHAPE.npus
NEIGHBOURS = Tenant("beside", "ub", NAMES)
CASES = {
    "alone": ((), OWN, []),
    "a neighbour fills half": ((), OWN, [(NEIGHBOURS, HALF)]),
    "a neighbour fills a fifth": ((), OWN, [(NEIGHBOURS, HALF * 0.4)]),
    "a neighbour takes what it gets": ((), OWN, [(NEIGHBOURS, 1e4)]),
    "of three times the weight": ((), OWN, [(Tenant("beside", "ub", NAMES, 3.0), 1e4)]),
    "a neighbour on two of three nodes": ((), OWN, [(Tenant("beside", "ub", NAMES[:2]), HALF)]),
    "greedy on two of three nodes": ((), OWN, [(Tenant("beside", "ub", NAMES[:2]), 1e4)]),
    "a floor of most": ((), Tenant("own", "ub", NAMES, 1.0, 0.8 * NODE_GBPS), [(NEIGHBOURS, 1e4)]),
    "a smaller floor": ((), Tenant("own", "ub", NAMES, 1.0, 0.3 * NODE_GBPS), [(Tenant("x", "ub", NAMES, 4.0), 1e4)]),
    "the neighbour has the floor": ((), OWN, [(Tenant("x", "ub", NAMES, 1.0, 0.6 * NODE_GBPS), 1e4)]),
    "two neighbours": ((), OWN, [(NEIGHBOURS, HALF / 2), (Tenant("x", "ub", NAMES[1:], 2.0), HALF)]),
    "a lost L2 chip": ((("chip", 0, 2, 0.0),), OWN, []),
    "a lost L2 chip and a neighbour": ((("chip", 1, 0, 0.0),), OWN, [(NEIGHBOURS, HALF)]),
    "half of the lanes of a node": ((("cables", 1, 0.5),), OWN, []),
    "half of the lanes and a neighbour": ((("cables", 1, 0.5),), OWN, [(NEIGHBOURS, HALF / 2)]),
    "half of a chip's lanes": ((("chip", 1, 3, 0.5),), OWN, [(NEIGHBOURS, HALF)]),
    "half of a die's link": ((("die", 2, 1, 0, 0.5),), OWN, []),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_collective_gets_the_rate_of_the_exact_run(case):
    losses, own, neighbours = CASES[case]
    now = condition(*losses)
    assert contention_result(now, own, neighbours) == pytest.approx(exact_result(now, own, neighbours), rel=0.02)


def test_random_neighbours():
    rng = Random(7)
    for _ in range(12):
        losses = [("chip", rng.randrange(2), rng.randrange(4), rng.choice((0.0, 0.25, 0.5)))] * rng.randrange(2)
        own = Tenant("own", "ub", NAMES, rng.choice((1.0, 4.0)), rng.choice((0.0, 0.25)) * NODE_GBPS)
        beside = Tenant("x", "ub", NAMES, rng.choice((1.0, 4.0)), rng.choice((0.0, 0.3)) * NODE_GBPS)
        neighbours = [(beside, HALF * rng.uniform(0.1, 3.0))]
        now = condition(*losses)
        assert contention_result(now, own, neighbours) == pytest.approx(exact_result(now, own, neighbours), rel=0.02)


def test_half_remains_beside_a_neighbour_using_half_and_floors_are_kept():
    alone = contention_result(condition(), OWN, [])
    assert contention_result(condition(), OWN, [(NEIGHBOURS, HALF)]) == pytest.approx(alone / 2, rel=0.05)
    promised = Tenant("own", "ub", NAMES, 1.0, 0.8 * NODE_GBPS)
    assert contention_result(condition(), promised, [(NEIGHBOURS, 1e4)]) >= 0.8 * alone


def test_members_without_a_route_exchange_nothing():
    now = condition()
    programs = now.programs(OWN)
    programs["a"] = {**programs["a"], "peers": ["b"]}
    ports = SharedPorts(PortGroups(SHAPE, now.share, now.die_share), NAMES, [])
    assert ports.exchange_gbps("own", programs) == 0.0


@pytest.mark.parametrize(
    ("plane", "out", "endpoint"), [("ub", 28.0 * 4, 28.0), ("rdma", 100.0, 25.0), ("vpc", 50.0, 50.0)]
)
def test_available_rates_for_single_transfers(plane, out, endpoint):
    own, beside = Tenant("own", plane, NAMES), Tenant("beside", plane, NAMES)
    now = condition()
    groups = PortGroups(SHAPE, now.share, now.die_share)

    def left(gbps, tenant=own):
        programs = now.programs(beside)
        offers = [Offer("beside", "all-to-all", gbps, programs, list(programs))] if gbps else []
        return SharedPorts(groups, NAMES, offers).left("own", now.programs(tenant))["b"]

    planes = SHAPE.sub_planes if plane == "ub" else 1
    assert left(0).out_gbps == left(0).in_gbps == pytest.approx([out] * planes)
    assert left(0).endpoint_in_gbps == pytest.approx([endpoint] * planes)
    half = out * planes / 2 / SHAPE.npus
    assert left(half).out_gbps == pytest.approx([out / 2] * planes)
    assert left(half).endpoint_in_gbps == pytest.approx([endpoint / 2] * planes)
    assert left(half / 2).in_gbps == pytest.approx([out * 3 / 4] * planes)
    assert left(1e4).in_gbps == pytest.approx([out / 2] * planes), "as much as the other of the same weight"
    promised = Tenant("own", plane, NAMES, 1.0, 0.9 * out * planes)
    assert left(1e4, promised).out_gbps == pytest.approx([0.95 * out] * planes)


def test_stripes_equal_those_of_routing():
    supernode = Supernode()
    fabric = Fabric([supernode])
    nodes = tuple(supernode.nodes()[:4])
    shape = PortShape.of(supernode.spec)
    now = PortCondition.whole(shape, nodes)
    for node in nodes:
        fabric.set_ports(node, {"ub-p3-k11": 0.0})
    fabric.set_ports(nodes[1], {"ub-p3-k11": 0.0, "ub-p0-k02": 14.0, "npu5-die1-p2": 7.0})
    now.share[:, 3 * shape.chips + 11] = 0.0
    now.share[1, 2], now.die_share[1, 11, 2] = 0.5, 0.25
    chosen = choose_routes(fabric, Plane.UB, nodes).nodes
    made = now.programs(Tenant("own", "ub", nodes))
    for node in nodes:
        assert set(made[node]["detours"]) == set(chosen[node].detours)
        for name, stripes in {"": chosen[node].stripes, **chosen[node].detours}.items():
            ours = made[node]["detours"][name] if name else made[node]["stripes"]
            assert [stripe["sub_plane"] for stripe in ours] == [stripe.sub_plane for stripe in stripes]
            for stripe, theirs in zip(ours, stripes, strict=True):
                assert stripe["weight"] == pytest.approx(theirs.weight, abs=1e-8)
                assert stripe["spread"] == pytest.approx(theirs.spread, abs=1e-8)
