"""NodeWaits: how long an instance recently waited for new members, as an estimate of the next wait.

A free node boots, a spare only joins, so the two are kept apart. The estimate is the median of the last few waits: one
that was delayed by something else (a repair in between, a service that was unavailable) should not count. Without a
sample, a free node takes the sum of the stages of an emulated node, and a spare as long as a free node.
"""

from __future__ import annotations

from functools import cache
from statistics import median_high
from typing import Any, Literal, Self

from pydantic import Field

from matrixcommon.emulation.stages import load_stages
from matrixcommon.model.empty import empty_list
from matrixcommon.model.resource_model import ApiModel

WAITS_KEPT = 5
Source = Literal["free", "spares"]
"""Where the new members came from; "free" if at least one of them was a free node, since that is the slowest."""


@cache
def emulated_boot_s() -> float:
    """The sum of the stages of an emulated node's deployment (s)."""
    return sum(stage.delay_s for stage in load_stages("matrixresource.agent", "node_stages.yaml")["deploy"])


class NodeWaits(ApiModel):
    """Emulated seconds from members committed to all of them ready; the newest wait is last."""

    free: list[float] = Field(default_factory=empty_list)
    spares: list[float] = Field(default_factory=empty_list)
    operation: str = ""
    """The operation whose wait was recorded last, so that recording it twice counts once."""

    @classmethod
    def of(cls, stored: dict[str, Any] | None) -> Self:
        return cls() if not stored else cls.from_stored(stored)

    def with_wait(self, operation: str, source: Source, waited_s: float) -> Self:
        if operation == self.operation:
            return self
        kept = [*getattr(self, source), max(0.0, waited_s)][-WAITS_KEPT:]
        return self.model_copy(update={source: kept, "operation": operation})

    @property
    def boot_s(self) -> float:
        return median_high(self.free) if self.free else emulated_boot_s()

    @property
    def join_s(self) -> float:
        return min(median_high(self.spares), self.boot_s) if self.spares else self.boot_s
