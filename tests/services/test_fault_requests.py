"""Faults over HTTP: every kind on a target it fits, refused by the field where it does not, and felt by who it impairs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from matrixcommon.model.hardware_names import NodeName
from matrixresource.agent.fault_catalogue import FAULT_KINDS
from matrixresource.agent.hardware import InjectedFault
from matrixresource.topology import Supernode
from matrixresource.topology.deviations import Deviation
from matrixresource.topology.graph_document import compile_document
from matrixresource.topology.loading import load_spec
from matrixresource.topology.observed_graph import node_link
from matrixresource.topology.rewiring import apply_deviations
from services.chassis.app import create_app
from services.matrixctl.commands.apply import fault_target
from services.node_agent.access import ACCESS
from services.node_agent.fleet.fleet import Fleet
from services.node_agent.main import all_routes
from tests.clocks import FixedClock
from tests.services.matrixctl.test_traffic import InMemoryFleetStore

NODE, OTHER = "sn0-c03-n2", "sn0-c04-n0"


class FleetServer:
    def __init__(self) -> None:
        self.memory = InMemoryFleetStore()
        self.clock = FixedClock()
        self.fleet = Fleet([NodeName(NODE), NodeName(OTHER)], self.memory, self.clock, 1)
        self.http = TestClient(create_app("agents", "Emulated nodes", all_routes(self.fleet, Path("no-stack")), ACCESS))

    def put(self, kind: str, target: str, **parameters: Any) -> Any:
        body = {"kind": kind, "target": target, "parameters": parameters}
        return self.http.put(f"/v1/faults/{kind}", json=body)


@pytest.fixture
def server() -> FleetServer:
    return FleetServer()


WELL = [
    ("node-down", NODE, {}),
    ("agent-hang", NODE, {}),
    ("npu-fault", NODE, {"npu": 3}),
    ("component-fault", NODE, {"component": "fan", "code": "x", "severity": "minor"}),
    ("missing-part", NODE, {"part": "npu5"}),
    ("stage-failure", NODE, {"stage": "npu-self-test", "why": "die 3 answers wrong"}),
    ("link-down", NODE, {"port": "ub-p*-k0?"}),
    ("link-degraded", NODE, {"port": "vpc", "share": 0.5}),
    ("cable-moved", NODE, {"port": "ub-p3-k11", "peer": "sn0-l2p3-k12"}),
    ("link-silent", NODE, {"port": "rdma-npu?-die0"}),
    ("link-slow", NODE, {"port": "ub-p3-k11", "share": 0.3}),
    ("switch-down", "sn0-l2p3-k11", {}),
    ("switch-silent", f"{NODE}-l1p3", {}),
    ("cabinet-power", "sn0-c03", {}),
    ("hbm-fault", NODE, {"npu": 3, "die": 1, "handling": "restart"}),
    ("slow-node", NODE, {"factor": 3.5}),
    ("vpc-card-fault", NODE, {}),
    ("rdma-nic-fault", NODE, {"npu": 5}),
    ("link-flapping", NODE, {"port": "rdma-npu5-die0", "periodS": 20}),
    ("messages-lost", NODE, {"share": 0.5}),
    ("messages-delayed", NODE, {"delayS": 45}),
    ("messages-doubled", NODE, {}),
    ("tables-lost", NODE, {}),
    ("tables-corrupted", NODE, {"slice": "a-ub"}),
]


def test_every_kind_is_tried() -> None:
    assert {kind for kind, _, _ in WELL} == set(FAULT_KINDS)


@pytest.mark.parametrize(("kind", "target", "parameters"), WELL)
def test_a_fault_is_put_kept_and_cleared(
    server: FleetServer, kind: str, target: str, parameters: dict[str, Any]
) -> None:
    assert server.put(kind, target, **parameters).status_code == 200
    again = Fleet(list(server.fleet.nodes), server.memory, FixedClock(), 1)
    seen = [
        (node.powered, node.agents_run, node.ports, node.unreported_losses, node.moved)
        for node in server.fleet.nodes.values()
    ]
    assert seen == [
        (node.powered, node.agents_run, node.ports, node.unreported_losses, node.moved) for node in again.nodes.values()
    ]
    assert server.http.delete(f"/v1/faults/{kind}").status_code == 204
    assert all(node.ports_healthy and node.agents_run and not node.codes for node in server.fleet.nodes.values())


@pytest.mark.parametrize(
    ("kind", "target", "parameters", "field"),
    [
        ("link-silent", NODE, {"port": "ub-p9-k99"}, "parameters.port"),
        ("link-silent", NODE, {"port": "xe-*"}, "parameters.port"),
        ("cabinet-power", NODE, {}, "target"),
        ("cabinet-power", "sn0-c09", {}, "target"),
        ("node-down", "sn0-c03", {}, "target"),
        ("hbm-fault", NODE, {"npu": 8}, "parameters.npu"),
        ("hbm-fault", NODE, {"handling": "prayer"}, "parameters.handling"),
        ("rdma-nic-fault", NODE, {"npu": -1}, "parameters.npu"),
        ("slow-node", NODE, {"factor": 0.5}, "parameters.factor"),
        ("link-flapping", NODE, {"port": "vpc", "periodS": 0}, "parameters.periodS"),
        ("link-flapping", NODE, {"port": "xe-*"}, "parameters.port"),
        ("messages-lost", NODE, {"share": 2}, "parameters.share"),
        ("messages-delayed", NODE, {"delayS": "long"}, "parameters.delayS"),
        ("cable-moved", NODE, {"port": "ub-p3-*", "peer": "x"}, "parameters.port"),
        ("link-slow", NODE, {"port": "vpc"}, "parameters.share"),
        ("link-slow", NODE, {"port": "vpc", "share": 1}, "parameters.share"),
        ("link-silent", "sn0-l2p3-k11", {"port": "vpc"}, "target"),
        ("switch-down", NODE, {}, "target"),
        ("switch-down", "sn0-l2p7-k11", {}, "target"),
        ("switch-down", "sn1-l2p3-k11", {}, "target"),
        ("tables-lost", NODE, {"slice": 3}, "parameters.slice"),
        ("node-down", NODE, {"npu": 5}, "parameters.npu"),
        ("npu-fault", NODE, {"npu": 3, "nqu": 3}, "parameters.nqu"),
        ("cabinet-power", "sn0-c03", {"port": "vpc"}, "parameters.port"),
        ("switch-down", "sn0-l2p3-k11", {"share": 0.5}, "parameters.share"),
        ("component-fault", NODE, {"component": "x" * 41}, "parameters.component"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_field(
    server: FleetServer, kind: str, target: str, parameters: dict[str, Any], field: str
) -> None:
    answer = server.put(kind, target, **parameters)
    assert answer.status_code in (404, 422)
    assert answer.json()["field"] == field
    assert server.fleet.faults == {}


def test_a_chip_hurts_every_node(server: FleetServer) -> None:
    server.put("switch-down", "sn0-l2p3-k11")
    assert [node.ports for node in server.fleet.nodes.values()] == [{"ub-p3-k11": 0.0}] * 2


async def test_faults_on_a_node_that_was_taken_away_end_and_keep_no_other_from_acting(server: FleetServer) -> None:
    for name, node in (("gone", OTHER), ("stays", NODE)):
        parameters = {"port": "vpc", "periodS": 20}
        server.fleet.inject(InjectedFault(name=name, kind="link-flapping", target=node, parameters=parameters))
    graph = Supernode("sn0", server.fleet.spec).model_graph()
    away = [Deviation("NodeAbsent", node) for node in Supernode("sn0", server.fleet.spec).nodes() if node != NODE]
    drawn = node_link(apply_deviations(graph, away))
    server.fleet.rewire(Supernode("sn0", topology=compile_document(drawn, server.fleet.spec)))
    assert list(server.fleet.nodes) == [NODE]
    flapping = asyncio.create_task(server.fleet.background[0]())
    for _ in range(3):
        await asyncio.sleep(0)
    server.clock.at += 10
    server.fleet.inject(InjectedFault(name="more", kind="slow-node", target=NODE))  # the loop looks what is due
    for _ in range(3):
        await asyncio.sleep(0)
    assert not flapping.done()
    assert server.fleet.nodes[NodeName(NODE)].ports == {}, "it rests"
    flapping.cancel()
    assert server.http.delete("/v1/faults/gone").status_code == 204
    assert set(server.fleet.faults) == {"stays", "more"}


def test_what_the_graph_of_a_supernode_lacks_is_no_target(server: FleetServer) -> None:
    graph = Supernode("sn0", server.fleet.spec).model_graph()
    less = [
        Deviation("SwitchFailed", "sn0-l2p3-k11"),
        Deviation("NodeAbsent", OTHER),
        Deviation("CableDark", f"{NODE}.ub-p4-k00"),
    ]
    drawn = node_link(apply_deviations(graph, less))
    server.fleet.rewire(Supernode("sn0", topology=compile_document(drawn, server.fleet.spec)))
    for kind, target, parameters, field in (
        ("switch-down", "sn0-l2p3-k11", {}, "target"),
        ("switch-silent", f"{OTHER}-l1p3", {}, "target"),
        ("node-down", OTHER, {}, "target"),
        ("cable-moved", NODE, {"port": "ub-p3-k11", "peer": "sn0-l2p3-k12"}, "parameters.port"),
        ("link-down", NODE, {"port": "ub-p4-k00"}, "parameters.port"),
    ):
        answer = server.put(kind, target, **parameters)
        assert (answer.status_code in (404, 422), answer.json().get("field")) == (True, field), answer.text
        assert "name one like sn0-l2p3-k11" not in answer.json()["detail"], "an example that is there"
    assert server.put("switch-down", "sn0-l2p3-k12").status_code == 200
    assert server.put("link-silent", NODE, port="ub-p3-*").status_code == 200


def test_a_die_that_no_npu_of_the_machine_has_is_no_target() -> None:
    fleet = Fleet([NodeName(NODE)], InMemoryFleetStore(), FixedClock(), 1, load_spec("atlas-800i-a2"))
    http = TestClient(create_app("agents", "Emulated nodes", all_routes(fleet, Path("no-stack")), ACCESS))
    body = {"kind": "hbm-fault", "target": NODE, "parameters": {"npu": 3, "die": 1}}
    assert http.put("/v1/faults/hbm", json=body).json()["field"] == "parameters.die"
    body["parameters"] = {"npu": 3, "die": 0}
    assert http.put("/v1/faults/hbm", json=body).status_code == 200


def test_a_switch_is_a_target_on_the_command_line() -> None:
    assert fault_target("sn0-l2p3-k11") == ("sn0-l2p3-k11", {})
    assert fault_target(f"{NODE}-l1p3") == (f"{NODE}-l1p3", {})
    assert fault_target(f"{NODE}/ub-p*-k0?") == (NODE, {"port": "ub-p*-k0?"})
