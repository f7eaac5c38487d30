"""What is shown of the machine: per domain and in all, as numbers that nodes and allocations bear out, and as metrics."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from matrixcommon.model.errors import InsufficientCapacity
from matrixcommon.model.hardware_names import NodeName
from matrixresource.planning.capacity_report import CapacityReport
from services.resource.metrics import ResourceMetrics
from tests.matrixresource.machine import Machine


def test_every_cabinet_is_shown_as_it_is(tmp_path: Path) -> None:
    machine = Machine(tmp_path, supernodes=2)
    report = CapacityReport(machine.store, machine.allocator.ledger)
    empty = report.view()
    assert (empty.nodes, empty.nodes_up, empty.nodes_free, empty.npus_free, empty.utilisation) == (96, 96, 96, 768, 0)
    assert report.view() is empty, "nothing has changed, nothing is counted"
    machine.reserve("gang", nodes=6, spares=1)
    machine.reserve("part", npus=2)
    machine.reserve("pool", cpus=2)
    machine.allocator.cordon(NodeName("sn1-c05-n2"), True)
    seen = report.view()
    assert (seen.nodes, seen.nodes_up, seen.spares) == (96, 95, 1)
    assert seen.npus_free == 768 - 56 - 2 - 8
    assert seen.largest_block == {"cabinet": 4, "supernode": 47, "all": seen.nodes_free}
    assert sum(seen.nodes_by_state.values()) == sum(seen.nodes_by_health.values()) == 96
    cabinets = {each.domain: each for each in seen.cabinets}
    assert (len(cabinets), {each.nodes for each in seen.cabinets}) == (24, {4})
    shut = cabinets["sn1-c05"]
    assert (shut.up, shut.free, shut.allocated, shut.largest_block, shut.utilisation) == (3, 3, 0, 3, 0)
    with machine.store.reading() as session:
        for name, cabinet in cabinets.items():
            nodes = [node for node in machine.store.nodes(session) if node.node_name.cabinet == name]
            taken = [node for node in nodes if node.holder or node.shared_by]
            assert cabinet.allocated == len(taken)
            assert cabinet.free == sum(node.obstacle() is None for node in nodes)
            assert cabinet.spares == sum(node.role == "spare" for node in nodes)
    for supernode in seen.supernodes:
        inside = [each for each in seen.cabinets if each.domain.startswith(f"{supernode.domain}-")]
        for count in ("nodes", "up", "free", "allocated", "spares", "kept"):
            assert getattr(supernode, count) == sum(getattr(each, count) for each in inside), count
    assert cabinets[machine.allocation("gang").members[0].cabinet].utilisation == 1


def test_decisions_and_the_machine_are_reported_to_prometheus(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    registry = CollectorRegistry()
    metrics = ResourceMetrics(registry, machine.store, CapacityReport(machine.store, machine.allocator.ledger))
    machine.allocator.decided.append(metrics.record_decision)
    machine.reserve("a", nodes=3)
    machine.reserve("b", nodes=1, validate_only=True)
    with pytest.raises(InsufficientCapacity):
        machine.reserve("c", nodes=46)
    asyncio.run(metrics.update())

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("matrixresource_decisions_total", verb="reserve", outcome="Granted", reason="") == 1
    assert (
        value("matrixresource_decisions_total", verb="reserve", outcome="Refused", reason="InsufficientCapacity") == 1
    )
    assert value("matrixresource_decision_seconds_count", verb="reserve") == 2
    assert (
        value("matrixresource_nodes_free"),
        value("matrixresource_npus_free"),
        value("matrixresource_nodes", state="Reserved"),
    ) == (45, 360, 3)
    assert value("matrixresource_largest_block_nodes", level="supernode") == 45
    assert value("matrixresource_placeable_blocks", level="cabinet", nodes="4") == 11
    assert value("matrixresource_utilisation_ratio", level="supernode", domain="sn0") == pytest.approx(3 / 48)
    assert value("matrixresource_node_agents", agent="Connected") == 48
    assert value("matrixresource_defragmentations", state="Running") == 0
    machine.allocator.release("a")
    machine.report_all()
    asyncio.run(metrics.update())
    assert (value("matrixresource_nodes_free"), value("matrixresource_nodes", state="Reserved")) == (48, None), (
        "what is no more is not shown"
    )
