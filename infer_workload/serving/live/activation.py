"""Requests at the door of a deployment that is scaled to zero, or comes back from there (Knative's activator).

They wait for it to serve, at most so many of them and each for so long; others get 503 and Retry-After. That they wait
is what brings it back: whoever scaled it to zero looks at `waiting`. They are in no table: the connections that they
came by end with the process.
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


class Target(Protocol):
    """The deployment that requests wait for, as far as their waiting depends on it."""

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

    async def news(self) -> None: ...


class Activation:
    """Of one deployment. `returning`: it was scaled to zero, and has yet to serve again."""

    def __init__(self, now: float = 0.0) -> None:
        self.returning = False
        self.waiting = 0
        self.active_at = now
        """When something came in or ended last."""

    def holds(self, live: Target) -> bool:
        """Whether requests wait until it serves again."""
        return live.handover.idle or self.returning

    def idle_s(self, live: Target, now: float) -> float:
        """How long nothing has come in or run; 0 while it loads, or built-in load is played."""
        if self.waiting or live.load is not None or not (live.serves or live.handover.idle):
            return 0.0
        return 0.0 if live.engine is not None and live.engine.in_flight else max(0.0, now - self.active_at)

    async def wait(self, live: Target, clock: Clock) -> None:
        """Return once it serves. Raises Unavailable where too many wait already, at the deadline, and where nobody
        brings it back any more."""
        most, timeout_s = live.spec.activation_queue_max, live.spec.activation_timeout_s
        until = clock.now() + timeout_s
        if self.waiting >= most:
            raise Unavailable(
                f"{live.name} is scaled to zero, and {most} requests wait for it", retry_after_s=FULL_RETRY_AFTER_S
            )
        self.waiting += 1
        try:
            while not live.serves:
                if clock.now() >= until:
                    raise Unavailable(
                        f"{live.name} did not serve within {timeout_s:g} s: {live.why}",
                        retry_after_s=FULL_RETRY_AFTER_S,
                    )
                if not self.holds(live):
                    raise Unavailable(f"{live.name} is {live.state}: {live.why}", retry_after_s=RETRY_AFTER_S)
                await live.news()
        finally:
            self.waiting -= 1
            self.active_at = max(self.active_at, clock.now())
