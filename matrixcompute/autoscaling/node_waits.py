"""NodeWaits: how long an instance waited for its new members lately, and with that how long it will wait for the next.

A free node boots, a spare only joins, so the two are kept apart. The median of the last few counts: one growth that
waited for something else (a repair on the way, a neighbour that was away) says nothing of the next. Where none has been
seen, a free node takes what the stages of an emulated node add up to. Until an instance has grown out of spares once,
one of them is thought to take as long as a free node.
"""

from __future__ import annotations

from functools import cache
from statistics import median_high
from typing import Any, Literal, Self

from pydantic import Field

from matrixcommon.emulation.stages import stages_of
from matrixcommon.model.empty import empty_list
from matrixcommon.model.resource_model import ApiModel

WAITS_KEPT = 5
Source = Literal["free", "spares"]
"""Where all of the new members came from; with one free node among them it is free nodes that were waited for."""


@cache
def boots_in_s() -> float:
    """By the stages of an emulated node that is deployed."""
    return sum(stage.delay_s for stage in stages_of("matrixresource.agent", "node_stages.yaml")["deploy"])


class NodeWaits(ApiModel):
    """Seconds (emulated) from members committed to all of them ready, the last ones last."""

    free: list[float] = Field(default_factory=empty_list)
    spares: list[float] = Field(default_factory=empty_list)
    operation: str = ""
    """Whose wait was noted last: noted twice, it counts once."""

    @classmethod
    def of(cls, stored: dict[str, Any] | None) -> Self:
        return cls() if not stored else cls.from_stored(stored)

    def and_one(self, operation: str, source: Source, waited_s: float) -> Self:
        if operation == self.operation:
            return self
        kept = [*getattr(self, source), max(0.0, waited_s)][-WAITS_KEPT:]
        return self.model_copy(update={source: kept, "operation": operation})

    @property
    def boot_s(self) -> float:
        return median_high(self.free) if self.free else boots_in_s()

    @property
    def join_s(self) -> float:
        return min(median_high(self.spares), self.boot_s) if self.spares else self.boot_s
