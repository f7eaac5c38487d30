"""Load on the emulated ports: by the tables, shared as promised, never above a bound, counted on the emulated clock."""

import asyncio

import pytest

from matrixcommon.model.hardware_names import NodeName
from matrixlink.fabric.contention.patterns import demands
from matrixresource.agent.hardware import EmulatedNode, InjectedFault
from matrixresource.topology.loading import load_spec
from services.node_agent.network import traffic
from services.node_agent.network.traffic import EmulatedTraffic
from services.node_agent.network.traffic_patterns import Load
from tests.clocks import FixedClock

NODES = [f"sn0-c00-n{n}" for n in range(4)]
SPEC = load_spec()
UB_NODE_GBPS = 3136.0
EVEN = [{"sub_plane": p, "weight": 1 / 7, "spread": []} for p in range(7)]


def make_table(node, plane="ub", members=NODES, **changes):
    stripes = {
        "ub": EVEN,
        "rdma": [{"sub_plane": die, "weight": 0.5, "spread": []} for die in range(2)],
        "vpc": [{"sub_plane": 0, "weight": 1.0, "spread": []}],
    }[plane]
    return {
        "plane": plane, "instance": "i", "isolation_key": 2, "weight": 1.0, "floor_gbps": 0.0, "ceiling_gbps": None,
        "peers": [each for each in members if each != node], "stripes": stripes, "detours": {},
    } | changes  # fmt: skip


class Machine:
    def __init__(self, plane="ub", **changes):
        self.clock = FixedClock()
        self.nodes = {name: EmulatedNode(NodeName(name)) for name in NODES}
        self.traffic = EmulatedTraffic(self.nodes, SPEC, self.clock)
        self.program("s", plane, **changes)

    def program(self, slice, plane="ub", members=NODES, **changes):
        for name in members:
            self.nodes[name].tables[slice] = make_table(name, plane, members, **changes)
        self.traffic.update()

    def apply_faults(self, *faults):
        for node in self.nodes.values():
            node.apply_faults(
                [
                    InjectedFault(name=f"f{at}", kind=kind, target=NodeName(target), parameters=parameters)
                    for at, (kind, target, parameters) in enumerate(faults)
                ]
            )
        self.traffic.update()

    def load(self, name="l", slice="s", **changes):
        self.traffic.put(name, Load(slice=slice, **({"gbps_per_npu": 1000.0} | changes)))

    def sent(self, slice="s"):
        return {NODES[at]: each[0] for at, each in self.traffic.rates().slices[slice].items()}

    def total(self, slice="s", what=0):
        return sum(each[what] for each in self.traffic.rates().slices.get(slice, {}).values())


@pytest.mark.parametrize(
    ("pattern", "pairs"),
    [
        ("all-to-all", {(a, b): 1.0 for a in "abcd" for b in "abcd" if a != b}),
        ("ring", {("a", "b"): 3.0, ("b", "c"): 3.0, ("c", "d"): 3.0, ("d", "a"): 3.0}),
        ("permutation", {("a", "c"): 3.0, ("b", "d"): 3.0, ("c", "a"): 3.0, ("d", "b"): 3.0}),
        ("incast", {("b", "a"): 3.0, ("c", "a"): 3.0, ("d", "a"): 3.0}),
    ],
)
def test_patterns(pattern, pairs):
    assert {(a, b): gbps for a, b, gbps in demands(pattern, "abcd", 3.0)} == pairs
    assert list(demands(pattern, "a", 3.0)) == []


@pytest.mark.parametrize(
    ("plane", "pattern", "node_gbps"),
    [
        ("ub", "all-to-all", UB_NODE_GBPS), ("ub", "ring", UB_NODE_GBPS),
        ("rdma", "permutation", 400.0), ("vpc", "ring", 50.0),
    ],
)  # fmt: skip
def test_a_full_fabric_carries_its_port_rates(plane, pattern, node_gbps):
    machine = Machine(plane)
    machine.load(pattern=pattern)
    assert machine.sent() == pytest.approx(dict.fromkeys(NODES, node_gbps))
    machine.load(pattern=pattern, gbps_per_npu=1.0)
    assert machine.sent() == pytest.approx(dict.fromkeys(NODES, 8.0))


def test_an_incast_is_bound_by_its_receiver():
    machine = Machine()
    machine.load(pattern="incast", target=NODES[2])
    assert sum(machine.sent().values()) == pytest.approx(UB_NODE_GBPS)
    assert machine.traffic.rates().received[2].sum() == pytest.approx(UB_NODE_GBPS)


def test_floors_then_weights_then_ceilings_apply():
    machine = Machine("vpc", floor_gbps=20.0)
    machine.program("t", "vpc", weight=3.0)
    machine.load("l", "s", pattern="ring")
    machine.load("m", "t", pattern="ring")
    assert machine.sent("s")[NODES[0]] == pytest.approx(20 + 30 / 4)
    assert machine.sent("t")[NODES[0]] == pytest.approx(30 * 3 / 4)
    machine.program("t", "vpc", weight=3.0, ceiling_gbps=10.0)
    assert machine.sent("t")[NODES[0]] == pytest.approx(10)
    assert machine.sent("s")[NODES[0]] == pytest.approx(40)


def test_floors_that_a_loss_undercuts_yield_capacity():
    machine = Machine("vpc", floor_gbps=40.0)
    machine.apply_faults(("link-degraded", NODES[1], {"port": "vpc", "share": 0.5}))
    machine.load(pattern="ring")
    assert machine.sent()[NODES[1]] == pytest.approx(25)
    assert machine.sent()[NODES[0]] == pytest.approx(25), "it sends to the one that lost"
    assert machine.sent()[NODES[2]] == pytest.approx(50)


def test_a_silently_failed_port_drops_traffic_unless_routed_around():
    machine = Machine()
    machine.load(pattern="ring", gbps_per_npu=112.0)
    machine.apply_faults(("link-silent", NODES[0], {"port": "ub-p3-k11"}))
    lost = 896 / 112
    assert machine.sent()[NODES[0]] == pytest.approx(896 - lost)
    assert machine.total(what=2) == pytest.approx(2 * lost), "out of the node, and into it"
    dropped = machine.traffic.rates().dropped
    assert dropped[0, 3 * 16 + 11] == pytest.approx(2 * lost) == dropped.sum()
    around = [stripe | {"spread": [] if stripe["sub_plane"] != 3 else [0 if k == 11 else 1 / 15 for k in range(16)]}
              for stripe in EVEN]  # fmt: skip
    machine.program("s", stripes=around)
    assert machine.sent()[NODES[0]] == pytest.approx(896)
    assert machine.total(what=2) == 0


def test_a_slow_port_limits_only_its_own_share():
    machine = Machine()
    machine.apply_faults(("link-slow", NODES[0], {"port": "ub-p3-k11", "share": 0.25}))
    machine.load(pattern="ring")
    assert machine.sent()[NODES[0]] == pytest.approx(UB_NODE_GBPS - 21)
    assert machine.sent()[NODES[1]] == pytest.approx(UB_NODE_GBPS)


def test_dies_with_a_lost_link_limit_their_sub_plane():
    machine = Machine()
    machine.apply_faults(("link-down", NODES[0], {"port": "npu5-die1-p2"}))
    machine.load(pattern="ring")
    assert machine.sent()[NODES[0]] == pytest.approx(UB_NODE_GBPS - 28)


def test_without_tables_peers_or_the_same_key_nothing_moves():
    machine = Machine()
    machine.load(pattern="ring")
    machine.apply_faults(("tables-lost", NODES[1], {}))
    assert NODES[1] not in machine.sent()
    assert sum(machine.sent().values()) == pytest.approx(3 * UB_NODE_GBPS)
    machine = Machine(isolation_key=5)
    machine.nodes[NODES[1]].tables["s"] = make_table(NODES[1], isolation_key=6)
    machine.load(pattern="ring")
    assert set(machine.sent()) == {NODES[2], NODES[3], NODES[0]}
    assert machine.sent()[NODES[0]] == 0


def test_counters_follow_the_clock_through_changes():
    machine = Machine("vpc")
    assert machine.traffic.read(NODES[0]) is None
    machine.clock.at += 1000
    machine.load(pattern="ring", gbps_per_npu=1.0)
    machine.clock.at += 10
    counted = machine.traffic.read(NODES[0])
    assert counted.at == machine.clock.at
    assert (counted.sent_gb[-1], counted.received_gb[-1]) == pytest.approx((80, 80))
    assert counted.slices["s"] == pytest.approx((80, 80, 0))
    machine.clock.at += 5
    machine.apply_faults(("link-silent", NODES[0], {"port": "vpc"}))
    machine.clock.at += 5
    counted = machine.traffic.read(NODES[0])
    assert (counted.sent_gb[-1], counted.dropped_gb[-1]) == pytest.approx((120, 80))
    machine.traffic.remove("l")
    machine.clock.at += 100
    assert machine.traffic.read(NODES[0]).sent_gb[-1] == pytest.approx(120)


def test_an_instance_and_a_plane_mean_its_slice():
    machine = Machine("vpc")
    machine.program("u", "ub")
    machine.traffic.put("l", Load(instance="i", plane="ub", pattern="ring", gbps_per_npu=10.0))
    assert set(machine.traffic.rates().slices) == {"u"}


async def test_simultaneous_changes_are_computed_once(monkeypatch):
    machine, worked_out = Machine("vpc"), []
    machine.load(pattern="ring", gbps_per_npu=1.0)
    whole = EmulatedTraffic._compute_rates
    monkeypatch.setattr(EmulatedTraffic, "_compute_rates", lambda self: worked_out.append(1) or whole(self))
    machine.clock.at += 10
    for name in NODES:
        machine.nodes[name].ports["vpc"] = 0.0
        machine.traffic.update()
    assert worked_out == []
    await asyncio.sleep(0)
    assert worked_out == [1]
    machine.clock.at += 10
    counted = machine.traffic.read(NODES[0])
    assert (counted.sent_gb[-1], counted.dropped_gb[-1]) == pytest.approx((80, 80))


def test_ports_are_recomputed_after_faults_but_not_for_other_loads(monkeypatch):
    machine, worked_out = Machine(), []
    ports = traffic.port_groups
    monkeypatch.setattr(traffic, "port_groups", lambda *given: worked_out.append(given) or ports(*given))
    machine.load(gbps_per_npu=10.0)
    whole = machine.total()
    machine.load("m", gbps_per_npu=10.0)
    machine.program("s", weight=2.0)
    assert machine.total() == pytest.approx(2 * whole)
    assert len(worked_out) == 1
    machine.nodes[NODES[0]].powered = False
    machine.traffic.update()
    assert NODES[0] not in machine.sent()
    machine.nodes[NODES[0]].powered = True
    machine.traffic.update()
    assert machine.total() == pytest.approx(2 * whole)
    assert len(worked_out) == 3


def test_a_bursting_load_gets_the_burst_rate_beside_others():
    machine = Machine()
    machine.load(gbps_per_npu=0.0, bursts=True)
    alone = machine.traffic.burst("l").gbps_per_die
    assert alone == pytest.approx(196.0), "a die's seven links"
    machine.program("t")
    machine.load("m", "t", gbps_per_npu=UB_NODE_GBPS / 8 / 2)
    assert machine.traffic.burst("l").gbps_per_die == pytest.approx(98.0, rel=0.03)
    left = machine.traffic.burst("l").ports[NODES[1]]
    assert left.in_gbps == left.out_gbps == pytest.approx([224.0] * 7)
    assert machine.traffic.burst("m") is None, "it does not burst"
    machine.traffic.remove("m")
    assert machine.traffic.burst("l").gbps_per_die == pytest.approx(alone)
    machine.load(gbps_per_npu=100.0, bursts=True)
    assert machine.traffic.burst("l").gbps_per_die == pytest.approx(alone), "its own mean is no neighbour of it"


def test_a_pull_moves_from_members_to_targets():
    machine = Machine("rdma")
    machine.load(gbps_per_npu=10.0, pattern="pull", members=NODES[:2], targets=NODES[1:], bursts=True)
    rates = machine.traffic.rates().slices["s"]
    assert [rates[at][0] for at in range(4)] == pytest.approx([80, 80, 0, 0])
    assert [rates[at][1] for at in range(4)] == pytest.approx([0, 80 / 3, 80 / 3 + 40, 80 / 3 + 40])
    found = machine.traffic.burst("l")
    assert found.gbps_per_die is None
    assert found.ports[NODES[3]].endpoint_in_gbps == [25.0]


@pytest.mark.parametrize(
    ("members", "targets", "sending"),
    [
        (NODES[:1], NODES[:1], 0),
        (NODES[:1], NODES[3:], 0),
        (NODES[:1], [NODES[0], NODES[1]], 1),
        (NODES[:2], NODES[:1], 1),
        (None, NODES[:1], 2),
        (NODES[:1] * 2, NODES[1:2], 1),
    ],
    ids=["itself", "no table", "itself and another", "one of two", "everybody", "named twice"],
)
def test_a_pull_offers_its_transferred_rate(members, targets, sending):
    machine = Machine("rdma")
    del machine.nodes[NODES[3]].tables["s"]
    machine.traffic.update()
    machine.load(gbps_per_npu=1.0, pattern="pull", members=members, targets=targets)
    load = machine.traffic.loads["l"]
    assert load.sender_count(machine.traffic.tables_by_slice(load).get("s", {})) == sending
    assert machine.traffic.load_rates("l") == (pytest.approx(8.0 * sending), 0.0)


def test_counters_of_removed_slices_are_deleted_and_those_of_ports_kept():
    machine = Machine()
    machine.load(slice=None, instance="i")
    machine.clock.at += 10
    before = machine.traffic.read(NODES[0])
    machine.program("t")
    for node in machine.nodes.values():
        del node.tables["s"]
    machine.traffic.update()
    machine.clock.at += 10
    assert set(machine.traffic.read(NODES[0]).slices) == {"t"}, "a report has room for those that there are"
    for node in machine.nodes.values():
        node.tables.clear()
    machine.traffic.update()
    after = machine.traffic.read(NODES[0])
    assert after.slices == {}
    assert sum(after.sent_gb) > sum(before.sent_gb) > 0
