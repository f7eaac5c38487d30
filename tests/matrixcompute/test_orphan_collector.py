"""What an instance left behind: seen twice in a row, it is given back."""

from __future__ import annotations

import pytest

from matrixcommon.model.quantities import timestamp
from matrixcommon.workflows.verbs import abandon
from matrixcompute.autoscaling.policy import ScalingPolicyRequest, owner_of, resource_owner
from matrixcompute.clients.inference import OwnedDrain
from matrixcompute.contract import InstanceRequest
from matrixcompute.reconcilers.orphan_collector import OrphanCollector
from matrixcompute.store.store import InstanceRow, OperationRow, ScalingPolicyRow
from matrixresource.contract.allocations import CACHING_ON_LABEL, AllocationView
from matrixresource.contract.requested_capacity import PlacementPolicy
from tests.matrixcompute.workflow_harness import DO, RecordedWorkflow, open_and_wait_at, runner_process

EARLIER, LATER, LATEST = timestamp(0.0), timestamp(4e9), timestamp(5e9)


class FakeControlPlane:
    """One slice of instance `one`, and its allocation where it has one."""

    def __init__(self, allocated: bool, caching_on: str | None = None, asked_at: str = EARLIER) -> None:
        self._allocated, self._caching_on, self._asked_at = allocated, caching_on, asked_at
        self.withdrawn: list[str] = []
        self.released: list[str] = []

    async def slice_owners(self) -> dict[str, str]:
        return {"one-ub": "one"}

    async def allocations(self) -> list[AllocationView]:
        view = AllocationView(
            name=self._caching_on or "one", nodes=1, npus=8, spares=0, placement=PlacementPolicy(), topology_version="v", bound=True, members=[],
            created_at=LATER,
        )  # fmt: skip
        labels = {CACHING_ON_LABEL: self._caching_on or ""}
        memory = view.model_copy(update={"name": "r1-ems", "labels": labels, "created_at": self._asked_at})
        return ([view] if self._allocated else []) + ([memory] if self._caching_on else [])

    async def release(self, name: str) -> bool:
        self.released.append(name)
        return True

    async def withdraw(self, name: str) -> bool:
        self.withdrawn.append(name)
        return True


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("sentence", "allocated", "over", "withdrawn"),
    [
        ("a workflow may yet reserve its nodes", False, False, []),
        ("it has its nodes", True, True, []),
        ("its admission came after everything was given up", False, True, ["one-ub"]),
    ],
)
async def test_slice_of_an_instance_without_nodes_is_withdrawn(tmp_path, sentence, allocated, over, withdrawn):
    recorded, control_plane = RecordedWorkflow(1), FakeControlPlane(allocated)
    async with runner_process(tmp_path, recorded.workflow) as process:
        name = await open_and_wait_at(process, recorded, (DO, 0))
        if over:
            with process.store.transaction() as session:
                abandon(session.get_one(OperationRow, name), "cancelled", process.clock.now())
        collector = OrphanCollector(process.store, control_plane, process.clock)
        await collector.reconcile()
        assert control_plane.withdrawn == [], "one that is just being made is left alone"
        await collector.reconcile()
        assert control_plane.withdrawn == withdrawn, sentence


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("sentence", "instance", "allocated", "asked_at", "released"),
    [
        ("its instance is there", "one", False, LATEST, []),
        ("its instance is gone, and nobody else gave it back", "gone", False, LATEST, ["r1-ems"]),
        ("its nodes are somebody's who has no instance", "by-hand", True, LATEST, []),
        ("an instance of its name was made after it", "one", False, EARLIER, ["r1-ems"]),
        ("an instance of its name has other nodes since", "one", True, EARLIER, ["r1-ems"]),
        ("somebody has other nodes of that name since", "by-hand", True, EARLIER, ["r1-ems"]),
    ],
)
async def test_cache_memory_is_released_with_its_instance(tmp_path, sentence, instance, allocated, asked_at, released):
    recorded = RecordedWorkflow(1)
    control_plane = FakeControlPlane(allocated, instance, asked_at)
    async with runner_process(tmp_path, recorded.workflow) as process:
        await open_and_wait_at(process, recorded, (DO, 0))
        collector = OrphanCollector(process.store, control_plane, process.clock)
        await collector.reconcile()
        assert control_plane.released == []
        await collector.reconcile()
        assert control_plane.released == released, sentence


@pytest.mark.looptime
async def test_resources_of_an_instance_created_meanwhile_are_kept(tmp_path):
    recorded = RecordedWorkflow(1)
    async with runner_process(tmp_path, recorded.workflow) as process:

        class Slow(FakeControlPlane):
            async def slice_owners(self) -> dict[str, str]:
                return {"first-ub": "first", "second-ub": "second"}

            async def withdraw(self, name: str) -> bool:
                process.open(instance="second")
                return await super().withdraw(name)

        control_plane = Slow(allocated=False)
        collector = OrphanCollector(process.store, control_plane, process.clock)
        await collector.reconcile()
        released = await collector.reconcile()
        assert control_plane.withdrawn == ["first-ub"]
        assert released.startswith("1 orphans released")


class Inference:
    """One deployment on instance `one`, of which a node drains for somebody."""

    def __init__(self, by: str) -> None:
        self.by = by
        self.undrained: list[str] = []

    async def drains(self) -> dict[str, OwnedDrain]:
        return {"chat": OwnedDrain(self.by, frozenset({"sn0-c00-n1"}), "one")}

    async def scales(self) -> dict[str, str]:
        return {}

    async def undrain(self, name: str) -> None:
        self.undrained.append(name)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("sentence", "policy", "instance", "undrained"),
    [
        ("its policy wants it", {"draining": ["sn0-c00-n1"]}, {}, []),
        ("its policy is gone", None, {}, ["chat"]),
        ("its policy wants others to leave", {"draining": ["sn0-c00-n2"]}, {}, ["chat"]),
        ("its policy has ended, and did not say so", {"draining": None}, {}, ["chat"]),
        ("its policy is gone, and who drained is leaving", None, {"generation": 2, "leaving": ["sn0-c00-n1"]}, []),
        ("the target is changed by somebody else", None, {"generation": 2, "leaving": ["sn0-c00-n3"]}, ["chat"]),
        (
            "the smaller target was refused for good", {"draining": None},
            {"generation": 2, "leaving": ["sn0-c00-n1"], "refused_generation": 2}, ["chat"],
        ),
    ],
)  # fmt: skip
async def test_drain_without_a_scaling_policy_is_withdrawn(tmp_path, sentence, policy, instance, undrained):
    recorded, inference = RecordedWorkflow(1), Inference(owner_of("few"))
    async with runner_process(tmp_path, recorded.workflow) as process:
        with process.store.transaction() as session:
            spec = InstanceRequest(nodes=4).wire()
            row = InstanceRow(name="one", project="default", labels={}, spec=spec, applied=spec, state="Active")
            row.generation = row.observed_generation = 1
            for field, value in instance.items():
                setattr(row, field, value)
            session.add(row)
            if policy is not None:
                body = ScalingPolicyRequest.model_validate({"scaleTargetRef": {"name": "one"}, "maxReplicas": 4})
                few = ScalingPolicyRow(name="few", project="default", state="Active", generation=1, target="one")
                few.declare(body)
                few.draining = policy["draining"]
                session.add(few)
        collector = OrphanCollector(process.store, FakeControlPlane(True), process.clock, inference)
        await collector.reconcile()
        assert inference.undrained == [], "who drained may just have left"
        await collector.reconcile()
        assert inference.undrained == undrained, sentence


@pytest.mark.looptime
@pytest.mark.parametrize(("by", "undrained"), [(resource_owner("one"), []), ("replace-node-one-1", ["chat"] * 3)])
async def test_drain_of_the_operator_is_kept(tmp_path, by, undrained):
    inference = Inference(by)
    async with runner_process(tmp_path, RecordedWorkflow(1).workflow) as process:
        collector = OrphanCollector(process.store, FakeControlPlane(True), process.clock, inference)
        for _ in range(3):
            await collector.reconcile()
    assert inference.undrained == undrained
