"""What a policy is shown of a deployment: the work of each look, or the metrics it names over half a minute."""

from __future__ import annotations

import pytest

from matrixcompute.autoscaling.decision import Observation
from matrixcompute.autoscaling.policy import ScalingPolicyRequest
from matrixcompute.reconcilers.scaling_signals import observe_target, statistics_of

POLICY = {"scaleTargetRef": {"name": "served"}, "maxReplicas": 8}
NAMED = {
    "type": "Object",
    "object": {
        "metric": {"name": "requestsPerSecond"},
        "describedObject": {"kind": "CloudMatrixInfer", "name": "r1"},
        "target": {"type": "AverageValue", "averageValue": 2.0},
    },
}


class Inference:
    def __init__(self):
        self.asked = []

    async def statistics(self, name, window_s=None, tpot_s=None):
        self.asked.append((name, window_s))
        return {}


@pytest.mark.parametrize(
    ("metrics", "window_s"), [([], 15.0), ([NAMED], 30.0)], ids=["its own signals", "named metrics"]
)
async def test_work_is_per_tick_and_metrics_are_means(metrics, window_s):
    policy, inference = ScalingPolicyRequest.model_validate(POLICY | {"metrics": metrics}), Inference()
    assert await statistics_of(inference, {"r1": {}, "r2": {}}, policy) == {"r1": {}, "r2": {}}
    assert inference.asked == [("r1", window_s), ("r2", window_s)]


def test_minimums_of_deployments_add_up():
    """A node is one deployment's: what two need at least is the sum."""
    work = {"nodes": 1.0, "backlogNodeSeconds": 0.0, "startS": 60.0, "staysS": 10.0, "decodeNodesMin": 2}
    policy = ScalingPolicyRequest.model_validate(POLICY)
    for names, least in (("a", 3), ("ab", 6)):
        seen = observe_target(Observation(8, 8), {name: {"work": work} for name in names}, policy)
        assert seen.least == least
