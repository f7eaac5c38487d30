"""Requests for a deployment that is scaled to zero or returning from it (like Knative's activator).

They wait until it serves, limited in number and time; others get 503 with Retry-After. Waiting requests bring it back:
the policy that scaled it to zero watches `waiting`. They are not stored, since their connections end with the process.
"""

from __future__ import annotations

from typing import Protocol

from infer_workload.contract.deployments import DeploymentRequest
from infer_workload.engine.engine import Engine
from infer_workload.serving.live.handover import Handover
from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Unavailable

RETRY_AFTER_S = 2
FULL_RETRY_AFTER_S = 10


class ActivationTarget(Protocol):
    """What the waiting of requests needs to know of their deployment."""

    name: str
    state: str
    why: str
    spec: DeploymentRequest
    handover: Handover

    @property
    def engine(self) -> Engine | None: ...

    @property
    def serves(self) -> bool: ...

    @property
    def load(self) -> object: ...

    async def wait_for_turn(self) -> None: ...


class Activation:
    """The requests waiting for one deployment. `activating`: it was scaled up from zero and does not serve yet."""

    def __init__(self, now: float = 0.0) -> None:
        self.activating = False
        self.waiting = 0
        self.active_at = now
        """When a request last arrived or ended."""

    def holds_requests(self, live: ActivationTarget) -> bool:
        """Whether new requests wait until it serves."""
        return live.handover.scaled_to_zero or self.activating

    def idle_s(self, live: ActivationTarget, now: float) -> float:
        """Seconds since a request last arrived or ran; 0 while it loads or has built-in load."""
        if self.waiting or live.load is not None or not (live.serves or live.handover.scaled_to_zero):
            return 0.0
        return 0.0 if live.engine is not None and live.engine.in_flight else max(0.0, now - self.active_at)

    async def wait(self, live: ActivationTarget, clock: Clock) -> None:
        """Return once it serves. Raises Unavailable if too many wait already, at the deadline, and if it will not
        return by itself."""
        most, timeout_s = live.spec.activation_queue_max, live.spec.activation_timeout_s
        until = clock.now() + timeout_s
        if self.waiting >= most:
            raise Unavailable(
                f"{live.name} is scaled to zero, and its activation queue of {most} requests is full",
                retry_after_s=FULL_RETRY_AFTER_S,
            )
        self.waiting += 1
        try:
            while not live.serves:
                if clock.now() >= until:
                    raise Unavailable(
                        f"{live.name} did not become ready within {timeout_s:g} s: {live.why}",
                        retry_after_s=FULL_RETRY_AFTER_S,
                    )
                if not self.holds_requests(live):
                    raise Unavailable(f"{live.name} is {live.state}: {live.why}", retry_after_s=RETRY_AFTER_S)
                await live.wait_for_turn()
        finally:
            self.waiting -= 1
            self.active_at = max(self.active_at, clock.now())
