"""loss_of: why an instance no longer holds what it was given, read off what MatrixResource shows. Pure.

Who puts somebody out takes the place at once, so the victim's allocation may be gone before anybody looks; the one who
came remembers whom it preempted. A lease that has ended is known by its hour, for the same reason.
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
    """What became of an allocation, in a word and a sentence. The words are reasons of conditions and events."""

    reason: Literal["Preempted", "LeaseEnded", "Revoked"]
    message: str

    def error(self) -> MatrixError:
        """The same as a refusal, for a workflow that was under way."""
        return (Preempted if self.reason == "Preempted" else InsufficientCapacity)(self.message)


def active_or_none(allocation: AllocationView | None) -> AllocationView | None:
    """The allocation, unless it is gone or going."""
    return None if allocation is None or allocation.state == "Releasing" else allocation


def diagnose_loss(
    name: str,
    allocation: AllocationView | None,
    everybody: Iterable[AllocationView],
    expires_at: float | None,
    now: float,
    leased: bool = True,
) -> AllocationLoss | None:
    """Why `name` holds nothing (`expires_at` is the end of its lease); None while it does. Who is not `leased` by its
    spec loses its nodes where its allocation has a lease all the same: renewed by hand, or dropped from the spec too
    late to be heard."""
    if active_or_none(allocation) is not None:
        return None
    reported = (
        {each.type for each in allocation.conditions if each.status == "True"} if allocation is not None else set()
    )
    if "Expired" in reported or (expires_at is not None and expires_at <= now):
        if not leased:
            return AllocationLoss("Revoked", "its nodes were released by a lease that it does not have")
        return AllocationLoss("LeaseEnded", "its lease has ended")
    by = next((each.key for each in everybody if name in each.preempts), None)
    if by is not None:
        who = name_of(by) if project_of(by) == project_of(name) else "somebody"
        return AllocationLoss("Preempted", f"{who} of higher priority took its place; it comes back when there is room")
    if "Preempted" in reported:
        return AllocationLoss(
            "Preempted", "somebody of higher priority took its place; it comes back when there is room"
        )
    return AllocationLoss("Revoked", "its nodes were released behind its back")
