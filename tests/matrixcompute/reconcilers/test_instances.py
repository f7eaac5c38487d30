"""One look at all instances: what is refused of one of them keeps none of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixcommon.model.errors import Conflict, MatrixError, NotFound, Unavailable
from matrixcommon.model.planes import Plane
from matrixcompute.contract import InstanceRequest
from matrixcompute.model.observation import ObservedSlice
from matrixcompute.reconcilers.instances import InstanceReconciler
from matrixcompute.recovery.policy import RecoveryPolicy
from matrixcompute.store.store import InstanceRow
from matrixcompute.workflows.definitions import MOVE_INSTANCE
from matrixresource.contract.allocations import AllocationRequest, AllocationView, PlacementPolicy
from tests.matrixcompute.test_decisions import member
from tests.matrixcompute.workflow_world import a_process

NODES = {"first": "sn0-c00-n0", "second": "sn0-c01-n0"}
"""Instances of one member each, on a node that drains."""


class Neighbours:
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


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("refuses", "blocked"),
    [
        (Unavailable("MatrixResource is away"), False),
        (NotFound("there is no allocation 'first'"), False),
        (Conflict("there is no allocation 'home' for the affinity", field="affinity.allocations"), True),
    ],
)
async def test_what_is_refused_of_one_instance_keeps_none_of_the_others(
    tmp_path: Path, refuses: MatrixError, blocked: bool
) -> None:
    async with a_process(tmp_path, MOVE_INSTANCE) as process:
        spec = InstanceRequest(nodes=1).wire()
        with process.store.transaction() as session:
            for name in NODES:
                session.add(
                    InstanceRow(
                        name=name, project="default", labels={}, spec=spec, applied=spec, state="Active", generation=1,
                        observed_generation=1, conditions=[], members=[], slices=[],
                    )
                )  # fmt: skip
        woken: list[bool] = []
        reconciler = InstanceReconciler(
            process.store, Neighbours(refuses), process.runner, process.clock, RecoveryPolicy(), lambda: woken.append(True)  # type: ignore[arg-type]
        )  # fmt: skip
        await reconciler.reconcile()
        with process.store.reading() as session:
            assert [each.target for each in process.store.open_operations(session)] == ["second"]
            events = {each.instance: each.reason for each in process.store.events(session)}
        assert woken, "its workflow is taken up at once"
        assert events == {"second": "Draining"} | ({"first": "DrainBlocked"} if blocked else {})
