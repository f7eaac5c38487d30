"""The steps that ask the workload, with a CloudMatrix-Infer that answers as the test says: how long each waits, what it
asks, and what ends the wait."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pytest

from matrixcommon.model.errors import Conflict, InsufficientCapacity, StaleGeneration, Unavailable
from matrixcommon.model.quantities import timestamp
from matrixcommon.workflows.verbs import abandon
from matrixcommon.workflows.workflow import StepPending
from matrixcompute.autoscaling.policy import owner_of, resource_owner
from matrixcompute.clients.inference import OwnedDrain
from matrixcompute.contract import InstanceRequest
from matrixcompute.reconcilers.orphan_collector import OrphanCollector
from matrixcompute.recovery.ladder import RungTried
from matrixcompute.recovery.policy import RecoveryPolicy
from matrixcompute.store.store import OperationRow, ScalingPolicyRow
from matrixcompute.workflows.workload_steps import (
    GRACE_S,
    SERVING_TIMEOUT_S,
    UNANSWERED_MAX,
    await_loaded,
    await_serving,
    drain_members,
    leave_successors,
    tell_workload,
    withdraw_drains,
)
from matrixresource.contract.allocations import AllocationView, MemberView
from tests.clocks import FixedClock
from tests.matrixcompute.test_drain_notice import A, B, C, member
from tests.matrixcompute.workflow_harness import DO, RecordedWorkflow, open_and_wait_at, runner_process

OPERATION = "move-instance-one-1"


class Inference:
    """One deployment, `one`, on the instance."""

    def __init__(self, **view: Any) -> None:
        given = {"state": "Serving", "readyNodes": [A, B, C], "fabricGeneration": 7}
        self.view: dict[str, Any] = given | view
        self.asked: list[dict[str, Any]] = []
        self.unavailable = self.withdrawn = False
        self.refuses: Exception | None = None
        self.answer: dict[str, Any] = {"requestsAtStart": 9}

    async def deployment_keys(self, instance: str) -> list[str]:
        if self.unavailable:
            raise Unavailable("no route")
        return ["one"]

    async def deployments_on(self, instance: str) -> dict[str, dict[str, Any]]:
        return dict.fromkeys(await self.deployment_keys(instance), self.view)

    async def drains(self) -> dict[str, OwnedDrain]:
        await self.deployment_keys("one")
        drain = self.view.get("drain") or {}
        by = drain.get("by")
        return {"one": OwnedDrain(by, frozenset(drain["nodes"]), "one")} if by else {}

    async def drain(self, name: str, nodes: list[str], **more: Any) -> dict[str, Any]:
        if self.refuses is not None:
            raise self.refuses
        if (by := (self.view.get("drain") or {}).get("by")) not in (None, more["by"]):
            raise Conflict(f"it drains for {by}")
        self.asked.append({"nodes": nodes, **more})
        return {"drain": self.answer}

    async def scales(self) -> dict[str, str]:
        await self.deployment_keys("one")
        by = (self.view.get("scale") or {}).get("by")
        return {"one": by} if by else {}

    async def unscale(self, name: str) -> None:
        self.withdrawn = True
        del self.view["scale"]

    async def undrain(self, name: str) -> None:
        self.withdrawn = True
        del self.view["drain"]


class ControlPlane:
    def __init__(self, members: list[MemberView]) -> None:
        self.members, self.full = members, False

    async def find_allocation(self, name: str) -> AllocationView:
        return AllocationView.model_construct(members=self.members, state="Bound", preempts=[], conditions=[])

    async def out_of_service(self) -> list[str]:
        return []

    async def replace(self, name: str, node: str, reason: str, validate_only: bool) -> None:
        assert validate_only
        if self.full:
            raise InsufficientCapacity("no node is free")

    async def fabric_generation(self, instance: str) -> int:
        return 7


@dataclass
class Context:
    """What a step is given. `took_s`: for how long it has been at this step."""

    inference: Any = field(default_factory=Inference)
    control_plane: Any = field(
        default_factory=lambda: ControlPlane([member(A), member(B, rank=1), member(C, role="successor")])
    )
    repair: bool = False
    took_s: float = 0.0
    failed: int = 0
    generation: int = 1
    operation: str = OPERATION
    instance: str = "one"
    spec_generation: int = 1
    requested_generation: int = 1
    shape: InstanceRequest = field(default_factory=lambda: InstanceRequest(nodes=2))
    clock: Any = field(default_factory=lambda: FixedClock(1000.0))
    events: list[str] = field(default_factory=list)
    notified_nodes: set[str] = field(default_factory=lambda: {A})

    def notified(self) -> set[str]:
        return self.notified_nodes

    def record_notified(self, nodes: Collection[str]) -> None:
        self.notified_nodes |= {*nodes}

    def started_at(self, step: str) -> float:
        return self.clock.now() - self.took_s

    def recovery_policy(self) -> RecoveryPolicy:
        return RecoveryPolicy()

    def failures(self, step: str) -> int:
        return self.failed

    def current_generation(self) -> int:
        return self.generation

    def rungs(self) -> list[RungTried] | None:
        return [] if self.repair else None

    def record_event(self, reason: str, message: str, warning: bool = False) -> None:
        self.events.append(reason)


def drain(state: str = "Draining", by: str = OPERATION, nodes: tuple[str, ...] = (A,)) -> dict[str, Any]:
    return {"state": state, "by": by, "nodes": [*nodes], "requests": 3, "deadlineAt": "2026-01-01T00:00:00Z"}


async def test_drain_names_its_operation_and_deadline():
    context = Context()
    await tell_workload(context)
    assert context.inference.asked == [{"nodes": [A], "deadlineS": 600.0, "by": OPERATION, "keepServing": False}]
    assert context.events == ["Draining"]


async def test_deployment_keeps_serving_during_an_in_place_repair():
    context = Context(repair=True, control_plane=ControlPlane([member(A, "FreeRestart"), member(B, rank=1)]))
    await tell_workload(context)
    assert context.inference.asked[0]["keepServing"]
    context.inference.view["drain"] = drain(nodes=(B,))
    await tell_workload(context)
    assert context.inference.asked[1]["nodes"] == [A, B], "nodes that drain for this operation do not serve meanwhile"
    context.inference.refuses = InsufficientCapacity("the remaining nodes cannot serve without the drained ones")
    await tell_workload(context)
    assert context.events == ["Draining", "Draining", "NotDrained"]


async def test_irreplaceable_member_keeps_serving():
    context = Context(repair=True, control_plane=ControlPlane([member(A, "ManuallySeparate"), member(B, rank=1)]))
    context.control_plane.full = True
    await tell_workload(context)
    assert (context.inference.asked, context.events) == ([], ["NotDrained"])
    context.control_plane.full = False
    await tell_workload(context)
    assert [(each["nodes"], each["keepServing"]) for each in context.inference.asked] == [([A], False)]


async def test_foreign_drain_is_not_replaced():
    context = Context()
    context.inference.refuses = Conflict("drains for another")
    await tell_workload(context)
    assert context.events == ["NotDrained"]


@pytest.mark.parametrize(
    ("by", "asked"), [(owner_of("few"), [[A]]), (resource_owner("one"), [[A]]), ("replace-node-one-2", [])]
)
async def test_operation_replaces_only_drains_that_are_requested_again(by, asked):
    context = Context(inference=Inference(drain=drain(by=by, nodes=(B,))))
    await tell_workload(context)
    assert [each["nodes"] for each in context.inference.asked] == asked
    assert context.events == (["Draining"] if asked else ["NotDrained"])


@pytest.mark.parametrize("step", [await_loaded, tell_workload, drain_members])
async def test_unanswered_request_is_retried_a_few_times(step):
    context = Context()
    context.inference.unavailable = True
    with pytest.raises(Unavailable):
        await step(context)
    context.failed = UNANSWERED_MAX
    await step(context)
    assert context.events == ["NotDrained"]


@pytest.mark.parametrize(
    ("sentence", "view", "took_s", "pending", "events"),
    [
        ("something runs there", {"drain": drain()}, 0.0, "3 requests still on", []),
        ("nothing does any more", {"drain": drain("Drained")}, 0.0, None, ["Drained"]),
        ("somebody has withdrawn it", {"drain": None}, 0.0, None, []),
        ("it is another's", {"drain": drain(by="move-instance-one-2")}, 0.0, None, []),
        ("its deadline has passed", {"drain": drain()}, 600.0 + GRACE_S + 1, None, ["DrainDeadline"]),
    ],
)
async def test_drain_members_waits_for_running_requests(sentence, view, took_s, pending, events):
    context = Context(inference=Inference(**view), took_s=took_s)
    if pending is None:
        await drain_members(context)
    else:
        with pytest.raises(StepPending, match=pending):
            await drain_members(context)
    assert context.events == events, sentence


@pytest.mark.parametrize("step", [await_loaded, drain_members])
async def test_superseded_move_or_lost_successor_rolls_back(step):
    with pytest.raises(StaleGeneration):
        await step(Context(inference=Inference(drain=drain()), generation=2))
    lost = [member(A), member(C, role="successor", agent="Lost", ready=False)]
    with pytest.raises(Conflict, match="have to be repaired before the move"):
        await step(Context(inference=Inference(drain=drain()), control_plane=ControlPlane(lost)))


async def test_member_lost_while_draining_is_not_awaited():
    members = [member(A, "FreeRestart", agent="Lost", ready=False), member(B, rank=1)]
    await drain_members(Context(inference=Inference(drain=drain()), repair=True, control_plane=ControlPlane(members)))


@pytest.mark.parametrize(
    ("sentence", "view", "took_s", "pending"),
    [
        ("it uses the successor", {}, 0.0, None),
        ("it loads on it", {"readyNodes": [A, B]}, 0.0, "one has yet to use the successors"),
        ("it starts", {"state": "Loading", "readyNodes": []}, 0.0, "one has yet to use the successors"),
        ("it serves nothing", {"state": "Unavailable", "readyNodes": []}, 0.0, None),
        ("it takes too long", {"readyNodes": [A, B]}, SERVING_TIMEOUT_S, None),
    ],
)
async def test_successors_are_loaded_before_members_drain(sentence, view, took_s, pending):
    context = Context(inference=Inference(**view), took_s=took_s)
    if pending is None:
        await await_loaded(context)
    else:
        with pytest.raises(StepPending, match=pending):
            await await_loaded(context)


async def test_retained_members_rejoin_before_the_deployment_counts_as_serving():
    context = Context(repair=True, control_plane=ControlPlane([member(A), member(B, rank=1)]))
    context.inference.view |= {"drain": drain("Drained"), "fabricGeneration": 6}
    with pytest.raises(StepPending, match="one has yet to see every member"):
        await await_serving(context)
    assert not context.inference.withdrawn, "it may still use a node that has left"
    context.inference.view["fabricGeneration"] = 7
    with pytest.raises(StepPending, match="one has yet to use every member"):
        await await_serving(context)
    assert (context.inference.withdrawn, context.events) == (True, ["Rejoined"])
    await await_serving(context)


@pytest.mark.parametrize(
    ("sentence", "state", "took_s", "waits", "events"),
    [
        ("it loads", "Loading", 0.0, True, []),
        ("it served, and has yet to see that all its nodes are up", "Unavailable", 0.0, True, []),
        ("it never served", "Pending", 0.0, False, []),
        ("it takes too long", "Unavailable", SERVING_TIMEOUT_S, False, ["NotServingYet"]),
    ],
)
async def test_await_serving_after_a_repair(sentence, state, took_s, waits, events):
    members = ControlPlane([member(A), member(B, rank=1)])
    context = Context(
        inference=Inference(state=state, readyNodes=[]), control_plane=members, repair=True, took_s=took_s
    )
    if waits:
        with pytest.raises(StepPending):
            await await_serving(context)
    else:
        await await_serving(context)
    assert context.events == events, sentence


async def test_rollback_withdraws_only_its_own_drains():
    context = Context(inference=Inference(drain=drain(by="somebody")))
    await withdraw_drains(context)
    assert not context.inference.withdrawn
    context.inference.view["drain"] = drain()
    await withdraw_drains(context)
    assert context.inference.withdrawn
    context.inference.unavailable = True
    await withdraw_drains(context)


@pytest.mark.parametrize(
    ("sentence", "view", "successor", "asked", "waits"),
    [
        ("requests run there", {}, {}, 1, True),
        ("it has drained them, or never used them", {"readyNodes": [A, B]}, {}, 0, False),
        ("something broke, which comes first", {}, {"agent": "Lost", "ready": False}, 0, False),
    ],
)
async def test_abandoned_move_drains_used_successors(sentence, view, successor, asked, waits):
    coming = member(C, **({"role": "successor"} | successor))
    context = Context(inference=Inference(**view), control_plane=ControlPlane([member(A), member(B, rank=1), coming]))
    context.inference.answer = drain(nodes=(C,)) | {"deadlineAt": timestamp(context.clock.now() + 600)}
    if waits:
        with pytest.raises(StepPending, match=f"3 requests still on {C}"):
            await leave_successors(context)
        context.clock.at += 600 + GRACE_S
    await leave_successors(context)
    assert len(context.inference.asked) == 2 * asked, sentence
    assert all(each["nodes"] == [C] and each["keepServing"] for each in context.inference.asked)
    context.inference.unavailable = True
    await leave_successors(context)


async def test_steps_do_nothing_without_a_workload():
    context = Context(inference=None)
    for step in (await_loaded, leave_successors, tell_workload, drain_members, withdraw_drains, await_serving):
        await step(context)
    assert context.events == []


class EmptyControlPlane:
    """ControlPlane with nothing on them."""

    async def slice_owners(self) -> dict[str, str]:
        return {}

    async def allocations(self) -> list[AllocationView]:
        return []


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("sentence", "by", "withdrawn"),
    [
        ("under way", "running", False),
        ("it has ended, or was overtaken, without withdrawing it", "ended", True),
        ("it is not even known any more", "forgotten", True),
        ("nobody's, so whoever asked withdraws it", "", False),
    ],
)
async def test_drain_of_an_ended_operation_is_withdrawn(tmp_path, sentence, by, withdrawn):
    recorded = RecordedWorkflow(1)
    async with runner_process(tmp_path, recorded.workflow) as process:
        names = {"running": await open_and_wait_at(process, recorded, (DO, 0)), "": ""}
        names["ended"] = process.open(instance="two")
        with process.store.transaction() as session:
            abandon(session.get_one(OperationRow, names["ended"]), "overtaken", process.clock.now())
        inference = Inference(drain=drain(by=names.get(by, by)))
        collector = OrphanCollector(process.store, EmptyControlPlane(), process.clock, inference)
        await collector.reconcile()
        assert inference.withdrawn == withdrawn, sentence
        inference.unavailable = True
        assert "0 drains withdrawn" in await collector.reconcile()


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("sentence", "by", "withdrawn"),
    [
        ("its policy is there", "scaling-policies/one", False),
        ("its policy is gone", "scaling-policies/gone", True),
        ("somebody else asked for it", "me", False),
    ],
)
async def test_pool_sizes_of_a_deleted_policy_are_withdrawn(tmp_path, sentence, by, withdrawn):
    recorded = RecordedWorkflow(1)
    async with runner_process(tmp_path, recorded.workflow) as process:
        with process.store.transaction() as session:
            spec = {"scaleTargetRef": {"name": "one"}, "maxReplicas": 4}
            session.add(ScalingPolicyRow(name="one", target="one", state="Active", generation=1, spec=spec))
        inference = Inference(scale={"prefillNodes": 2, "decodeNodes": 2, "by": by})
        collector = OrphanCollector(process.store, EmptyControlPlane(), process.clock, inference)
        await collector.reconcile()
        assert inference.withdrawn == withdrawn, sentence
        inference.unavailable = True
        assert "0 sizes of pools withdrawn" in await collector.reconcile()
