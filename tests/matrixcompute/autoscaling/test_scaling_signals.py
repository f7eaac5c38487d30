"""What a policy is shown of a deployment: the work of each look, or the metrics it names over half a minute."""

from __future__ import annotations

import pytest

from matrixcompute.autoscaling.policy import ScalingPolicyRequest
from matrixcompute.reconcilers.scaling_signals import statistics_of

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
async def test_work_is_that_of_a_look_and_metrics_are_means(metrics, window_s):
    policy, inference = ScalingPolicyRequest.model_validate(POLICY | {"metrics": metrics}), Inference()
    assert await statistics_of(inference, {"r1": {}, "r2": {}}, policy) == {"r1": {}, "r2": {}}
    assert inference.asked == [("r1", window_s), ("r2", window_s)]
