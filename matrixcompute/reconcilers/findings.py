"""What one look at all instances calls for."""

from __future__ import annotations

from dataclasses import dataclass, field

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
