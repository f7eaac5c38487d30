"""One look at all instances: what is refused of one of them keeps none of the others."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from matrixcommon.model.errors import Conflict, MatrixError, NotFound, Unavailable
from matrixcommon.model.planes import Plane
from matrixcompute.contract import InstanceRequest
from matrixcompute.model.observation import ObservedSlice
from matrixcompute.reconcilers.instances import InstanceReconciler
from matrixcompute.recovery.policy import RecoveryPolicy
from matrixcompute.store.store import InstanceRow
from matrixcompute.workflows.definitions import CREATE_INSTANCE, MOVE_INSTANCE
from matrixresource.contract.allocations import AllocationRequest, AllocationView
from matrixresource.contract.requested_capacity import PlacementPolicy
from tests.matrixcompute.test_decisions import member
from tests.matrixcompute.workflow_harness import RunnerProcess, runner_process

NODES = {"first": "sn0-c00-n0", "second": "sn0-c01-n0"}
"""Instances of one member each, on a node that drains."""


class FakeControlPlane:
    """What they show of the instances. `refuses`: whatever is asked of the first one is refused so."""

    def __init__(self, refuses: MatrixError) -> None:
        self._refuses = refuses

    async def allocations(self) -> list[AllocationView]:
        return [
            AllocationView(
                name=name, nodes=1, npus=8, spares=0, placement=PlacementPolicy(), topology_version="v", bound=True,
                members=[member(node).model_copy(update={"state": "Draining"})],
            )
            for name, node in NODES.items()
        ]  # fmt: skip

    async def slices(self) -> dict[str, list[ObservedSlice]]:
        return {
            name: [
                ObservedSlice(
                    name=f"{name}-{plane.value}", plane=plane, state="Active", generation=1, programmed=True,
                    floors_kept=True, members=(node,),
                )
                for plane in Plane
            ]
            for name, node in NODES.items()
        }  # fmt: skip

    async def draining(self) -> list[str]:
        return []

    async def find_allocation(self, name: str) -> AllocationView | None:
        return next((each for each in await self.allocations() if each.name == name), None)

    async def move(self, name: str, request: AllocationRequest, validate_only: bool = False) -> AllocationView | None:
        if name == "first":
            raise self._refuses
        return await self.find_allocation(name)


def reconciler_of_two(process: RunnerProcess, refuses: MatrixError, wake_ups: list[bool]) -> InstanceReconciler:
    """Who looks after both instances, which are Active."""
    spec = InstanceRequest(nodes=1).wire()
    with process.store.transaction() as session:
        for name in NODES:
            session.add(
                InstanceRow(
                    name=name, project="default", labels={}, spec=spec, applied=spec, state="Active", generation=1,
                    observed_generation=1, conditions=[], members=[], slices=[],
                )
            )  # fmt: skip
    return InstanceReconciler(
        process.store, FakeControlPlane(refuses), process.runner, process.clock, RecoveryPolicy(), lambda: wake_ups.append(True)  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("refuses", "blocked"),
    [
        (Unavailable("MatrixResource is away"), False),
        (NotFound("there is no allocation 'first'"), False),
        (Conflict("affinity refers to allocation 'home', which does not exist", field="affinity.allocations"), True),
    ],
)
async def test_refusal_for_one_instance_does_not_block_others(
    tmp_path: Path, refuses: MatrixError, blocked: bool
) -> None:
    async with runner_process(tmp_path, MOVE_INSTANCE) as process:
        wake_ups: list[bool] = []
        reconciler = reconciler_of_two(process, refuses, wake_ups)
        await reconciler.reconcile()
        with process.store.reading() as session:
            assert [each.target for each in process.store.open_operations(session)] == ["second"]
            events = {each.about: each.reason for each in process.store.events(session)}
        assert wake_ups, "its workflow is taken up at once"
        assert events == {"second": "Draining"} | ({"first": "DrainBlocked"} if blocked else {})


@pytest.mark.looptime
@pytest.mark.parametrize("wrong", [Conflict("an instance that is Stopped is not repaired"), KeyError("nodes")])
async def test_failing_instance_is_skipped_with_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wrong: Exception
) -> None:
    """Whatever is wrong with one, the others are looked after; once it is well again, so is that one."""
    observe = InstanceRow.observe

    def observed(row: InstanceRow, *what: Any) -> None:
        observe(row, *what)
        if row.name == "first":
            raise wrong

    async with runner_process(tmp_path, MOVE_INSTANCE) as process:
        reconciler = reconciler_of_two(process, Unavailable("nothing"), [])
        with monkeypatch.context() as context:
            context.setattr(InstanceRow, "observe", observed)
            for _ in range(2):
                assert "1 instance passed over" in await reconciler.reconcile()
        assert "an instance is passed over" in caplog.text
        with process.store.reading() as session:
            assert [each.target for each in process.store.open_operations(session)] == ["second"]
            events = [(each.about, each.reason) for each in process.store.events(session)]
            assert sorted(events) == [("first", "InternalError"), ("second", "Draining")], "said once"
            assert session.get_one(InstanceRow, "first").members == [], "nothing of the broken look is written"
        await asyncio.sleep(11)
        assert "passed over" not in await reconciler.reconcile()
        with process.store.reading() as session:
            assert session.get_one(InstanceRow, "first").members != []


@pytest.mark.looptime
async def test_failing_instance_backs_off_exponentially_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe, tried = InstanceRow.observe, list[float]()

    async with runner_process(tmp_path, MOVE_INSTANCE) as process:

        def observed(row: InstanceRow, *what: Any) -> None:
            if row.name == "first":
                tried.append(process.clock.now())
                raise KeyError("nodes")
            observe(row, *what)

        monkeypatch.setattr(InstanceRow, "observe", observed)
        reconciler = reconciler_of_two(process, Unavailable("nothing"), [])
        for _ in range(2000):
            assert "1 instance passed over" in await reconciler.reconcile()
            await asyncio.sleep(1)
        rests = [after - before for before, after in itertools.pairwise(tried)]
        assert rests == [5, 10, 20, 40, 80, 160, *[320] * 5]
        with process.store.transaction() as session:
            session.get_one(InstanceRow, "first").labels = {"new": "yes"}
        await reconciler.reconcile()
        assert tried[-1] == process.clock.now()
        with process.store.transaction() as session:
            session.delete(session.get_one(InstanceRow, "first"))
        assert "passed over" not in await reconciler.reconcile()


@pytest.mark.looptime
async def test_skipped_instance_does_not_take_a_retry_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both wait for room for the same, and the faulty one does so for longer."""
    observe = InstanceRow.observe

    def observed(row: InstanceRow, *what: Any) -> None:
        if row.name == "first":
            raise KeyError("nodes")
        observe(row, *what)

    class Full(FakeControlPlane):
        async def allocations(self) -> list[AllocationView]:
            return []

    monkeypatch.setattr(InstanceRow, "observe", observed)
    async with runner_process(tmp_path, CREATE_INSTANCE) as process:
        reconciler_of_two(process, Unavailable("nothing"), [])
        reconciler = InstanceReconciler(
            process.store, Full(Unavailable("nothing")), process.runner, process.clock, RecoveryPolicy(), lambda: None  # type: ignore[arg-type]
        )  # fmt: skip
        with process.store.transaction() as session:
            for name in NODES:
                row = session.get_one(InstanceRow, name)
                row.state, row.applied, row.retry_at = "Pending", None, 31.0 + (name == "second")
        await asyncio.sleep(100)
        await reconciler.reconcile()
        with process.store.reading() as session:
            assert [each.target for each in process.store.open_operations(session)] == ["second"]
