"""The input of one pass over all instances, and its findings."""

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
    """What one pass over all instances calls for, beyond what it recorded: workflows opened, losses, members and spares
    that have to move, instances that wait for room, and instances that changed."""

    opened: int = 0
    may_request: set[str] = field(default_factory=set)
    """The instances that may ask for room now, among those that wait for it."""
    losses: dict[str, AllocationLoss] = field(default_factory=dict)
    draining_members: dict[str, list[str]] = field(default_factory=dict)
    to_restore: list[str] = field(default_factory=list)
    to_repair: dict[str, tuple[AllocationView, Recovery, list[RungTried], bool]] = field(default_factory=dict)
    to_start: dict[str, tuple[AllocationView, Recovery]] = field(default_factory=dict)
    lost_spares: list[tuple[str, str]] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ClusterSnapshot:
    """What one pass has read from other services: allocations and slices by instance, draining domains, and nodes out
    of service. `versions`: of the instances' rows, from before that was read."""

    versions: Mapping[str, int]
    allocations: Mapping[str, AllocationView]
    slices: Mapping[str, Sequence[ObservedSlice]]
    draining: Sequence[str]
    out: Sequence[str]


INSTANCE_ERRORS = (Conflict, InvalidField, LookupError, ValueError, TypeError, AttributeError)


def is_instance_error(error: Exception) -> bool:
    """Whether an error is specific to one instance, such as an illegal transition or an inconsistent row. A database or
    service that is unavailable, or the loss of leadership, concerns all instances."""
    return isinstance(error, INSTANCE_ERRORS) and not isinstance(error, StaleLeader)


class InstanceReconcileError(Exception):
    """Reconciling one instance failed."""

    def __init__(self, instance: str, cause: Exception) -> None:
        super().__init__(instance)
        self.instance, self.cause = instance, cause
