"""Probing: bounded rounds that reach everything, a failed part reported from its neighbours, silent faults found and repaired
within the stated time, and nothing learnt but from reports."""

from collections import Counter
from random import Random

import numpy as np
import pytest

from matrixcommon.model.hardware_names import NodeName
from matrixlink.agent import AgentProbing
from matrixlink.link_health.fault_localisation import DETECTED_WITHIN_S
from matrixlink.probing.plan import ProbePlan
from matrixlink.probing.tomography import LocalisationResult, ProbeOutcomes, Suspicion, confirmed_suspicions, localise
from matrixresource.agent.hardware import EmulatedNode, InjectedFault
from matrixresource.topology import Supernode
from services.node_agent.network.probe_network import EmulatedProbeTransport
from tests.matrixlink.fleet import LinkStack, slice_request

SUPERNODE = Supernode()
PLAN = ProbePlan(SUPERNODE)
ALL = SUPERNODE.nodes()
REPORTING_NODES = ALL[:8]


class EmulatedFabric:
    """Hardware of all nodes, and what a round of probes over it finds."""

    def __init__(self):
        self.nodes = {name: EmulatedNode(NodeName(name)) for name in ALL}
        self.probe_transport = EmulatedProbeTransport(self.nodes, SUPERNODE.spec)

    def apply_faults(self, *faults):
        made = [
            InjectedFault.model_validate({"name": f"f{at}", "kind": kind, "target": target, "parameters": parameters})
            for at, (kind, target, parameters) in enumerate(faults)
        ]
        for node in self.nodes.values():
            node.apply_faults(made)

    def round(self, number, reporting=ALL):
        up = [PLAN.index[node] for node in reporting if self.nodes[node].powered]
        shares = np.ones((len(up), PLAN.probes_per_round))
        for at, node in enumerate(up):
            for probe, share in self.probe_transport.sweep(PLAN, PLAN.nodes[node], number).failed:
                shares[at, probe] = share
        parts = PLAN.parts(number)[up]
        return localise(ProbeOutcomes(parts.reshape(-1, parts.shape[2]), shares.ravel()))

    def parts(self, first=100, rounds=2, reporting=ALL):
        """What that many rounds confirm."""
        reported = [self.round(first - back, reporting) for back in range(rounds)]
        return {PLAN.names[each.part]: each.share for each in confirmed_suspicions(reported)}


@pytest.fixture(scope="module")
def fabric():
    return EmulatedFabric()


def test_a_round_is_bounded_and_probes_every_path_once_from_each_side():
    assert PLAN.probes_per_round == 112 + 16 + 1
    for number in (0, 1, 17):
        touched = Counter()
        for node in ALL:
            for path in range(PLAN.probes_per_round):
                assert PLAN.target(node, number, path) != node
                touched.update(PLAN.links(node, number, path))
        ports = [link.name for node in ALL for link in SUPERNODE.links(node)]
        probed = [name for name in ports if "cpu" not in name and "d2d" not in name]
        assert touched == dict.fromkeys(probed, 2)


def test_a_probe_crosses_the_links_and_switches_of_the_layout():
    for number in (0, 5):
        for path in range(PLAN.probes_per_round):
            source, target = ALL[7], PLAN.target(ALL[7], number, path)
            parts = [PLAN.names[part] for part in PLAN.parts(number)[PLAN.index[source], path] if part >= 0]
            links = [SUPERNODE.link(name) for name in parts if "." in name]
            ends = {end for link in links for end in link.ends}
            switches = {name for name in parts if "." not in name} - {source, target}
            assert switches == {end for end in ends if "-l1p" in end or "-l2p" in end or "-leaf" in end}
            assert {source, target} <= set(parts)
            assert len(links) == (4 if path < 112 else 2)


@pytest.mark.parametrize("part", ["sn0-l2p3-k11", f"{ALL[7]}-l1p2", "sn0-c03-leaf1", f"{ALL[7]}.vpc", ALL[7]])
def test_links_of_a_part(part):
    ends_there = [link.name for link in SUPERNODE.links() if part in link.ends and link.node is not None]
    assert sorted(PLAN.links_of(part)) == ([part] if "." in part else sorted(ends_there))


def test_every_node_is_probed_by_every_other_in_time():
    met = {PLAN.target(ALL[0], number, path) for number in range(8) for path in range(PLAN.probes_per_round)}
    assert met == set(ALL) - {ALL[0]}


def test_a_healthy_fabric_has_no_suspicions(fabric):
    fabric.apply_faults()
    assert fabric.round(3) == LocalisationResult(())


A, B = ALL[5], ALL[30]


@pytest.mark.parametrize(
    ("kind", "target", "parameters", "part", "share"),
    [
        ("link-silent", A, {"port": "ub-p3-k11"}, f"{A}.ub-p3-k11", 0.0),
        ("link-silent", A, {"port": "npu5-die1-p2"}, f"{A}.npu5-die1-p2", 0.0),
        ("link-silent", A, {"port": "rdma-npu5-die0"}, f"{A}.rdma-npu5-die0", 0.0),
        ("link-silent", A, {"port": "vpc"}, f"{A}.vpc", 0.0),
        ("link-slow", A, {"port": "ub-p0-k00", "share": 0.3}, f"{A}.ub-p0-k00", 0.3),
        ("switch-silent", "sn0-l2p6-k15", {}, "sn0-l2p6-k15", 0.0),
        ("switch-silent", f"{A}-l1p4", {}, f"{A}-l1p4", 0.0),
        ("switch-silent", "sn0-c03-leaf1", {}, "sn0-c03-leaf1", 0.0),
        ("node-down", A, {}, A, 0.0),
    ],
)
def test_a_single_failed_part_is_localised(fabric, kind, target, parameters, part, share):
    fabric.apply_faults((kind, target, parameters))
    assert fabric.parts() == {part: pytest.approx(share)}


def test_several_failed_parts_are_localised(fabric):
    fabric.apply_faults(
        ("link-silent", A, {"port": "ub-p3-k11"}),
        ("link-slow", B, {"port": "ub-p3-k12", "share": 0.5}),
        ("switch-silent", "sn0-l2p5-k07", {}),
        ("node-down", ALL[44], {}),
    )
    assert fabric.parts() == {
        f"{A}.ub-p3-k11": 0.0,
        f"{B}.ub-p3-k12": 0.5,
        "sn0-l2p5-k07": 0.0,
        ALL[44]: 0.0,
    }


def test_random_single_links_are_localised_correctly(fabric):
    random = Random(5)
    ports = [link.port for link in SUPERNODE.links(A) if "cpu" not in link.port and "d2d" not in link.port]
    for _ in range(12):
        node, port, share = random.choice(ALL), random.choice(ports), random.choice([0.0, 0.25, 0.8])
        kind = (
            ("link-silent", node, {"port": port}) if share == 0 else ("link-slow", node, {"port": port, "share": share})
        )
        fabric.apply_faults(kind)
        first = random.randrange(2, 10_000)
        assert fabric.parts(first) == {f"{node}.{port}": pytest.approx(share)}


def test_few_witnesses_need_another_round(fabric):
    """Only four of 48 nodes report: one round leaves several parts, crossing another round leaves one."""
    fabric.apply_faults(("link-silent", ALL[1], {"port": "ub-p3-k11"}))
    first = fabric.round(50, ALL[:4]).suspicions
    assert [len(each.parts) > 1 for each in first] == [True]
    assert fabric.parts(50, 2, ALL[:4]) == {f"{ALL[1]}.ub-p3-k11": 0.0}


def test_a_single_round_confirms_nothing():
    suspicion = Suspicion(frozenset({7}), 0.0, 2)
    assert confirmed_suspicions([LocalisationResult((suspicion,))]) == []
    assert confirmed_suspicions([LocalisationResult((suspicion,)), LocalisationResult(())]) == []
    assert confirmed_suspicions([LocalisationResult((suspicion,)), LocalisationResult((suspicion,))]) == [
        Suspicion(frozenset({7}), 0.0, 4)
    ]


def test_an_agent_reports_only_failures_not_explained_by_its_own_port():
    hardware = {name: EmulatedNode(NodeName(name)) for name in ALL}
    probing = AgentProbing(A, lambda: PLAN, EmulatedProbeTransport(hardware, SUPERNODE.spec), lambda now: now / 10)
    reported = probing.report(1_000.0, {})
    assert (reported.round, reported.sent, reported.failed) == (100, 129, [])
    assert reported.latency_us["ub"] == 1.9
    hardware[A].unreported_losses["ub-p3-k11"] = 0.0
    assert probing.report(1_009.9, {}).failed == [], "a round is sent once"
    reported = probing.report(1_010.0, {})
    assert [each.probe for each in reported.failed] == [3 * 16 + 11]
    assert probing.report(1_011.0, {"ub-p3-k11": 0.0}).failed == []


# -- the whole way: agents, reports, MatrixLink, routes


async def rounds(stack, count):
    """That many rounds of reports, work and the watcher, ten emulated seconds each."""
    for _ in range(count):
        await stack.settle(1)
        stack.clock.at += 10


async def await_detection(stack, holds, within_s=DETECTED_WITHIN_S):
    """Emulated seconds until it holds, looked at every second; fails past the limit."""
    started = stack.clock.at
    while not await holds():
        assert stack.clock.at - started <= within_s
        stack.clock.at += 1
        if int(stack.clock.at) % 10 == 0:  # a heartbeat
            await stack.report()
            await stack.health.step()
    return stack.clock.at - started


async def link(stack, name):
    return (await stack.http.get(f"/v1/links/{name}")).json()


@pytest.mark.parametrize(
    ("faults", "name", "reason", "gbps"),
    [
        ({REPORTING_NODES[1]: {"ub-p3-k11": 0.0}}, f"{REPORTING_NODES[1]}.ub-p3-k11", "ProbeLost", 0.0),
        ({REPORTING_NODES[1]: {"ub-p3-k11": 0.4}}, f"{REPORTING_NODES[1]}.ub-p3-k11", "ProbeSlow", 11.2),
        ({REPORTING_NODES[1]: {"rdma-npu5-die0": 0.0}}, f"{REPORTING_NODES[1]}.rdma-npu5-die0", "ProbeLost", 0.0),
    ],
)
async def test_a_silent_fault_is_found_routed_around_and_repaired(tmp_path, faults, name, reason, gbps):
    plane = "rdma" if "rdma" in name else "ub"
    stack = LinkStack(tmp_path, REPORTING_NODES)
    await stack.active("a", slice_request(plane, REPORTING_NODES))
    await rounds(stack, 3)
    for node, silent in faults.items():
        stack.hardware[node].unreported_losses |= silent

    async def found():
        current = await link(stack, name)
        assert current["reason"] in ("", reason)
        return current["gbps"] == pytest.approx(gbps)

    await await_detection(stack, found)
    assert (await link(stack, name))["state"] == ("Down" if gbps == 0 else "Degraded")
    await stack.settle()
    assert (await stack.client.find_slice("a")).state == "Degraded"
    probes = (await stack.http.get("/v1/probes")).json()
    assert list(probes["atFault"]) == [name]
    events = (await stack.http.get("/v1/events")).json()["items"]
    assert [(each["about"], each["reason"]) for each in events] == [(name, reason)]
    for node in faults:
        stack.hardware[node].unreported_losses.clear()

    async def repaired():
        return (await link(stack, name))["state"] == "Up"

    await await_detection(stack, repaired)
    await stack.settle()
    assert (await stack.client.find_slice("a")).state == "Active"
    assert (await stack.http.get("/v1/probes")).json()["atFault"] == {}


@pytest.mark.parametrize("ahead", [1, 2, 5])
async def test_a_node_with_its_clock_ahead_does_not_hide_faults(tmp_path, ahead):
    stack = LinkStack(tmp_path, REPORTING_NODES)
    stack.agents[REPORTING_NODES[7]].probing._round_at = lambda now: now / 10 + ahead
    name = f"{REPORTING_NODES[1]}.ub-p3-k11"
    await rounds(stack, 3)
    stack.hardware[REPORTING_NODES[1]].unreported_losses["ub-p3-k11"] = 0.0

    async def found():
        return (await link(stack, name))["state"] == "Down"

    await await_detection(stack, found)
    stack.hardware[REPORTING_NODES[1]].unreported_losses.clear()

    async def repaired():
        return not await found()

    await await_detection(stack, repaired)


async def test_silent_nodes_are_not_waited_for(tmp_path):
    stack = LinkStack(tmp_path, REPORTING_NODES)
    await rounds(stack, 3)
    stack.silent |= set(REPORTING_NODES[3:])
    stack.hardware[REPORTING_NODES[1]].unreported_losses["ub-p3-k11"] = 0.0
    await rounds(stack, 6)
    assert list((await stack.http.get("/v1/probes")).json()["atFault"]) == [f"{REPORTING_NODES[1]}.ub-p3-k11"]


async def test_a_silently_failed_chip_affects_a_port_of_every_node(tmp_path):
    stack = LinkStack(tmp_path, REPORTING_NODES)
    await stack.active("a", slice_request("ub", REPORTING_NODES))
    await rounds(stack, 3)
    for hardware in stack.hardware.values():
        hardware.unreported_losses["ub-p3-k11"] = 0.0

    async def found():
        below = (await stack.http.get("/v1/links?filter=state=Down")).json()["items"]
        return len(below) == len(ALL)

    await await_detection(stack, found)
    assert list((await stack.http.get("/v1/probes")).json()["atFault"]) == ["sn0-l2p3-k11"]


async def test_a_cable_that_failed_before_its_chip_stays_faulty_after_the_chip_is_repaired(tmp_path):
    stack = LinkStack(tmp_path, REPORTING_NODES)
    port, chip = "ub-p3-k11", "sn0-l2p3-k11"
    name = f"{REPORTING_NODES[1]}.{port}"

    async def at_fault():
        return list((await stack.http.get("/v1/probes")).json()["atFault"])

    stack.hardware[REPORTING_NODES[1]].unreported_losses[port] = 0.0
    await rounds(stack, 6)
    assert await at_fault() == [name]
    for hardware in stack.hardware.values():
        hardware.unreported_losses[port] = 0.0
    await rounds(stack, 6)
    assert await at_fault() == [chip], "which explains all that is lost"
    for node, hardware in stack.hardware.items():
        if node != REPORTING_NODES[1]:
            hardware.unreported_losses.clear()
    for _ in range(6):
        await rounds(stack, 1)
        assert (await link(stack, name))["state"] == "Down", "at no moment is it believed"
    assert await at_fault() == [name]


async def test_findings_survive_a_restart_and_are_cleared(tmp_path):
    stack = LinkStack(tmp_path, REPORTING_NODES)
    await rounds(stack, 3)
    stack.hardware[REPORTING_NODES[1]].unreported_losses["ub-p3-k11"] = 0.0
    name = f"{REPORTING_NODES[1]}.ub-p3-k11"

    async def found():
        return (await link(stack, name))["state"] == "Down"

    await await_detection(stack, found)
    stack.database.close()
    stack.restart()
    assert await found()
    assert stack.slice_controller().fabric.rate(REPORTING_NODES[1], "ub-p3-k11") == 0
    await rounds(stack, 3)
    assert await found()
    stack.hardware[REPORTING_NODES[1]].unreported_losses.clear()

    async def repaired():
        return not await found()

    await await_detection(stack, repaired)


async def test_dead_nodes_and_reported_ports_are_not_silent_faults(tmp_path):
    stack = LinkStack(tmp_path, REPORTING_NODES)
    stack.hardware[REPORTING_NODES[2]].powered = False
    stack.silent.add(REPORTING_NODES[2])
    stack.hardware[REPORTING_NODES[3]].ports["ub-p1-k01"] = 0.0
    await rounds(stack, 6)
    assert (await stack.http.get("/v1/probes")).json()["atFault"] == {}
    below = (await stack.http.get("/v1/links?filter=state!=Up")).json()["items"]
    assert [(each["name"], each["reason"]) for each in below] == [(f"{REPORTING_NODES[3]}.ub-p1-k01", "PortDown")]
