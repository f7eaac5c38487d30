"""Routes spread over everything both ends have left; the floors booked for them cover whatever the traffic does."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.routing.routing import choose_needs, choose_routes
from matrixresource.topology import Supernode

NODES = ["sn0-c00-n0", "sn0-c00-n1", "sn0-c05-n2", "sn0-c11-n3"]
UPLINKS = [f"ub-p{p}-k{k:02d}" for p in range(7) for k in range(16)]


@pytest.fixture
def fabric():
    return Fabric([Supernode()])


def need_of(fabric, plane, members=NODES):
    """What its members need of each link, by its name."""
    return {
        link: float(amount)
        for owner, vector in choose_needs(fabric, plane, members).need.items()
        for link, amount in zip(fabric.link_names(plane, owner), vector, strict=True)
    }


def weights(routes, node, peer=None):
    """Weight of each (sub-plane, chip) of the traffic from a node to a peer."""
    current = routes.nodes[node]
    stripes = current.detours.get(peer, current.stripes)
    return {(s.sub_plane, k): s.weight * share for s in stripes for k, share in enumerate(s.spread or [1 / 16] * 16)}


def test_a_healthy_plane_is_striped_evenly(fabric):
    routes = choose_routes(fabric, Plane.UB, fabric.nodes())
    assert weights(routes, NODES[0]) == pytest.approx(dict.fromkeys(itertools.product(range(7), range(16)), 1 / 112))
    assert all(not each.detours for each in routes.nodes.values())
    assert routes.cut == ()


def test_a_lost_cable_is_avoided_only_by_and_towards_its_node(fabric):
    fabric.set_ports(NODES[0], {"ub-p3-k11": 0.0})
    routes = choose_routes(fabric, Plane.UB, NODES)
    own, towards, among = (
        weights(routes, NODES[0]), weights(routes, NODES[1], NODES[0]), weights(routes, NODES[1], NODES[2])
    )  # fmt: skip
    assert own[3, 11] == towards[3, 11] == 0
    assert own[0, 0] == pytest.approx(1 / 111)
    assert among[3, 11] == pytest.approx(1 / 112)


def test_a_link_with_half_its_lanes_gets_half_the_weight(fabric):
    fabric.set_ports(NODES[0], {"ub-p3-k11": 14.0})
    own = weights(choose_routes(fabric, Plane.UB, NODES), NODES[0])
    assert own[3, 11] == pytest.approx(0.5 / 111.5)
    assert own[3, 10] == pytest.approx(1 / 111.5)


def test_a_lost_l2_chip_costs_exactly_its_share(fabric):
    for node in NODES:
        fabric.set_ports(node, {"ub-p3-k11": 0.0})
    routes = choose_routes(fabric, Plane.UB, NODES)
    assert max(need_of(fabric, Plane.UB)[f"{node}.{port}"] for node in NODES for port in UPLINKS) == pytest.approx(
        8 / 111
    )
    assert all(not each.detours for each in routes.nodes.values())


def test_a_lost_l1_chip_leaves_six_sub_planes(fabric):
    fabric.set_ports(
        NODES[0], {port: 0.0 for port in fabric.built if port.startswith("ub-p3-") or port.endswith("-p3")}
    )
    routes = choose_routes(fabric, Plane.UB, NODES)
    assert {s.sub_plane for s in routes.nodes[NODES[0]].stripes} == {0, 1, 2, 4, 5, 6}
    assert need_of(fabric, Plane.UB)[f"{NODES[0]}.ub-p0-k00"] == pytest.approx(8 / 96)


def test_a_node_without_any_uplink_is_cut_off(fabric):
    fabric.set_ports(NODES[0], dict.fromkeys(UPLINKS, 0.0))
    routes = choose_routes(fabric, Plane.UB, NODES)
    assert routes.nodes[NODES[0]].stripes == ()
    assert set(routes.cut) == {(NODES[0], other) for other in NODES[1:]}
    assert routes.nodes[NODES[1]].detours == {NODES[0]: ()}


def test_a_die_with_a_lost_port_uses_the_others(fabric):
    fabric.set_ports(NODES[0], {"npu5-die1-p2": 0.0})
    routes = choose_routes(fabric, Plane.UB, NODES)
    assert [s.weight for s in routes.nodes[NODES[0]].detours["npu5-die1"]] == pytest.approx([1 / 6] * 6)
    assert f"{NODES[0]}-npu5-die1" in routes.nodes[NODES[1]].detours
    need = need_of(fabric, Plane.UB)
    assert need[f"{NODES[0]}.npu5-die1-p3"] == pytest.approx(0.5 / 6)
    assert need[f"{NODES[0]}.npu5-die1-p2"] == 0


def test_rdma_uses_both_ports_of_an_npu_and_falls_back_on_one(fabric):
    routes = choose_routes(fabric, Plane.RDMA, NODES)
    assert [s.weight for s in routes.nodes[NODES[0]].stripes] == [0.5, 0.5]
    need = need_of(fabric, Plane.RDMA)
    assert need[f"{NODES[0]}.rdma-npu5-die0"] == 0.5
    assert need["sn0-c00-leaf0.spine3"] == pytest.approx(2 * 8 * 0.5 / 8)
    fabric.set_ports(NODES[0], {"rdma-npu5-die0": 0.0})
    routes = choose_routes(fabric, Plane.RDMA, NODES)
    assert [(s.sub_plane, s.weight) for s in routes.nodes[NODES[0]].detours["npu5"]] == [(1, 1.0)]
    need = need_of(fabric, Plane.RDMA)
    assert need[f"{NODES[0]}.rdma-npu5-die1"] == 1.0
    assert need[f"{NODES[0]}.rdma-npu5-die0"] == 0.0
    fabric.set_ports(NODES[1], {"rdma-npu2-die1": 0.0})
    assert need_of(fabric, Plane.RDMA)[f"{NODES[0]}.rdma-npu5-die1"] == 1.0


def test_vpc_has_one_port(fabric):
    assert need_of(fabric, Plane.VPC) == {f"{node}.vpc": 8.0 for node in NODES}
    fabric.set_ports(NODES[0], {"vpc": 0.0})
    assert choose_routes(fabric, Plane.VPC, NODES).cut == ((NODES[0], "*"),)


def test_repairs_restore_the_original_routes(fabric):
    before = {plane: choose_routes(fabric, plane, NODES) for plane in Plane}
    fabric.set_ports(NODES[0], {"ub-p3-k11": 0.0, "rdma-npu5-die0": 0.0, "npu1-die0-p0": 7.0})
    assert choose_routes(fabric, Plane.UB, NODES) != before[Plane.UB]
    fabric.set_ports(NODES[0], {})
    assert {plane: choose_routes(fabric, plane, NODES) for plane in Plane} == before


lost = st.dictionaries(st.sampled_from(UPLINKS), st.sampled_from([0.0, 7.0, 14.0]), max_size=12)


@settings(max_examples=15, deadline=None)
@given(st.lists(lost, min_size=4, max_size=4), st.randoms(use_true_random=False))
def test_bookings_cover_any_traffic_within_the_floor(damage, random):
    """A node's traffic to its peers, split at random up to one GB/s per NPU, never asks more of an uplink than is
    booked on it, and never uses a link that is dead at either end."""
    fabric = Fabric([Supernode()])
    for node, ports in zip(NODES, damage, strict=True):
        fabric.set_ports(node, ports)
    routes, need = choose_routes(fabric, Plane.UB, NODES), need_of(fabric, Plane.UB)
    for source in NODES:
        peers = [peer for peer in NODES if peer != source]
        parts = [random.random() + 0.01 for _ in peers]
        load: Counter = Counter()
        for peer, part in zip(peers, parts, strict=True):
            for (p, k), weight in weights(routes, source, peer).items():
                port = f"ub-p{p}-k{k:02d}"
                assert weight == 0 or (fabric.rate(source, port) > 0 and fabric.rate(peer, port) > 0)
                load[port] += 8 * part / sum(parts) * weight
        for port, asked in load.items():
            assert asked <= need[f"{source}.{port}"] + 1e-6


def test_no_ub_route_leaves_a_supernode():
    fabric = Fabric([Supernode("sn0"), Supernode("sn1")])
    here, there = NODES[:2], ["sn1-c00-n0", "sn1-c00-n1"]
    for each in here + there:
        fabric.set_ports(each, {"ub-p3-k11": 0.0})
    routes = choose_routes(fabric, Plane.UB, here + there)
    assert set(routes.cut) == {(a, b) for a in here for b in there}
    assert choose_needs(fabric, Plane.UB, here + there).cut == routes.cut
    fabric.set_ports(there[0], {"ub-p0-k00": 0.0})
    assert set(choose_routes(fabric, Plane.UB, here + there).nodes[here[0]].detours) == set()


def test_rdma_uses_trunks_between_supernodes_but_not_within_a_cabinet():
    fabric = Fabric([Supernode("sn0"), Supernode("sn1")])
    need = need_of(fabric, Plane.RDMA, ["sn0-c00-n0", "sn1-c07-n3"])
    for cabinet in ("sn0-c00", "sn1-c07"):
        for subnet in range(2):
            assert [need[f"{cabinet}-leaf{subnet}.spine{k}"] for k in range(8)] == [0.5] * 8
    assert not any("leaf" in link for link in need_of(fabric, Plane.RDMA, ["sn0-c00-n0", "sn0-c00-n1"]))


def test_a_lost_spine_is_avoided_and_a_lost_leaf_moves_traffic_to_the_other_subnet(fabric):
    one, other = NODES[0], NODES[3]
    fabric.set_ports("sn0-c00-leaf0", {"spine3": 0.0})
    detour = choose_routes(fabric, Plane.RDMA, [one, other]).nodes[one].detours[other]
    assert [stripe.weight for stripe in detour] == pytest.approx([7 / 15, 8 / 15])
    assert (detour[0].spread[3], detour[1].spread) == (0.0, ())
    need = need_of(fabric, Plane.RDMA, [one, other])
    assert need["sn0-c00-leaf0.spine3"] == 0
    assert need["sn0-c00-leaf0.spine2"] == pytest.approx(8 * 7 / 15 / 7)
    fabric.set_ports("sn0-c00-leaf0", {f"spine{k}": 0.0 for k in range(8)})
    detour = choose_routes(fabric, Plane.RDMA, [one, other]).nodes[one].detours[other]
    assert [(stripe.sub_plane, stripe.weight) for stripe in detour] == [(1, 1.0)]
    fabric.set_ports("sn0-c00-leaf1", {f"spine{k}": 0.0 for k in range(8)})
    assert choose_routes(fabric, Plane.RDMA, [one, other]).cut == ((one, other),)


def test_drained_links_are_avoided_like_dead_ones_but_still_carry(fabric):
    fabric.set_drained({node: ["ub-p3-k11"] for node in NODES})
    assert fabric.rate(NODES[0], "ub-p3-k11") == fabric.capacity(f"{NODES[0]}.ub-p3-k11") == 28.0
    own = weights(choose_routes(fabric, Plane.UB, NODES), NODES[0])
    assert (own[3, 11], own[3, 10]) == (0, pytest.approx(1 / 111))
    fabric.set_ports(NODES[0], {"ub-p3-k11": 7.0})
    assert fabric.unavailable_ports(NODES[0]) == {"ub-p3-k11": 0.0}
    fabric.set_drained({})
    assert fabric.unavailable_ports(NODES[0]) == {"ub-p3-k11": 7.0}
