"""What a maintenance shows of what a neighbour refuses: once, for as long as it is refused so."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixcommon.model.errors import Conflict
from matrixcompute.contract import InstanceRequest
from matrixcompute.store.store import InstanceRow
from tests.matrixcompute.maintenance_harness import FakeMachine, MaintenanceHarness
from tests.matrixcompute.test_decisions import member

NODE = {"node": "sn0-c00-n0"}
SWITCH = {"switch": "sn0-l2p4-k11"}


class RefusingMachine(FakeMachine):
    """It refuses everything with `why`, as long as there is one."""

    why: str | None = "not now"

    def refuse(self) -> None:
        if self.why is not None:
            raise Conflict(self.why)

    async def ensure_drain(self, name: str, switch: str, reason: str) -> None:
        self.refuse()
        await super().ensure_drain(name, switch, reason)

    async def call_node_verb(self, node: str, verb: str, reason: str, firmware: str | None = None) -> None:
        self.refuse()
        await super().call_node_verb(node, verb, reason, firmware)


@pytest.mark.parametrize("target", [NODE, SWITCH])
def test_repeated_refusal_is_written_once(tmp_path: Path, target: dict[str, str]) -> None:
    machine = RefusingMachine()
    harness = MaintenanceHarness(tmp_path, machine)
    wake_ups = []
    harness.put("m", action="Service", target=target, serviceS=60)
    for _ in range(3):
        harness.reconcile()
    assert [(unit.reason, unit.message) for unit in harness.view("m").units] == [("Conflict", "not now")]
    before = harness.view("m")
    harness.reconciler.wake = lambda: wake_ups.append(None)
    for _ in range(5):
        harness.clock.at += 3.0
        harness.reconcile()
    assert harness.view("m") == before
    assert wake_ups == [], "what is refused is asked again at the next look"
    machine.why = "and not today"
    for _ in range(2):
        harness.reconcile()
    assert [unit.message for unit in harness.view("m").units] == ["and not today"]
    machine.why = None
    for _ in range(2):
        harness.reconcile()
    assert [unit.reason for unit in harness.view("m").units] != ["Conflict"]


class OccupiedMachine(FakeMachine):
    """Its first node is a member of instance `one`, and stays so."""

    def __init__(self) -> None:
        super().__init__()
        self._change("sn0-c00-n0", state="Active", allocation="one")

    async def call_node_verb(self, node: str, verb: str, reason: str, firmware: str | None = None) -> None:
        self._change(node, state="Draining", desired_state="Servicing")


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("Active", "Moving"),
        ("Stopped", "Moving"),
        ("Updating", "Moving"),
        ("Repairing", "InstanceChanging"),
        ("Starting", "InstanceChanging"),
        ("Failed", "InstanceFailed"),
    ],
)
def test_moving_is_reported_only_in_states_with_moves(tmp_path: Path, state: str, reason: str) -> None:
    harness = MaintenanceHarness(tmp_path, OccupiedMachine())
    with harness.store.transaction() as session:
        spec = InstanceRequest(nodes=1).wire()
        session.add(InstanceRow(name="one", project="default", labels={}, spec=spec, applied=spec, state="Active",
                                members=[member("sn0-c00-n0").wire()], ready_nodes=1))  # fmt: skip
    harness.put("m", action="Service", target=NODE, serviceS=60)
    harness.reconcile()
    with harness.store.transaction() as session:
        session.get_one(InstanceRow, "one").state = state
    for _ in range(3):
        harness.reconcile()
    view = harness.view("m")
    assert [(unit.state, unit.reason) for unit in view.units] == [("Draining", reason)]
    assert view.phase_reason == (reason if reason != "Moving" else "Rolling")
