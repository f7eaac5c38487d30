"""A maintenance whose MatrixCompute dies at any write and at anything it asks, before or after, comes to the same end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from matrixcommon.model.quantities import timestamp
from matrixcompute.maintenance.spec import MaintenanceView
from tests.matrixcompute.maintenance_harness import FakeMachine, MaintenanceHarness
from tests.matrixcompute.test_maintenance_decision import node_view

FIRMWARE = {"target": {"cabinet": "sn0-c00"}, "action": "Firmware", "firmware": "b"}
SWITCH = {"target": {"switch": "sn0-l2p4-k11"}, "serviceS": 60}


def run_with_crash(folder: Path, spec: dict[str, Any], crash_at: tuple[int, str] | None = None, abort: bool = False) -> tuple[MaintenanceView, FakeMachine]:  # fmt: skip
    """The maintenance once it is over, and the machine then."""
    folder.mkdir()
    harness = MaintenanceHarness(folder, FakeMachine())
    harness.put("fw", **spec)
    if abort:
        harness.reconcile()
        harness.reconcile()
        harness.verbs.abort("fw")
    harness.count_writes()
    harness.machine.request_count, harness.machine.crash_at = 0, crash_at
    harness.machine.moments.clear()
    return harness.run_until_over("fw"), harness.machine


def firmwares(machine: FakeMachine) -> dict[str, str | None]:
    return {name: node.firmware for name, node in machine.nodes_by_name.items()}


@pytest.mark.parametrize(
    ("spec", "abort", "state"),
    [
        (FIRMWARE, False, "Completed"),
        (FIRMWARE, True, "Aborted"),
        (SWITCH, False, "Completed"),
        (SWITCH, True, "Aborted"),
    ],
    ids=["one after another", "aborted", "switch", "switch aborted"],
)
def test_crash_at_any_moment_does_not_change_the_outcome(tmp_path, spec, abort, state):
    plain, machine = run_with_crash(tmp_path / "plain", spec, abort=abort)
    assert plain.state == state
    assert len(machine.moments) > 4
    for number, moment in machine.moments:
        after, found = run_with_crash(tmp_path / f"{number}-{moment}", spec, (number, moment), abort)
        assert found.crash_at is None, "it died"
        assert after.state == state, f"dead {moment} {number}"
        assert firmwares(found) == firmwares(machine)
        assert all(node.cordoned_by == [] and node.state == "Available" for node in found.nodes_by_name.values())
        assert found.drain is None


def test_failed_node_stops_the_rollout(tmp_path):
    harness = MaintenanceHarness(tmp_path, FakeMachine(4))
    harness.machine.bad = {"sn0-c00-n1"}
    harness.put("fw", **FIRMWARE)
    for _ in range(40):
        harness.reconcile()
    view = harness.view("fw")
    assert [unit.state for unit in view.units] == ["Done", "Failed", "Pending", "Pending"]
    assert (view.state, view.phase_reason) == ("Running", "NoBudget")
    harness.verbs.abort("fw")
    assert harness.run_until_over("fw").state == "Aborted"
    left = harness.machine.nodes_by_name["sn0-c00-n1"]
    assert (left.cordoned_by, left.state) == ([], "Servicing")
    assert "until somebody recovers it" in harness.view("fw").units[1].message


def test_changed_maintenance_keeps_its_progress(tmp_path):
    harness = MaintenanceHarness(tmp_path, FakeMachine(3))
    harness.put("fw", **FIRMWARE)
    while [unit.state for unit in harness.view("fw").units][:2] != ["Done", "InService"]:
        harness.reconcile()
    found = harness.machine.nodes_by_name
    found["sn0-c00-n3"] = node_view("sn0-c00-n3")
    del found["sn0-c00-n1"], found["sn0-c00-n2"]
    changed = harness.put("fw", **FIRMWARE, reason="longer", deadline=timestamp(harness.clock.now() + 1e6))
    assert [(unit.name[-2:], unit.state) for unit in changed.units] == [
        ("n0", "Done"), ("n1", "InService"), ("n3", "Pending"),
    ], "what was not begun of those that are gone is forgotten"  # fmt: skip
    over = harness.run_until_over("fw")
    assert [unit.state for unit in over.units] == ["Done", "Failed", "Done"]
    assert firmwares(harness.machine) == {"sn0-c00-n0": "b", "sn0-c00-n3": "b"}


def test_repeated_request_finds_the_maintenance(tmp_path):
    """Its node does not come back, and is taken out of the inventory."""
    spec = {"target": {"node": "sn0-c00-n0"}, "action": "Firmware", "firmware": "b"}
    harness = MaintenanceHarness(tmp_path, FakeMachine())
    harness.machine.bad = {"sn0-c00-n0"}
    harness.put("fw", **spec)
    over = harness.run_until_over("fw")
    assert over.state == "Failed"
    harness.machine.nodes_by_name["sn0-c00-n0"] = node_view("sn0-c00-n0", "Quarantined", desired_state="Quarantined")
    assert harness.put("fw", **spec) == over
    del harness.machine.nodes_by_name["sn0-c00-n0"]
    assert harness.put("fw", **spec) == over
