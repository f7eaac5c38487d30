"""What a maintenance shows of what a neighbour refuses: once, for as long as it is refused so."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from matrixcommon.model.errors import Conflict
from matrixcompute.contract import InstanceRequest
from matrixcompute.instances.disruption_budgets import DisruptionBudgets
from matrixcompute.maintenance.budgets import DisruptionBudgetRequest
from matrixcompute.store.disruption_budgets import DisruptionBudgetRow
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


class GrowingMachine(FakeMachine):
    """Its supernodes can be changed."""

    supernodes: tuple[str, ...] = ("sn0",)

    async def domains(self, filter: str) -> list[Any]:
        assert filter == "level=supernode"
        return [SimpleNamespace(name=name) for name in self.supernodes]


def test_budget_is_inactive_while_its_supernode_does_not_exist(tmp_path: Path) -> None:
    machine = GrowingMachine()
    harness = MaintenanceHarness(tmp_path, machine)
    budgets = DisruptionBudgets(harness.store, machine, harness.clock)  # type: ignore[arg-type]

    def ensure(**spec: Any) -> tuple[str, str]:
        view = asyncio.run(budgets.ensure("b", DisruptionBudgetRequest.model_validate({"nodes": "1", **spec})))
        return view.state, view.message

    def view_after_pass() -> tuple[str, str]:
        harness.reconcile()
        with harness.store.reading() as session:
            view = session.get_one(DisruptionBudgetRow, "b").view()
        return view.state, view.message

    missing = ("Inactive", "it limits nothing: there is no supernode sn1 in the inventory; there are sn0")
    assert ensure() == ("Active", "")
    assert ensure(supernode="sn1") == missing
    assert view_after_pass() == missing
    machine.supernodes = ("sn0", "sn1")
    assert view_after_pass() == ("Active", "")
    machine.supernodes = ("sn0",)
    assert view_after_pass() == missing
    assert ensure(supernode="sn0") == ("Active", "")


def test_instance_is_notified_of_each_maintenance_once_and_of_its_end(tmp_path: Path) -> None:
    harness = MaintenanceHarness(tmp_path, FakeMachine())
    with harness.store.transaction() as session:
        spec = InstanceRequest(nodes=2).wire()
        members = [member(node).wire() for node in ("sn0-c00-n0", "sn0-c00-n1")]
        session.add(InstanceRow(name="one", project="default", labels={}, spec=spec, applied=spec, state="Active",
                                members=members, ready_nodes=2))  # fmt: skip

    def notices() -> list[tuple[str, str]]:
        harness.reconcile()
        with harness.store.transaction() as session:
            events = harness.store.events(session)
            found = [(each.reason, each.message) for each in events]
            for each in events:
                session.delete(each)
        return found

    later = {"notBefore": "2100-01-01T00:00:00Z"}
    harness.put("a", action="Service", target=NODE, serviceS=60, reason="fan; left", **later)
    assert [reason for reason, _ in notices()] == ["MaintenanceScheduled"]
    harness.put("b", action="Service", target={"node": "sn0-c00-n1"}, serviceS=60, **later)
    [(reason, message)] = notices()
    assert (reason, message.startswith("maintenance b of node sn0-c00-n1, ")) == ("MaintenanceScheduled", True)
    assert notices() == []
    harness.verbs.abort("a")
    assert notices() == [
        ("MaintenanceEnded", "maintenance a of node sn0-c00-n0 is Aborted: 0 of 1 done; it was aborted")
    ]
    harness.verbs.delete("b")
    assert notices() == [("MaintenanceEnded", "maintenance b was deleted")]
    assert notices() == []


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
