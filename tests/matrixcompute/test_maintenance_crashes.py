"""A maintenance whose MatrixCompute dies at any write and at anything it asks, before or after, comes to the same end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from matrixcommon.model.quantities import timestamp
from matrixcompute.maintenance.spec import MaintenanceView
from tests.matrixcompute.maintenance_world import Machine, World
from tests.matrixcompute.test_maintenance_decision import seen

FIRMWARE = {"target": {"cabinet": "sn0-c00"}, "action": "Firmware", "firmware": "b"}
SWITCH = {"target": {"switch": "sn0-l2p4-k11"}, "serviceS": 60}


def played(folder: Path, spec: dict[str, Any], crash_at: tuple[int, str] | None = None, abort: bool = False) -> tuple[MaintenanceView, Machine]:  # fmt: skip
    """The maintenance once it is over, and the machine then."""
    folder.mkdir()
    world = World(folder, Machine())
    world.put("fw", **spec)
    if abort:
        world.look()
        world.look()
        world.verbs.abort("fw")
    world.count_writes()
    world.machine.asked, world.machine.crash_at = 0, crash_at
    world.machine.moments.clear()
    return world.until_over("fw"), world.machine


def firmwares(machine: Machine) -> dict[str, str | None]:
    return {name: node.firmware for name, node in machine.found.items()}


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
    plain, machine = played(tmp_path / "plain", spec, abort=abort)
    assert plain.state == state
    assert len(machine.moments) > 4
    for number, moment in machine.moments:
        after, found = played(tmp_path / f"{number}-{moment}", spec, (number, moment), abort)
        assert found.crash_at is None, "it died"
        assert after.state == state, f"dead {moment} {number}"
        assert firmwares(found) == firmwares(machine)
        assert all(node.cordoned_by == [] and node.state == "Available" for node in found.found.values())
        assert found.drain is None


def test_failed_node_stops_the_rollout(tmp_path):
    world = World(tmp_path, Machine(4))
    world.machine.bad = {"sn0-c00-n1"}
    world.put("fw", **FIRMWARE)
    for _ in range(40):
        world.look()
    view = world.view("fw")
    assert [unit.state for unit in view.units] == ["Done", "Failed", "Pending", "Pending"]
    assert (view.state, view.phase_reason) == ("Running", "NoBudget")
    world.verbs.abort("fw")
    assert world.until_over("fw").state == "Aborted"
    left = world.machine.found["sn0-c00-n1"]
    assert (left.cordoned_by, left.state) == ([], "Servicing")
    assert "until somebody recovers it" in world.view("fw").units[1].message


def test_changed_maintenance_keeps_its_progress(tmp_path):
    world = World(tmp_path, Machine(3))
    world.put("fw", **FIRMWARE)
    while [unit.state for unit in world.view("fw").units][:2] != ["Done", "InService"]:
        world.look()
    found = world.machine.found
    found["sn0-c00-n3"] = seen("sn0-c00-n3")
    del found["sn0-c00-n1"], found["sn0-c00-n2"]
    changed = world.put("fw", **FIRMWARE, reason="longer", deadline=timestamp(world.clock.now() + 1e6))
    assert [(unit.name[-2:], unit.state) for unit in changed.units] == [
        ("n0", "Done"), ("n1", "InService"), ("n3", "Pending"),
    ], "what was not begun of those that are gone is forgotten"  # fmt: skip
    over = world.until_over("fw")
    assert [unit.state for unit in over.units] == ["Done", "Failed", "Done"]
    assert firmwares(world.machine) == {"sn0-c00-n0": "b", "sn0-c00-n3": "b"}


def test_repeated_request_finds_the_maintenance(tmp_path):
    """Its node does not come back, and is taken out of the inventory."""
    spec = {"target": {"node": "sn0-c00-n0"}, "action": "Firmware", "firmware": "b"}
    world = World(tmp_path, Machine())
    world.machine.bad = {"sn0-c00-n0"}
    world.put("fw", **spec)
    over = world.until_over("fw")
    assert over.state == "Failed"
    world.machine.found["sn0-c00-n0"] = seen("sn0-c00-n0", "Quarantined", desired_state="Quarantined")
    assert world.put("fw", **spec) == over
    del world.machine.found["sn0-c00-n0"]
    assert world.put("fw", **spec) == over
