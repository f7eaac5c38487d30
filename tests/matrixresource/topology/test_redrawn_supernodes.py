"""Supernodes drawn anew, or taken out and put in again: what was known of their parts is known of what is there now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from matrixcommon.model.errors import Conflict
from matrixcommon.model.quantities import timestamp
from matrixresource.contract.agents import NodeReport, ReportAnswer
from matrixresource.contract.reservations import ReservationRequest
from matrixresource.contract.topology import SupernodeRequest
from matrixresource.nodes.expected_inventory import build_inventory
from matrixresource.store.topology_versions import topology_at
from matrixresource.topology import Supernode
from matrixresource.topology.deviations import Deviation
from matrixresource.topology.loading import load_spec
from matrixresource.topology.observed_graph import node_link
from matrixresource.topology.rewiring import apply_deviations
from tests.matrixresource.machine import Machine
from tests.matrixresource.topology.three_cabinets import three_cabinets

STAYS, GOES = "sn0-c00-n0", "sn0-c02-n3"
CABINET = [f"sn0-c02-n{node}" for node in range(4)]


class DrawnMachine(Machine):
    """Three cabinets, drawn without some nodes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, spec=load_spec(three_cabinets()))

    def draw(self, *without: str) -> None:
        graph = Supernode("sn0", self.spec).model_graph()
        drawn = node_link(apply_deviations(graph, [Deviation("NodeAbsent", node) for node in without]))
        self.topology_manager.ensure_supernode("sn0", SupernodeRequest(graph=drawn), by="me")

    def report(self, node: str, **more: Any) -> ReportAnswer:
        """A report of a node that has nothing to do, in the life that its agent is in."""
        self.sequence += 1
        with self.store.reading() as session:
            generation = next(row.generation for row in self.store.assignments(session) if row.name == node)
        report = {"node": node, "epoch": self.epoch, "sequence": self.sequence, "lease_s": 60, "status": "Clean"}
        return self.reports.process([NodeReport.model_validate(report | {"generation": generation} | more)])[0]

    def deviations(self) -> set[str]:
        with self.store.reading() as session:
            return {each.part for each in topology_at(session).deviations}

    def obstacles(self, *nodes: str) -> list[str | None]:
        with self.store.reading() as session:
            return [node.obstacle() for node in self.store.nodes(session, nodes)]


@pytest.fixture
def machine(tmp_path: Path) -> DrawnMachine:
    return DrawnMachine(tmp_path)


def test_a_cable_that_is_dark_is_so_in_another_drawing_too(machine: DrawnMachine) -> None:
    machine.report(STAYS, ports={"ub-p3-k11": None})
    machine.clock.at += 60
    machine.topology_manager.reconcile()
    assert machine.deviations() == {f"{STAYS}.ub-p3-k11"}
    machine.draw(GOES)
    machine.report(STAYS)  # of its ports an agent says what has changed
    machine.clock.at += 60
    machine.topology_manager.reconcile()
    assert machine.deviations() == {f"{STAYS}.ub-p3-k11"}


def test_a_node_that_comes_back_is_asked_what_it_consists_of(machine: DrawnMachine) -> None:
    lacking = build_inventory(machine.spec, ["dimm7"])
    machine.report(GOES, inventory=lacking)
    assert machine.obstacles(GOES) == ["InventoryMismatch"]
    machine.draw(GOES)
    machine.draw()
    assert machine.report(GOES).inventory_wanted, "its agent says that once in a life, unless it is asked"
    machine.report(GOES, inventory=lacking)
    assert machine.obstacles(GOES) == ["InventoryMismatch"]
    machine.topology_manager.remove_supernode("sn0", by="me")
    machine.topology_manager.ensure_supernode("sn0", SupernodeRequest(), by="me")
    assert machine.report(GOES).inventory_wanted


@pytest.mark.parametrize("closed", ["sn0", "sn0-c02"])
def test_a_node_that_is_drawn_into_a_closed_domain_takes_nobody(machine: DrawnMachine, closed: str) -> None:
    machine.draw(GOES)
    machine.topology_manager.close(closed, by="me")
    machine.draw()
    machine.report(GOES)
    assert machine.obstacles(GOES) == ["DomainClosed"]
    machine.topology_manager.open(closed, by="me")
    assert machine.obstacles(GOES) == [None]


def test_a_supernode_is_not_drawn_without_a_node_that_is_promised(machine: DrawnMachine) -> None:
    request = {"nodes": 12, "startsAt": timestamp(machine.clock.now() + 60), "durationS": 600}
    machine.allocator.reservations.put("later", ReservationRequest.model_validate(request))
    with pytest.raises(Conflict, match="later is promised nodes of sn0") as refused:
        machine.draw(GOES)
    assert refused.value.blocking == [{"domain": "sn0", "reservations": ["later"]}]
    machine.allocator.reservations.delete("later")
    machine.draw(GOES)


def test_a_closed_cabinet_that_is_drawn_no_more_comes_back_open(machine: DrawnMachine) -> None:
    machine.topology_manager.close("sn0-c02", by="me")
    machine.draw(*CABINET)
    with machine.store.reading() as session:
        assert topology_at(session).closed == frozenset()
    machine.draw()
    machine.report(GOES)
    assert machine.obstacles(GOES) == [None]
