"""What the watch of allocations says of a loss is shown at once, before anybody has looked at what is to be done."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from matrixcommon.api.client import WatchEvent
from matrixcommon.model.errors import Conflict, StaleLeader, Unavailable
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_model import is_condition_true
from matrixcompute.contract import InstanceRequest
from matrixcompute.model.observation import Observed, ObservedSlice
from matrixcompute.operations.context import YIELD_CAPACITY
from matrixcompute.operations.starter import WorkflowStarter
from matrixcompute.reconcilers.readiness import ReadinessUpdater
from matrixcompute.recovery.policy import RecoveryPolicy, plan_recovery
from matrixcompute.store.store import InstanceRow
from matrixcompute.workflows.definitions import WORKFLOWS, YIELD_INSTANCE
from matrixresource.contract.allocations import AllocationView
from matrixresource.contract.requested_capacity import PlacementPolicy
from tests.matrixcompute.test_decisions import member
from tests.matrixcompute.workflow_harness import RunnerProcess, runner_process

NODES = ("sn0-c00-n0", "sn0-c01-n0")
HEALTHY = [member(node) for node in NODES]
LOST = [member(NODES[0], agent="Lost", ready=False), member(NODES[1])]


def allocation(version: int, **changed: Any) -> AllocationView:
    whole = AllocationView(
        name="one", project="default", nodes=2, npus=16, spares=0, placement=PlacementPolicy(), topology_version="v",
        bound=True, state="Bound", members=HEALTHY, etag=f'"{version}"',
    )  # fmt: skip
    return whole.model_copy(update=changed)


def event(version: int, type: str = "MODIFIED", **changed: Any) -> WatchEvent:
    return WatchEvent(type, version, allocation(version, **changed).wire())


def ready_instance(process: RunnerProcess) -> ReadinessUpdater:
    """An instance that is Ready, and who hears of it; the last look saw version 5 of its allocation."""
    spec = InstanceRequest(nodes=2).wire()
    slices = tuple(
        ObservedSlice(name=f"one-{plane.value}", plane=plane, state="Active", generation=1, programmed=True, floors_kept=True)
        for plane in Plane
    )  # fmt: skip
    updater, seen = ReadinessUpdater(process.store, process.clock), allocation(5)
    with process.store.transaction() as session:
        row = InstanceRow(
            name="one", project="default", labels={}, spec=spec, applied=spec, state="Active", generation=1,
            observed_generation=1, conditions=[], members=[], slices=[],
        )  # fmt: skip
        session.add(row)
        row.observe(Observed(seen, slices), plan_recovery(HEALTHY, [], RecoveryPolicy(), [], 0.0), process.clock.now())
    updater.mark_observed({"one": seen})
    return updater


def read_condition(process: RunnerProcess) -> tuple[bool, str, str, int]:
    with process.store.reading() as session:
        row = session.get_one(InstanceRow, "one")
        ready = row.find_condition("Ready") or {}
        return is_condition_true(row.conditions, "Ready"), ready["reason"], ready["message"], row.ready_nodes


READY = True, "Ready", "serves", 2
NONE_LEFT = False, "NotServing", "0 of 2 members are active", 0

CASES: list[tuple[str, WatchEvent | None, bool, tuple[bool, str, str, int]]] = [
    ("nothing new", event(6), False, READY),
    ("a break of the watch", None, False, READY),
    ("a member is lost", event(6, members=LOST), True, (False, "NotServing", f"1 of 2 members are active (agent silent: {NODES[0]})", 1)),
    ("a member is not heard", event(6, members=[member(NODES[0], agent="Stale", ready=False), HEALTHY[1]]), False,
     (False, "NotServing", f"1 of 2 members are active (agent silent: {NODES[0]})", 1)),
    ("it was preempted", event(6, state="Releasing"), True, NONE_LEFT),
    ("its nodes are gone", event(6, "DELETED"), True, NONE_LEFT),
    ("it goes on with one", event(6, nodes=1, members=HEALTHY[1:]), False, (True, "Ready", "serves with 1 of 2 nodes", 1)),
    ("what was so before the last look", event(5, members=LOST), True, READY),
]  # fmt: skip


@pytest.mark.looptime
@pytest.mark.parametrize(("sentence", "heard", "urgent", "after"), CASES, ids=[each[0] for each in CASES])
async def test_ready_condition_follows_allocation_events(
    tmp_path: Path,
    sentence: str,
    heard: WatchEvent | None,
    urgent: bool,
    after: tuple[bool, str, str, int],
) -> None:
    async with runner_process(tmp_path, *WORKFLOWS.values()) as process:
        updater = ready_instance(process)
        assert read_condition(process) == READY
        assert updater.observe(heard) is urgent
        assert read_condition(process) == after


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("wrong", "logged"), [(Conflict("an illegal move"), 1), (StaleLeader("another leads"), 0), (Unavailable("away"), 0)]
)
async def test_instance_errors_are_logged_and_service_errors_are_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wrong: Exception, logged: int
) -> None:
    """A replica that another has overtaken is no fault of the program: seed 3121 of 1,000 events was one."""
    async with runner_process(tmp_path, *WORKFLOWS.values()) as process:
        updater = ready_instance(process)

        def refused(*_: Any) -> bool:
            raise wrong

        monkeypatch.setattr(updater, "_update_instance", refused)
        with nullcontext() if logged else pytest.raises(type(wrong)):
            assert updater.observe(event(6, members=LOST)) is True
        assert [each.levelname for each in caplog.records if "passed over" in each.message] == ["ERROR"] * logged


@pytest.mark.looptime
async def test_requested_release_is_not_a_loss(tmp_path: Path) -> None:
    async with runner_process(tmp_path, *WORKFLOWS.values()) as process:
        updater = ready_instance(process)
        with process.store.transaction() as session:
            session.get_one(InstanceRow, "one").enter("Deleting", process.clock.now())
        assert read_condition(process)[:3] == (False, "Deleting", "the instance is Deleting"), "it says so from then on"
        assert updater.observe(event(6, state="Releasing")) is False


@pytest.mark.looptime
async def test_preempted_instance_shows_its_state(tmp_path: Path) -> None:
    """A reason of Ready that is a state is the present one."""
    async with runner_process(tmp_path, YIELD_INSTANCE) as process:
        updater = ready_instance(process)
        updater.observe(event(6, state="Releasing"))
        starter = WorkflowStarter(process.store, process.runner, process.clock)
        with process.store.transaction() as session:
            starter.open(session, YIELD_CAPACITY, session.get_one(InstanceRow, "one"), "Pending", "Preempted")
        assert read_condition(process)[:3] == (False, "Pending", "the instance is Pending")
