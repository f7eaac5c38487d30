"""What one look at all instances has before it, and what it calls for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from matrixcommon.model.errors import Conflict, InvalidField, StaleLeader
from matrixcompute.model.observation import ObservedSlice
from matrixcompute.recovery.ladder import RungTried
from matrixcompute.recovery.loss import AllocationLoss
from matrixcompute.recovery.policy import Recovery
from matrixresource.contract.allocations import AllocationView


@dataclass
class Findings:
    """What one look at all instances calls for beside what it wrote down: workflows that were opened, losses, members
    and spares that are to go elsewhere, instances that wait for room, and instances of which something is new."""

    opened: int = 0
    turns: set[str] = field(default_factory=set)
    """Of those that wait for room, who asks for it."""
    losses: dict[str, AllocationLoss] = field(default_factory=dict)
    to_leave: dict[str, list[str]] = field(default_factory=dict)
    to_restore: list[str] = field(default_factory=list)
    to_repair: dict[str, tuple[AllocationView, Recovery, list[RungTried], bool]] = field(default_factory=dict)
    to_start: dict[str, tuple[AllocationView, Recovery]] = field(default_factory=dict)
    gone_spares: list[tuple[str, str]] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Surroundings:
    """What a look has from others: `versions` that instances had before they were asked, allocations and slices by
    instance, domains that drain, and nodes that are out of service."""

    versions: Mapping[str, int]
    allocations: Mapping[str, AllocationView]
    slices: Mapping[str, Sequence[ObservedSlice]]
    draining: Sequence[str]
    out: Sequence[str]


OF_ONE_INSTANCE = (Conflict, InvalidField, LookupError, ValueError, TypeError, AttributeError)


def concerns_one(wrong: Exception) -> bool:
    """Whether that is what nobody foresaw about one instance: an illegal move, a row that makes no sense. Not that a
    database or another service is away, nor that somebody else leads: that is the same for all of them."""
    return isinstance(wrong, OF_ONE_INSTANCE) and not isinstance(wrong, StaleLeader)


class NotUnderstood(Exception):
    """Looking at one instance failed."""

    def __init__(self, instance: str, cause: Exception) -> None:
        super().__init__(instance)
        self.instance, self.cause = instance, cause
