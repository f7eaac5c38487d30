"""Whose drains a scaling policy ends when its target is to keep its nodes."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcompute.autoscaling.policy import ScalingPolicyRequest
from matrixcompute.contract import InstanceRequest
from matrixcompute.instances.service import InstanceService
from matrixcompute.reconcilers.autoscaling import AutoscalingReconciler
from matrixcompute.store.store import InstanceRow, ScalingPolicyRow
from tests.matrixcompute.workflow_world import World, a_process


class Inference:
    """One deployment, of which nothing is known but that it drains."""

    def __init__(self, drain: dict[str, Any]) -> None:
        self._drain = drain
        self.undrained: list[str] = []

    async def deployments_on(self, instance: str) -> dict[str, dict[str, Any]]:
        return {"chat": {"drain": self._drain}}

    async def statistics(self, name: str, window_s: float, tpot_s: float | None) -> dict[str, Any]:
        return {}

    async def undrain(self, name: str) -> None:
        self.undrained.append(name)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("sentence", "state", "by", "undrained"),
    [
        ("its own is ended", "Active", {}, ["chat"]),
        ("that of a repair which came meanwhile goes on", "Repairing", {"by": "replace-node-one-1"}, []),
    ],
)
async def test_a_policy_that_keeps_its_nodes_ends_no_drain_but_its_own(tmp_path, sentence, state, by, undrained):
    inference = Inference({"nodes": ["sn0-c00-n1"], "state": "Draining"} | by)
    policy = ScalingPolicyRequest.model_validate({"scaleTargetRef": {"name": "one"}, "maxReplicas": 4})
    async with a_process(tmp_path, World(1).workflow) as process:
        spec = InstanceRequest(nodes=2).wire()
        with process.store.transaction() as session:
            session.add(
                InstanceRow(
                    name="one", project="default", labels={}, spec=spec, applied=spec, state=state, generation=1,
                    observed_generation=1, conditions=[], members=[], slices=[], ready_nodes=2,
                )
            )  # fmt: skip
            row = ScalingPolicyRow(name="few", project="default", state="Active", generation=1, target="one")
            row.declare(policy)
            row.draining = ["sn0-c00-n1"]
            session.add(row)
        service = InstanceService(process.store, None, process.runner, process.clock, lambda: None)  # type: ignore[arg-type]
        reconciler = AutoscalingReconciler(process.store, service, inference, process.clock, lambda: None)  # type: ignore[arg-type]
        await reconciler.reconcile()
        assert inference.undrained == undrained, sentence
        with process.store.reading() as session:
            assert session.get_one(ScalingPolicyRow, "few").draining is None
