"""The supernode's graph is the published one: every line of the build-and-check table and every invariant.

Exact, yet quick: distances and path counts come from powers of the adjacency matrix over all pairs at once; a maximum
flow is taken on a part of the graph whose value bounds the whole from below and is met by a cut from above.
"""

from collections import Counter

import networkx as nx
import numpy as np
import pytest

from matrixresource.topology import Supernode

CPU_LINK = 160 / 7


@pytest.fixture(scope="module")
def sn():
    return Supernode()


@pytest.fixture(scope="module")
def packages(sn):
    return sn.graph("package", "ub")


@pytest.fixture(scope="module")
def dies(sn):
    return sn.graph("die", "ub")


@pytest.fixture(scope="module")
def steps(packages):
    """Vertex order and the number of walks of length 1, 2, 3 and 4 between any two vertices."""
    order = list(packages)
    one = nx.to_numpy_array(packages, nodelist=order, weight=None, dtype=np.float32)
    two = one @ one
    return order, (one, two, two @ one, two @ two)


def kinds(graph):
    return Counter(kind for _, kind in graph.nodes(data="kind"))


def edges_of(graph, kind):
    return [rate for _, _, data in graph.edges(data=True) if data["kind"] == kind for rate in [data["capacity_gbps"]]]


@pytest.mark.parametrize(
    ("kind", "count", "degree"), [("npu", 384, 7), ("cpu", 192, 7), ("l1", 336, 8 + 4 + 16), ("l2", 112, 48)]
)
def test_package_vertices(packages, kind, count, degree):
    found = [name for name, k in packages.nodes(data="kind") if k == kind]
    assert len(found) == count
    assert {packages.degree(name) for name in found} == {degree}


@pytest.mark.parametrize(
    ("kind", "count", "rate", "together"),
    [("npu-l1", 2688, 56, 150_528), ("cpu-l1", 1344, CPU_LINK, 30_720), ("l1-l2", 5376, 28, 150_528)],
)
def test_package_edges(packages, kind, count, rate, together):
    found = edges_of(packages, kind)
    assert len(found) == count
    assert set(found) == {rate}
    assert sum(found) == pytest.approx(together)


def test_package_totals(packages):
    assert packages.number_of_nodes() == 1024
    assert packages.number_of_edges() == 9408


@pytest.mark.parametrize(("kind", "count"), [("die", 768), ("cpu", 192), ("l1", 336), ("l2", 112)])
def test_die_vertices(dies, kind, count):
    assert kinds(dies)[kind] == count


@pytest.mark.parametrize(
    ("kind", "count", "rate"),
    [("die-l1", 5376, 28), ("cpu-l1", 1344, CPU_LINK), ("l1-l2", 5376, 28), ("die-die", 384, 270)],
)
def test_die_edges(dies, kind, count, rate):
    assert len(edges_of(dies, kind)) == count
    assert set(edges_of(dies, kind)) == {rate}


def test_die_totals(dies):
    assert dies.number_of_nodes() == 1408
    assert dies.number_of_edges() == 12_480


def test_an_edge_stays_in_its_sub_plane_and_node(dies):
    for a, b, data in dies.edges(data=True):
        for end in (dies.nodes[a], dies.nodes[b]):
            assert end.get("sub_plane", data.get("sub_plane")) == data.get("sub_plane")
            assert end.get("node", data["node"]) == data["node"]
    switch_pairs = {frozenset((dies.nodes[a]["kind"], dies.nodes[b]["kind"])) for a, b in dies.edges}
    assert frozenset({"l1"}) not in switch_pairs
    assert frozenset({"l2"}) not in switch_pairs


def test_one_l1_of_each_sub_plane_in_every_node(sn, packages):
    for node in sn.nodes():
        planes = [d["sub_plane"] for _, d in packages.nodes(data=True) if d["kind"] == "l1" and d["node"] == node]
        assert sorted(planes) == list(range(7))


def test_l1_is_non_blocking_for_npus(sn, packages):
    for l1 in sn.l1_switches():
        rates = Counter()
        for peer in packages[l1]:
            rates[packages.nodes[peer]["kind"]] += packages[l1][peer]["capacity_gbps"]
        assert rates["npu"] == rates["l2"] == 448
        assert (rates["npu"] + rates["cpu"]) / rates["l2"] == pytest.approx(1.204, abs=5e-4)


def test_node_uplink_equals_its_npus(sn):
    for node in sn.nodes():
        links = sn.links(node, "ub")
        assert sum(link.capacity_gbps for link in links if link.kind == "l1-l2") == 3136
        assert sum(link.capacity_gbps for link in links if link.kind == "die-l1") == 8 * 392 == 3136


def test_l2_capacity(sn, packages):
    for l2 in sn.l2_switches():
        assert sum(data["capacity_gbps"] for data in packages[l2].values()) == 1344
        assert len({packages.nodes[peer]["node"] for peer in packages[l2]}) == 48


def test_sum_of_uplinks_is_the_sum_of_npus(packages):
    assert sum(edges_of(packages, "l1-l2")) == 150_528 == 384 * 392


def test_connected_with_diameter_four(packages, steps):
    _, (one, two, three, four) = steps
    within = np.eye(len(one)) + one + two + three
    assert (within == 0).any()
    assert (within + four > 0).all()
    assert nx.is_connected(packages)


def test_distances_and_shortest_paths_of_all_npu_pairs(packages, steps):
    order, (one, two, three, four) = steps
    npus = [i for i, name in enumerate(order) if packages.nodes[name]["kind"] == "npu"]
    node = np.array([packages.nodes[order[i]]["node"] for i in npus])
    same, pick = node[:, None] == node[None, :], np.ix_(npus, npus)
    off_diagonal = ~np.eye(len(npus), dtype=bool)
    assert not one[pick].any()
    assert (two[pick][same & off_diagonal] == 7).all()
    assert not two[pick][~same].any()
    assert not three[pick][~same].any()
    assert (four[pick][~same] == 112).all()


def pair_flow(graph, source, sink):
    """Max-flow between NPUs of two nodes: exact, as the part kept reaches the bound set by the source's own links."""
    nodes = {graph.nodes[source]["node"], graph.nodes[sink]["node"]}
    kept = [n for n, data in graph.nodes(data=True) if data["kind"] == "l2" or data.get("node") in nodes]
    found = nx.maximum_flow_value(graph.subgraph(kept), source, sink, capacity="capacity_gbps")
    assert found == sum(data["capacity_gbps"] for data in graph[source].values())
    return found


def test_max_flow_between_npus_of_different_nodes(packages):
    assert pair_flow(packages, "sn0-c00-n0-npu0", "sn0-c11-n3-npu7") == 392
    assert pair_flow(packages, "sn0-c04-n1-npu3", "sn0-c04-n2-npu3") == 392


def test_max_flow_after_one_l1_is_lost(packages):
    kept = packages.subgraph(set(packages) - {"sn0-c00-n0-l1p3"})
    assert pair_flow(kept, "sn0-c00-n0-npu0", "sn0-c11-n3-npu7") == 336


def test_uplink_paths_are_edge_disjoint(packages):
    for plane in range(7):
        ends = f"sn0-c00-n0-l1p{plane}", f"sn0-c07-n1-l1p{plane}"
        switches = packages.subgraph([*ends, *(n for n in packages[ends[0]] if n.startswith("sn0-l2"))])
        assert len(list(nx.edge_disjoint_paths(switches, *ends))) == 16


@pytest.mark.parametrize("shift", [0, 1])
def test_bisection(sn, packages, shift):
    """24 nodes against 24. NPUs of a side act as one vertex, so the cut falls apart into seven sub-planes; exact."""
    side = {node: (i % 2 if shift else i // 24) for i, node in enumerate(sn.nodes())}
    total = 0
    for plane in range(7):
        half = nx.Graph()
        for a, b, data in packages.edges(data=True):
            if data["sub_plane"] == plane and data["kind"] == "l1-l2":
                half.add_edge(a, b, capacity=data["capacity_gbps"])
                half.add_edge(side[data["node"]], a, capacity=448)
        total += nx.maximum_flow_value(half, 0, 1)
    assert total == 75_264 == 192 * 392


def test_what_is_lost_with_each_part(sn):
    assert round(28 / 3136, 5) == 0.00893
    topology = sn.topology
    assert topology.uplink_gbps(["c03-n2-l1p4"]) == {"c03-n2": 448}
    assert set(topology.uplink_gbps(["l2p4-k11"]).values()) == {28}
    assert len(topology.uplink_gbps(["l2p4-k11"])) == 48
    switching = [each.name for each in topology.switches.values() if each.cabinet == "c14"]
    assert (len(switching), set(topology.uplink_gbps(switching).values())) == (28, {784})
    assert set(topology.node_uplink_gbps.values()) == {3136}


def test_physical_cables_and_bus_devices(sn):
    ub = sn.spec.ub
    assert 56 * 48 == sn.spec.supernode.nodes * sn.spec.node.ub_optical_ports == ub.optical_links == 2688
    boxes, by_cabinet, by_plane = Counter(), {}, {}
    for plane in range(7):
        for k in range(16):
            box = sn.bus_device(f"sn0-l2p{plane}-k{k:02d}")
            boxes[box] += 1
            by_cabinet.setdefault(box.rpartition("-")[0], set()).add(box)
            by_plane.setdefault(plane, set()).add(box)
    assert len(boxes) == 56
    assert set(boxes.values()) == {2}
    assert {len(found) for found in by_cabinet.values()} == {14}
    assert set(by_cabinet) == {"sn0-c12", "sn0-c13", "sn0-c14", "sn0-c15"}
    assert {len(found) for found in by_plane.values()} == {8}


def test_rdma_plane(sn):
    graph = sn.graph("die", "rdma")
    assert kinds(graph) == {"die": 768, "leaf": 24, "spine": 8}
    assert sum(edges_of(graph, "die-leaf")) == 19_200
    for node in sn.nodes():
        for npu in sn.npus(node):
            leaves = [next(iter(graph[f"{npu}-die{d}"])) for d in range(2)]
            assert graph.nodes[leaves[0]]["sub_plane"] != graph.nodes[leaves[1]]["sub_plane"]
    for leaf in (name for name, kind in graph.nodes(data="kind") if kind == "leaf"):
        rates = Counter()
        for peer, data in graph[leaf].items():
            rates[graph.nodes[peer]["kind"]] += data["capacity_gbps"]
        assert rates["die"] == rates["spine"] == 800
    assert nx.is_connected(graph)


def test_vpc_plane(sn):
    graph = sn.graph(plane="vpc")
    assert kinds(graph) == {"qingtian": 48, "fabric": 1}
    assert edges_of(graph, "qingtian-fabric") == [50] * 48
    assert sum(edges_of(graph, "qingtian-fabric")) == 2400
