"""Two projects have an instance of the same name: what a scenario says of one is read of that one."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcompute.model.composition import OWNER_LABEL
from matrixcompute.scenarios.readings import ReadContext, evaluate
from matrixcompute.scenarios.schema import Condition
from matrixcompute.scenarios.service_clients import ServiceClients, Snapshot
from matrixcompute.scenarios.targets import resolve_targets
from tests.matrixcompute.scenarios.example import scenario

OURS, THEIRS = {"project": "default"}, {"project": "team"}
LOW = {"floorKeptGbpsPerNpu": 1.0, "floorGbpsPerNpu": 40.0}
NOT_READY = {"state": "Failed", "conditions": [{"type": "Ready", "status": "False"}]}
READY = {"state": "Active", "conditions": [{"type": "Ready", "status": "True"}]}
SHOWN: dict[str, list[dict[str, Any]]] = {
    "instances": [
        OURS | READY | {"name": "demo", "repairs": 0, "members": [{"node": "sn0-c00-n0", "role": "member"}]},
        THEIRS | NOT_READY | {"name": "demo", "repairs": 3, "members": [{"node": "sn0-c00-n1", "role": "member"}]},
    ],
    "allocations": [{"name": "a", "labels": {OWNER_LABEL: owner}} for owner in ("gone", "gone", "team/gone", "demo")],
    "stuck": [THEIRS | {"name": "demo"}],
    "events": [THEIRS | {"name": "e1", "reason": "NodeReplaced", "about": "demo"}],
    "slices": [THEIRS | LOW | {"name": "demo-ub", "instance": "demo"}],
    "faults": [OURS | {"name": "f", "state": "Active", "instance": "team/demo"}],
    "nodes": [
        OURS | {"name": "sn0-c00-n0", "state": "Active", "allocation": "demo", "agent": "Connected"},
        OURS | {"name": "sn0-c00-n1", "state": "Active", "allocation": "team/demo", "agent": "Lost"},
    ],
}  # fmt: skip


class FakeClients(ServiceClients):
    """What the services show."""

    def __init__(self) -> None:
        super().__init__({})

    async def list_all(self, service: str, collection: str) -> list[dict[str, Any]]:
        return [] if (service, collection) == ("link", "events") else SHOWN[collection]


@pytest.mark.parametrize(
    ("condition", "ours", "theirs"),
    [
        ({"metric": "repairs", "min": 0}, 0, 3),
        ({"metric": "stuck", "min": 0}, 0, 1),
        ({"metric": "instances.active", "min": 0}, 1, 0),
        ({"metric": "instances.ready", "min": 0}, 1, 0),
        ({"metric": "instances.failed", "min": 0}, 0, 1),
        ({"metric": "faults.active", "min": 0}, 0, 1),
        ({"metric": "nodes.lost", "min": 0}, 0, 1),
        ({"metric": "slices.below-floor", "min": 0}, 0, 1),
        ({"event": "NodeReplaced", "min": 0}, 0, 1),
    ],
)
async def test_counts_are_scoped_to_the_project(condition: Any, ours: int, theirs: int) -> None:
    context, seen = ReadContext(scenario(), {}), {}
    for of in ("demo", "default/demo", "team/demo"):
        seen[of] = (await evaluate(Condition(**condition, of=of), Snapshot(FakeClients()), context)).number
    assert seen == {"demo": ours, "default/demo": ours, "team/demo": theirs}


async def test_orphans_are_scoped_to_the_project() -> None:
    context, seen = ReadContext(scenario(), {}), {}
    for of in ("gone", "team/gone", "demo", None):
        seen[of] = (await evaluate(Condition(metric="orphans", min=0, of=of), Snapshot(FakeClients()), context)).number
    assert seen == {"gone": 2, "team/gone": 1, "demo": 0, None: 3}


async def test_target_is_chosen_among_the_members_of_its_instance() -> None:
    for name, node in (("demo", "sn0-c00-n0"), ("team/demo", "sn0-c00-n1")):
        chosen = await resolve_targets(scenario("targets.victim.select.instance", name), Snapshot(FakeClients()), {})
        assert chosen == {"victim": [node]}
    for absent in ("other/demo", "team/demos"):
        with pytest.raises(Exception, match=f"there is no instance {absent}"):
            await resolve_targets(scenario("targets.victim.select.instance", absent), Snapshot(FakeClients()), {})
