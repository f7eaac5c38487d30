"""next_step: decide what to do about an instance that has no workflow under way, from what was observed. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from matrixcommon.model.resource_key import name_of
from matrixcompute.model.observation import Observed
from matrixcompute.model.states import HOLDING, SETTLED
from matrixcompute.model.whole_blocks import whole_blocks
from matrixcompute.operations.context import REPAIR, RESTORE_SLICES
from matrixcompute.operations.starter import below_floor
from matrixcompute.recovery.policy import Recovery, broken_members
from matrixcompute.store.store import InstanceRow, OperationRow
from matrixresource.contract.allocations import MemberView

UNSCHEDULED = ("Pending", "Provisioning")
"""States in which an instance waits for its nodes."""


class NextStep(Enum):
    """What to do about an instance. First steps that open a workflow, then requests to MatrixResource, then notes."""

    DELETE = "delete it"
    SUSPEND = "release its nodes"
    CREATE = "allocate its nodes"
    RESUME = "resume the workflow that ended without a result"
    CHANGE = "bring it to its spec"
    REPAIR = "repair its members"
    FINISH_MOVE = "finish an abandoned move"
    RESTORE_SLICES = "restore the slices of its present shape"
    REPAIR_BELOW_FLOOR = "request replacements for the members it lacks to its floor"
    START = "request replacements for broken nodes, and start it"
    RESTORE_MEMBERS = "request its missing members"
    REPLACE_SPARES = "replace its spares"
    HOLD = "record why nothing is done about the failure"
    SETTLE = "record that nothing is under way"
    WAIT = "nothing yet"


@dataclass(frozen=True)
class Situation:
    """An instance without a workflow under way, and what was observed of it."""

    instance: InstanceRow
    observed: Observed
    recovery: Recovery
    rests: bool
    """Whether it was refused and its retry is not due yet."""
    has_turn: bool
    """Whether it is its turn to ask for room, among the instances that wait."""
    may_restore: bool
    """Whether its missing members may be requested now."""
    last_operation: Callable[[], OperationRow | None]

    @property
    def members(self) -> Sequence[MemberView]:
        return self.observed.allocation.members if self.observed.allocation is not None else []

    @property
    def changed(self) -> bool:
        """Whether its spec differs from its present shape."""
        return self.instance.generation != self.instance.observed_generation

    @property
    def repair(self) -> bool:
        """Whether a member or spare has to be repaired. Broken nodes of a stopped instance are replaced when it starts,
        whatever else is requested before."""
        return self.recovery.action in ("replace", "repair") and self.instance.state != "Stopped"

    @property
    def whole(self) -> bool:
        """Whether its allocation is bound, its slices join exactly its members, and its nodes are powered as specified;
        an abandoned restart may have left them off."""
        allocation = self.observed.allocation
        powered = allocation is not None and allocation.power == self.instance.shape.power
        return allocation is not None and allocation.bound and powered and self.observed.joined

    @property
    def can_be_less(self) -> bool:
        """Whether an instance below its floor has a new spec that its working members can satisfy: off, suspended, or
        smaller. The spec may have changed during the repair."""
        instance = self.instance
        shape, current = instance.shape, instance.last_active or instance.shape
        if not self.changed or (self.rests and instance.retry_at < math.inf):
            return False
        broken = {member.node for member, _ in broken_members(self.members)}
        working = [each for each in self.members if each.role == "member" and each.node not in broken]
        fits = shape.floor <= len(whole_blocks(working, shape.placement.blocks)) and shape.nodes <= current.nodes
        return shape.suspend or shape.power == "Off" or fits

    @property
    def repair_refused(self) -> bool:
        """Whether the refusal that it waits after was a repair's. After a repair that succeeded, `retry_at` belongs to
        the change refused before it; an operation no longer on record may be a repair that waits for `:retry`."""
        before = self.last_operation()
        if before is None:
            return name_of(self.instance.operation or "").startswith(REPAIR)
        return before.verb == REPAIR and before.state != "Done"

    @property
    def lacks_slices(self) -> bool:
        """Whether the slices of its present shape have to be restored while a changed shape waits."""
        if self.instance.state != "Active" or not self.changed or self.observed.allocation is None:
            return False
        if self.observed.joined or any(each.state == "Withdrawing" for each in self.observed.slices):
            return False
        before = self.last_operation()
        refused = before is not None and before.verb == RESTORE_SLICES and before.state == "Failed"
        return not (refused and self.rests)


def waits_for_room(instance: InstanceRow) -> bool:
    """Whether it was refused and is retried automatically."""
    return instance.state == "Pending" and 0 < instance.retry_at < math.inf


def next_step(seen: Situation) -> NextStep:
    """Decide what to do about an instance."""
    state = seen.instance.state
    if state == "Deleting":
        return NextStep.DELETE
    if state in ("Suspending", "Suspended") or (state in UNSCHEDULED and seen.instance.shape.suspend):
        return _of_suspended(seen)
    if state == "Failed":
        return _of_failed(seen)
    if state == "Stopped" and not seen.changed:
        return NextStep.SETTLE
    if seen.recovery.action == "hold":
        return NextStep.HOLD
    if seen.rests and (not seen.repair or seen.repair_refused):
        # A refused change of shape does not keep a lost member from being replaced, nor a slice from coming back.
        return NextStep.RESTORE_SLICES if not seen.repair and seen.lacks_slices else NextStep.WAIT
    if state in UNSCHEDULED:
        return NextStep.WAIT if waits_for_room(seen.instance) and not seen.has_turn else NextStep.CREATE
    if state in HOLDING and state not in SETTLED:
        return NextStep.RESUME
    if seen.repair:
        failed = {member.node for member in seen.members if member.role == "member"} & {*seen.recovery.concerned}
        return NextStep.REPAIR if failed else NextStep.REPLACE_SPARES
    return _of_settled(seen)


def _of_suspended(seen: Situation) -> NextStep:
    """For an instance that is suspended, or about to be suspended or resumed."""
    if seen.instance.state != "Suspended":
        return NextStep.SUSPEND
    return NextStep.WAIT if seen.instance.shape.suspend else NextStep.CREATE


def _of_failed(seen: Situation) -> NextStep:
    """For a Failed instance: only one below its floor leaves that state by itself."""
    if not below_floor(seen.instance):
        return NextStep.WAIT
    if seen.can_be_less:
        return NextStep.CHANGE
    if seen.recovery.action == "hold":
        return NextStep.WAIT
    if not seen.repair:
        return NextStep.CHANGE  # the lost members are back
    return NextStep.WAIT if seen.rests or seen.observed.allocation is None else NextStep.REPAIR_BELOW_FLOOR


def _of_settled(seen: Situation) -> NextStep:
    """For an instance that has its nodes, with none to repair."""
    instance, allocation = seen.instance, seen.observed.allocation
    if instance.state == "Active" and instance.reduced(allocation) and not seen.rests and seen.may_restore:
        return NextStep.RESTORE_MEMBERS
    if seen.changed and instance.refused_generation == instance.generation:
        return NextStep.RESTORE_SLICES if seen.lacks_slices else NextStep.WAIT
    starts = seen.changed and instance.state == "Stopped" and instance.shape.power == "On"
    if starts and seen.recovery.action == "replace" and allocation is not None:
        return NextStep.START
    if seen.changed or not seen.whole:
        return NextStep.CHANGE
    if any(member.role == "successor" for member in seen.members):
        return NextStep.FINISH_MOVE
    return NextStep.SETTLE
