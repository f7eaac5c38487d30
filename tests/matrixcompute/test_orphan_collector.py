"""What an instance left behind: seen twice in a row, it is given back."""

from __future__ import annotations

import pytest

from matrixcommon.workflows.verbs import abandon
from matrixcompute.reconcilers.orphan_collector import OrphanCollector
from matrixcompute.store.store import OperationRow
from matrixresource.contract.allocations import AllocationView, PlacementPolicy
from tests.matrixcompute.workflow_world import DO, World, a_process, waiting_at


class Neighbours:
    """One slice of instance `one`, and its allocation where it has one."""

    def __init__(self, allocated: bool) -> None:
        self._allocated = allocated
        self.withdrawn: list[str] = []

    async def slice_owners(self) -> dict[str, str]:
        return {"one-ub": "one"}

    async def allocations(self) -> list[AllocationView]:
        view = AllocationView(
            name="one", nodes=1, npus=8, spares=0, placement=PlacementPolicy(), topology_version="v", bound=True, members=[]
        )  # fmt: skip
        return [view] if self._allocated else []

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
async def test_a_slice_of_an_instance_without_nodes_is_withdrawn(tmp_path, sentence, allocated, over, withdrawn):
    world, neighbours = World(1), Neighbours(allocated)
    async with a_process(tmp_path, world.workflow) as process:
        name = await waiting_at(process, world, (DO, 0))
        if over:
            with process.store.transaction() as session:
                abandon(session.get_one(OperationRow, name), "cancelled", process.clock.now())
        collector = OrphanCollector(process.store, neighbours, process.clock)
        await collector.reconcile()
        assert neighbours.withdrawn == [], "one that is just being made is left alone"
        await collector.reconcile()
        assert neighbours.withdrawn == withdrawn, sentence
