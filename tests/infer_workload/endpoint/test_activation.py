"""What a request that waits for a deployment that is scaled to zero is told, where nobody brings it back."""

from __future__ import annotations

import pytest

from infer_workload.contract.deployments import DeploymentRequest
from infer_workload.engine.engine import Engine
from infer_workload.layout.scale import PoolScale
from infer_workload.serving.live.activation import Activation
from infer_workload.serving.live.handover import Handover
from matrixcommon.model.errors import Unavailable
from tests.clocks import FixedClock


class Idle:
    """A deployment that is scaled to zero; with each news comes another spec, and a minute has passed."""

    name, state, why, load = "r1", "Idle", "its pools are scaled to zero", None
    serves = False
    engine: Engine | None = None

    def __init__(self, clock: FixedClock) -> None:
        self.clock = clock
        self.spec = DeploymentRequest(instance="i", activation_timeout_s=90.0)
        self.handover = Handover(self.spec)
        self.handover.scale = PoolScale(0, 0)

    async def wait_for_turn(self) -> None:
        self.clock.at += 60
        self.spec = DeploymentRequest(instance="i", activation_timeout_s=600.0)


async def test_the_error_names_the_timeout_at_the_time_of_the_request() -> None:
    clock, activation = FixedClock(), Activation()
    began = clock.at
    with pytest.raises(Unavailable, match="r1 did not become ready within 90 s: its pools are scaled to zero"):
        await activation.wait(Idle(clock), clock)
    assert (clock.at - began, activation.waiting) == (120, 0)
