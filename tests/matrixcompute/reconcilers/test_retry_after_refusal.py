"""An instance whose change waits for `:retry` is looked after all the same."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from matrixcommon.model.planes import Plane
from matrixcompute.contract import InstanceRequest
from matrixcompute.model.observation import ObservedSlice
from matrixcompute.reconcilers.instances import InstanceReconciler
from matrixcompute.recovery.policy import RecoveryPolicy
from matrixcompute.store.store import InstanceRow, OperationRow
from matrixcompute.workflows.definitions import (
    MOVE_INSTANCE,
    RELOCATE_MEMBER,
    REPLACE_NODE,
    RESTART_INSTANCE,
    SCALE_INSTANCE,
)
from matrixresource.contract.allocations import AllocationView
from matrixresource.contract.nodes import Power
from matrixresource.contract.requested_capacity import PlacementPolicy
from tests.matrixcompute.test_decisions import member
from tests.matrixcompute.workflow_harness import RunnerProcess, runner_process

pytestmark = pytest.mark.looptime

NODE = "sn0-c00-n0"
SPEC = InstanceRequest(nodes=1)


class FakeControlPlane:
    """They show one instance of one member."""

    def __init__(self, agent: str = "Connected", power: Power = "On", moves: bool = False) -> None:
        self._power = power
        self._members = [member(NODE, agent=agent)] + [member("sn0-c01-n0", "successor")] * moves

    async def allocations(self) -> list[AllocationView]:
        return [
            AllocationView(
                name="one", nodes=1, npus=8, spares=0, placement=PlacementPolicy(), topology_version="v", bound=True,
                power=self._power, members=self._members,
            )
        ]  # fmt: skip

    async def slices(self) -> dict[str, list[ObservedSlice]]:
        each = {"state": "Active", "generation": 1, "programmed": True, "floors_kept": True, "members": (NODE,)}
        return {"one": [ObservedSlice(name=f"one-{plane.value}", plane=plane, **each) for plane in Plane]}

    async def draining(self) -> list[str]:
        return []

    async def out_of_service(self) -> list[str]:
        return [NODE]


def create_waiting(process: RunnerProcess, last: str, state: str, retry_at: float = math.inf) -> None:
    """One that is Active, and of which the last operation ended so."""
    with process.store.transaction() as session:
        instance = InstanceRow(
            name="one", project="default", labels={}, spec=SPEC.wire(), applied=SPEC.wire(), state="Active",
            generation=1, observed_generation=1, conditions=[], members=[], slices=[], retry_at=retry_at,
        )  # fmt: skip
        session.add(instance)
        row = process.runner.open(session, last, instance)
        row.state, row.finished_at = state, 0.0


async def opened_verbs(process: RunnerProcess, control_plane: FakeControlPlane) -> list[str]:
    """The verbs that a look opens."""
    policy = RecoveryPolicy()
    await InstanceReconciler(
        process.store, control_plane, process.runner, process.clock, policy, lambda: None  # type: ignore[arg-type]
    ).reconcile()  # fmt: skip
    with process.store.reading() as session:
        return [each.verb for each in process.store.open_operations(session)]


@pytest.mark.parametrize(
    ("sentence", "last", "state", "verbs"),
    [
        ("a change was abandoned", "scale-instance", "Failed", ["replace-node"]),
        ("and somebody was replaced since", "replace-node", "Done", ["replace-node"]),
        ("it is the repair that waits", "replace-node", "Failed", []),
    ],
)
async def test_failed_member_is_replaced_unless_its_repair_was_refused(
    tmp_path: Path, sentence: str, last: str, state: str, verbs: list[str]
) -> None:
    async with runner_process(tmp_path, REPLACE_NODE, SCALE_INSTANCE) as process:
        create_waiting(process, last, state)
        assert await opened_verbs(process, FakeControlPlane(agent="Lost")) == verbs, sentence


async def test_forgotten_operation_may_be_a_waiting_repair(tmp_path: Path) -> None:
    async with runner_process(tmp_path, REPLACE_NODE) as process:
        create_waiting(process, "replace-node", "Failed")
        with process.store.transaction() as session:
            for row in session.query(OperationRow):
                session.delete(row)
        assert await opened_verbs(process, FakeControlPlane(agent="Lost")) == []


@pytest.mark.parametrize(
    ("sentence", "retry_at", "power", "verbs"),
    [
        ("its nodes are on", 0.0, "On", []),
        ("a restart was abandoned while they were off, and `:retry` asks for them", 0.0, "Off", ["scale-instance"]),
        ("nobody asks yet", math.inf, "Off", []),
    ],
)
async def test_retry_powers_on_nodes_of_an_abandoned_restart(
    tmp_path: Path, sentence: str, retry_at: float, power: Power, verbs: list[str]
) -> None:
    async with runner_process(tmp_path, RESTART_INSTANCE, SCALE_INSTANCE) as process:
        create_waiting(process, "restart-instance", "Failed", retry_at)
        assert await opened_verbs(process, FakeControlPlane(power=power)) == verbs, sentence


@pytest.mark.parametrize("last", ["move-instance", "relocate-member"])
@pytest.mark.parametrize(
    ("sentence", "retry_at", "moves", "verbs"),
    [
        ("it left nothing", 0.0, False, []),
        ("successors are there, and `:retry` asks for an end", 0.0, True, ["move-instance"]),
        ("nobody asks yet", math.inf, True, []),
    ],
)
async def test_retry_finishes_an_abandoned_move(
    tmp_path: Path, last: str, sentence: str, retry_at: float, moves: bool, verbs: list[str]
) -> None:
    async with runner_process(tmp_path, MOVE_INSTANCE, RELOCATE_MEMBER, SCALE_INSTANCE) as process:
        create_waiting(process, last, "Failed", retry_at)
        assert await opened_verbs(process, FakeControlPlane(moves=moves)) == verbs, sentence
