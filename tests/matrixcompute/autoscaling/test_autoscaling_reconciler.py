"""What one look of a scaling policy does to its target, and to what is served there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from matrixcommon.model.errors import Conflict
from matrixcompute.autoscaling.policy import ScalingPolicyRequest
from matrixcompute.autoscaling.policy_view import ScalingPolicyView
from matrixcompute.contract import InstanceRequest
from matrixcompute.instances.scaling_policies import ScalingPolicies
from matrixcompute.instances.service import InstanceService
from matrixcompute.reconcilers.autoscaling import AutoscalingReconciler
from matrixcompute.store.store import InstanceRow, ScalingPolicyRow
from matrixcompute.workflows.definitions import SCALE_INSTANCE, SUSPEND_INSTANCE
from tests.matrixcompute.test_decisions import member
from tests.matrixcompute.workflow_harness import RecordedWorkflow, RunnerProcess, runner_process


class Inference:
    """One deployment, as it is shown: its `view` and its `statistics`."""

    def __init__(self, view: dict[str, Any], statistics: dict[str, Any]) -> None:
        self._view, self._statistics = view, statistics
        self.undrained: list[str] = []
        self.rescaled: list[tuple[int, int]] = []

    async def deployments_on(self, instance: str) -> dict[str, dict[str, Any]]:
        return {"chat": self._view}

    async def statistics(self, name: str, window_s: float, tpot_s: float | None) -> dict[str, Any]:
        return self._statistics

    async def undrain(self, name: str) -> None:
        self.undrained.append(name)

    async def rescale(self, name: str, prefill: int, decode: int, caching: int | None, by: str) -> None:
        self.rescaled.append((prefill, decode))


@contextlib.asynccontextmanager
async def reconcile_policy(
    folder: Path, inference: Inference, instance: dict[str, Any], state: str = "Active", **policy: Any
) -> AsyncIterator[tuple[RunnerProcess, ScalingPolicyView]]:
    """The policy after one look at an instance of that spec, from which a member drained."""
    body = ScalingPolicyRequest.model_validate({"scaleTargetRef": {"name": "one"}} | policy)
    request = InstanceRequest.model_validate(instance)
    async with runner_process(folder, RecordedWorkflow(1).workflow, SCALE_INSTANCE, SUSPEND_INSTANCE) as process:
        with process.store.transaction() as session:
            session.add(
                InstanceRow(
                    name="one", project="default", labels={}, spec=request.wire(), applied=request.wire(), state=state,
                    generation=1, observed_generation=1, conditions=[], members=[], slices=[],
                    ready_nodes=request.nodes,
                )
            )  # fmt: skip
            row = ScalingPolicyRow(name="few", project="default", state="Active", generation=1, target="one")
            row.declare(body)
            row.draining = ["sn0-c00-n1"]
            session.add(row)
        service = InstanceService(process.store, None, process.runner, process.clock, lambda: None)  # type: ignore[arg-type]
        reconciler = AutoscalingReconciler(process.store, service, inference, process.clock, lambda: None)  # type: ignore[arg-type]
        await reconciler.reconcile()
        with process.store.reading() as session:
            view = session.get_one(ScalingPolicyRow, "few").view()
        yield process, view


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("sentence", "state", "by", "undrained"),
    [
        ("its own is ended", "Active", {"by": "scaling-policies/few"}, ["chat"]),
        ("its own of an earlier version is ended", "Active", {}, ["chat"]),
        ("that of somebody who gave no name goes on", "Active", {"nodes": ["sn0-c00-n7"]}, []),
        ("that of a repair which came meanwhile goes on", "Repairing", {"by": "replace-node-one-1"}, []),
    ],
)
async def test_policy_ends_only_its_own_drain(tmp_path, sentence, state, by, undrained):
    inference = Inference({"drain": {"nodes": ["sn0-c00-n1"], "state": "Draining"} | by}, {})
    async with reconcile_policy(tmp_path, inference, {"nodes": 2}, state, maxReplicas=4) as (process, _):
        assert inference.undrained == undrained, sentence
        with process.store.reading() as session:
            assert session.get_one(ScalingPolicyRow, "few").draining is None


@pytest.mark.looptime
@pytest.mark.parametrize("least", [0, 1])
async def test_bounds_without_a_whole_block_are_refused_with_a_reason(tmp_path, least):
    inference = Inference(
        {}, {"idleS": 1.0, "work": {"nodes": 0.5, "backlogNodeSeconds": 0, "startS": 60, "staysS": 9}}
    )
    blocks = {"policy": "pack", "blocks": [{"level": "supernode", "nodes": 8}]}
    async with reconcile_policy(
        tmp_path, inference, {"nodes": 8, "placement": blocks}, minReplicas=least, maxReplicas=6
    ) as (process, view):  # fmt: skip
        assert inference.rescaled == []
        with process.store.reading() as session:
            shape = session.get_one(InstanceRow, "one").shape
        assert (shape.nodes, shape.suspend) == (8, False)
        assert (view.reason, view.desired_replicas) == ("Refused", 8)
        assert "nodes come 8 at a time" in view.message


@pytest.mark.looptime
async def test_policy_of_a_deleting_instance_can_be_deleted(tmp_path):
    inference = Inference({}, {})
    async with reconcile_policy(tmp_path, inference, {"nodes": 2, "suspend": True}, "Deleting", maxReplicas=4) as (
        process,
        _,
    ):
        with process.store.transaction() as session:
            session.get_one(ScalingPolicyRow, "few").desired_pools = {"prefill": 0, "decode": 0}
        service = InstanceService(process.store, None, process.runner, process.clock, lambda: None)  # type: ignore[arg-type]
        ScalingPolicies(process.store, service).delete("few")
        with process.store.reading() as session:
            assert session.get(ScalingPolicyRow, "few") is None
            assert session.get_one(InstanceRow, "one").state == "Deleting"


class Busy(Inference):
    """What is to leave has requests, so many as `requests` says; a role change to nothing is refused."""

    requests = 3

    async def drain(self, name: str, nodes: list[str], by: str) -> dict[str, Any]:
        assert by == "scaling-policies/few"
        state = "Draining" if self.requests else "Drained"
        return {"drain": {"nodes": nodes, "state": state, "requests": self.requests}}

    async def rescale(self, name: str, prefill: int, decode: int, caching: int | None, by: str) -> None:
        if self.requests and not prefill:
            raise Conflict("cannot scale to zero: 3 requests running or waiting")


@pytest.mark.looptime
@pytest.mark.parametrize(("least", "waits"), [(1, "Draining"), (0, "ChangeUnderWay")])
async def test_waiting_decision_is_written_once(tmp_path: Path, least: int, waits: str) -> None:
    work = {"nodes": 0.0, "backlogNodeSeconds": 0, "startS": 60, "staysS": 9}
    inference = Busy({}, {"idleS": 9000.0, "work": work})
    async with reconcile_policy(tmp_path, inference, {"nodes": 2}, minReplicas=least, maxReplicas=4) as (process, _):
        with process.store.transaction() as session:
            instance = session.get_one(InstanceRow, "one")
            instance.members = [member(f"sn0-c00-n{at}").wire() for at in range(2)]
        service = InstanceService(process.store, None, process.runner, process.clock, lambda: None)  # type: ignore[arg-type]
        reconciler = AutoscalingReconciler(process.store, service, inference, process.clock, lambda: None)  # type: ignore[arg-type]

        async def look() -> ScalingPolicyView:
            await asyncio.sleep(15)
            with process.store.transaction() as session:
                session.get_one(ScalingPolicyRow, "few").draining = ["sn0-c00-n1"]
            await reconciler.reconcile()
            with process.store.reading() as session:
                return session.get_one(ScalingPolicyRow, "few").view()

        for _ in range(200):
            if (view := await look()).reason == waits:
                break
        assert view.reason == waits
        for _ in range(4):
            assert await look() == view
        inference.requests = 2
        shown = await look()
        assert len(shown.decisions) == len(view.decisions), "that is decided already"
        assert ("2 requests" in shown.message) == (waits == "Draining")
        inference.requests = 0
        done = await look()
        assert (done.reason, done.desired_replicas) == (done.decisions[-1].reason, least)
        assert done.reason != waits
        with process.store.reading() as session:
            shape = session.get_one(InstanceRow, "one").shape
        assert (shape.nodes, shape.suspend) == ((1, False) if least else (2, True))
