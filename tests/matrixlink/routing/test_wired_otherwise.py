"""What MatrixLink compiles of a graph (link arrays, forwarding tables, probes) is what the graph says, whatever is
drawn or found, taken up at once or step by step."""

from __future__ import annotations

from collections import defaultdict

import networkx as nx
import numpy as np
from hypothesis import given, settings

from matrixcommon.model.planes import Plane
from matrixlink.communicators.ub_traffic import UbTraffic
from matrixlink.fabric.condition.elements import ports_of
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.forwarding.forwarding_tables import ForwardingTables
from matrixlink.probing.plan import ProbePlan, probe_plan
from matrixlink.routing.routing import choose_needs, choose_routes
from matrixresource.topology import Supernode
from matrixresource.topology.compiled import compile_with_deviations
from matrixresource.topology.deviations import Deviation
from matrixresource.topology.graph import link_edges
from tests.matrixresource.topology.drawn import SN, changes

NODES = SN.nodes()


def drawn(found) -> Supernode:
    return Supernode("sn0", topology=compile_with_deviations(SN.spec, found))


def rates(graph: nx.MultiGraph) -> dict[str, np.ndarray]:
    """GB/s from each node to each L2 chip of each sub-plane, read off the graph's edges."""
    found: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((7, 16)))
    for a, b, _link, about in link_edges(graph):
        if about["kind"] == "l1-l2":
            chip = b if "-l2p" in b else a
            plane = about["sub_plane"]
            if chip.startswith(f"sn0-l2p{plane}-k") and graph.nodes[chip]["kind"] == "l2":
                found[about["node"]][plane, int(chip[-2:])] += about["capacity_gbps"]
    return found


@settings(max_examples=12, deadline=None)
@given(changes(), changes())
def test_link_arrays_equal_the_graphs_edges(first, second):
    fabric = Fabric([SN, Supernode("sn1", SN.spec)])
    for each in (first, second):
        fabric.set_topology(drawn(each))
    at_once = Fabric([drawn(second), Supernode("sn1", SN.spec)])
    wired = drawn(second)
    expected = rates(wired.model_graph())
    assert set(fabric.nodes()) == set(at_once.nodes())
    for node in wired.nodes():
        for built in (fabric, at_once):
            assert np.array_equal(built.usable_rates(Plane.UB, node)[:112].reshape(7, 16), expected[node])
        assert np.array_equal(fabric.usable_rates(Plane.RDMA, node), at_once.usable_rates(Plane.RDMA, node))
    assert set(fabric.touched()) == set(at_once.touched())


@settings(max_examples=8, deadline=None)
@given(changes(), changes())
def test_updated_forwarding_tables_equal_rebuilt_ones(first, second):
    fabric = Fabric([SN])
    traffic = UbTraffic(SN, fabric)
    for each in (first, second):
        fabric.set_topology(drawn(each))
        traffic.synchronise(fabric, 0.0)
    made = UbTraffic(drawn(second))
    assert np.array_equal(traffic.tables.l1, made.tables.l1)
    assert np.array_equal(traffic.tables.l2, made.tables.l2)
    assert traffic.tables.version == made.tables.version == ForwardingTables(made.shape, made.drawn()).version


@settings(max_examples=8, deadline=None)
@given(changes())
def test_every_probe_follows_the_graph(found):
    supernode = drawn(found)
    graph, plan = supernode.model_graph(), ProbePlan(supernode)
    ends, expected = {link: {a, b} for a, b, link, _ in link_edges(graph)}, rates(graph)
    for node in plan.nodes[::4]:
        there = 0
        for path in range(plan.probes_per_round):
            parts = [plan.names[part] for part in plan.parts(3)[plan.index[node], path] if part >= 0]
            links = [part for part in parts if "." in part]
            assert set(links) <= ends.keys()
            crossed = [end for link in links for end in ends[link] if end in plan.number]
            assert {part for part in parts if "." not in part and part not in plan.index} == set(crossed)
            there += bool(parts)
        assert there == plan.sent(node, 3)
        assert there <= int((expected[node] > 0).sum()) + 17


@settings(max_examples=12, deadline=None)
@given(changes())
def test_links_of_a_switch_are_those_that_end_there(found):
    supernode = drawn(found)
    fabric, graph = Fabric([supernode]), supernode.model_graph()
    for switch in supernode.l2_switches()[::9]:
        links = {link for a, b, link, _ in link_edges(graph) if switch in (a, b)}
        if links:
            named = {f"{owner}.{port}" for owner, ports in ports_of(fabric, switch).items() for port in ports}
            assert named == links


def test_a_moved_cable_changes_routes_and_floors():
    moved = drawn([Deviation("CableMoved", "c00-n0.ub-p3-k11", "l2p3-k12")])
    fabric, members = Fabric([moved]), NODES[:4]
    regular = Fabric([SN])
    routes = choose_routes(fabric, Plane.UB, members)
    spread = routes.nodes[members[1]].detours[members[0]][3].spread
    assert (spread[11], spread[12]) == (0.0, max(spread))
    assert not choose_routes(regular, Plane.UB, members).nodes[members[1]].detours
    need, before = (choose_needs(each, Plane.UB, members).need[members[0]] for each in (fabric, regular))
    assert need[3 * 16 + 11] == 0 < before[3 * 16 + 11]
    assert fabric.link_names(Plane.UB, members[0])[3 * 16 + 11] == f"{members[0]}.ub-p3-k11"


def test_two_exchanged_cables_keep_a_node_undamaged():
    swapped = drawn(
        [
            Deviation("CableMoved", "c00-n0.ub-p3-k11", "l2p3-k12"),
            Deviation("CableMoved", "c00-n0.ub-p3-k12", "l2p3-k11"),
        ]
    )
    fabric = Fabric([swapped])
    assert fabric.unavailable_ports(NODES[0]) == {}
    fabric.set_ports(NODES[0], {"ub-p3-k11": 0.0})
    assert fabric.unavailable_ports(NODES[0]) == {"ub-p3-k12": 0.0}
    assert fabric.link_names(Plane.UB, NODES[0])[3 * 16 + 12] == f"{NODES[0]}.ub-p3-k11"
    assert fabric.place(NODES[0], "ub-p3-k11") == (Plane.UB, 3 * 16 + 12)


def test_equal_supernodes_share_one_compiled_plan():
    names = [f"sn{number}" for number in range(432)]
    machines = [Supernode(name) for name in names]
    assert len({id(each.topology) for each in machines}) == 1
    assert probe_plan(machines[0]) is probe_plan(Supernode("sn0"))
    one = Supernode("sn5", topology=compile_with_deviations(SN.spec, [Deviation("CableDark", "c00-n0.ub-p3-k11")]))
    assert one.topology is compile_with_deviations(SN.spec, [Deviation("CableDark", "c00-n0.ub-p3-k11")])
