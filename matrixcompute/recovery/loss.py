"""diagnose_loss: why an instance lost its allocation, worked out from what MatrixResource shows. Pure.

A preemptor takes the nodes at once, so the victim's allocation may be gone before anybody looks; the preemptor's
allocation lists whom it preempted. For the same reason the end of a lease is recognised by its time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from matrixcommon.model.errors import InsufficientCapacity, MatrixError, Preempted
from matrixcommon.model.resource_key import name_of, project_of
from matrixresource.contract.allocations import AllocationView


@dataclass(frozen=True)
class AllocationLoss:
    """Why an allocation is gone. `reason` is used in conditions and events."""

    reason: Literal["Preempted", "LeaseEnded", "Revoked"]
    message: str

    def error(self) -> MatrixError:
        """The error that ends a workflow that was under way."""
        return (Preempted if self.reason == "Preempted" else InsufficientCapacity)(self.message)


def active_or_none(allocation: AllocationView | None) -> AllocationView | None:
    """The allocation, or None if it is gone or being released."""
    return None if allocation is None or allocation.state == "Releasing" else allocation


def diagnose_loss(
    name: str,
    allocation: AllocationView | None,
    allocations: Iterable[AllocationView],
    expires_at: float | None,
    now: float,
    leased: bool = True,
) -> AllocationLoss | None:
    """Why `name` has lost its allocation; None while it has one. `expires_at`: the end of its lease. An instance that
    is not `leased` by its spec can still lose its nodes to a lease of the allocation: one renewed by hand, or one
    dropped from the spec too late."""
    if active_or_none(allocation) is not None:
        return None
    reported = (
        {each.type for each in allocation.conditions if each.status == "True"} if allocation is not None else set()
    )
    if "Expired" in reported or (expires_at is not None and expires_at <= now):
        if not leased:
            return AllocationLoss("Revoked", "its allocation's lease ended, although its spec has no lease")
        return AllocationLoss("LeaseEnded", "its lease has ended")
    by = next((each.key for each in allocations if name in each.preempts), None)
    if by is not None:
        who = name_of(by) if project_of(by) == project_of(name) else "an allocation"
        return AllocationLoss(
            "Preempted", f"preempted by {who} of higher priority; it gets nodes again when there is room"
        )
    if "Preempted" in reported:
        return AllocationLoss(
            "Preempted", "preempted by an allocation of higher priority; it gets nodes again when there is room"
        )
    return AllocationLoss("Revoked", "its nodes were released in MatrixResource without its request")
