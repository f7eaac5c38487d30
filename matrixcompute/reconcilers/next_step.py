"""What an instance needs next that no workflow carries: decided from what was seen of it, and nothing is changed."""

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
    """What is done about an instance: first what opens a workflow, then what asks the neighbours, then what notes."""

    DELETE = "delete it"
    SUSPEND = "give its nodes back"
    CREATE = "have nodes"
    RESUME = "take up the workflow that ended without a word"
    CHANGE = "bring it to its spec"
    REPAIR = "repair its members"
    FINISH_MOVE = "finish a move that was abandoned"
    RESTORE_SLICES = "have the slices of its present shape back"
    REPAIR_BELOW_FLOOR = "ask for nodes in place of those that it lacks to its floor"
    START = "ask for nodes in place of broken ones, and start it"
    RESTORE_MEMBERS = "ask for the members that it goes without"
    REPLACE_SPARES = "replace its spares"
    HOLD = "say why nothing is done about what failed"
    SETTLE = "note that nothing is under way"
    WAIT = "nothing yet"


@dataclass(frozen=True)
class Situation:
    """An instance that no workflow carries, with what was seen of it."""

    instance: InstanceRow
    observed: Observed
    recovery: Recovery
    rests: bool
    """Whether it was refused, and is not tried again yet."""
    has_turn: bool
    """Whether it asks for room now, of those that wait for it."""
    may_restore: bool
    """Whether members that it goes without may be asked for."""
    last_operation: Callable[[], OperationRow | None]

    @property
    def members(self) -> Sequence[MemberView]:
        return self.observed.allocation.members if self.observed.allocation is not None else []

    @property
    def changed(self) -> bool:
        """Whether its spec asks for something else than it is."""
        return self.instance.generation != self.instance.observed_generation

    @property
    def repair(self) -> bool:
        """Whether something of it is to be repaired. What broke of one that is switched off is replaced when it starts,
        whatever else is asked of it until then."""
        return self.recovery.action in ("replace", "repair") and self.instance.state != "Stopped"

    @property
    def whole(self) -> bool:
        """Whether everything that it takes is still there, its slices join the members that it has, and its nodes are
        switched on or off as they are to be: a restart that was abandoned may have left them off."""
        allocation = self.observed.allocation
        powered = allocation is not None and allocation.power == self.instance.shape.power
        return allocation is not None and allocation.bound and powered and self.observed.joined

    @property
    def can_be_less(self) -> bool:
        """Whether one that is below its floor is asked to be what it can be with the members that work: off, without
        nodes, or smaller. That may have been asked for while it was being repaired."""
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
        """Whether what it waits after is a repair. One that ended well leaves `retry_at` to the change that was refused
        before it; one that is forgotten by now may be one that waits for `:retry`."""
        before = self.last_operation()
        if before is None:
            return name_of(self.instance.operation or "").startswith(REPAIR)
        return before.verb == REPAIR and before.state != "Done"

    @property
    def lacks_slices(self) -> bool:
        """Whether the slices of its present shape are to come back while a changed one waits."""
        if self.instance.state != "Active" or not self.changed or self.observed.allocation is None:
            return False
        if self.observed.joined or any(each.state == "Withdrawing" for each in self.observed.slices):
            return False
        before = self.last_operation()
        refused = before is not None and before.verb == RESTORE_SLICES and before.state == "Failed"
        return not (refused and self.rests)


def waits_for_room(instance: InstanceRow) -> bool:
    """Whether it was refused and is to be tried again by itself."""
    return instance.state == "Pending" and 0 < instance.retry_at < math.inf


def next_step(seen: Situation) -> NextStep:
    """What is done about an instance."""
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
    """Of one that is to have nothing, or had nothing until now."""
    if seen.instance.state != "Suspended":
        return NextStep.SUSPEND
    return NextStep.WAIT if seen.instance.shape.suspend else NextStep.CREATE


def _of_failed(seen: Situation) -> NextStep:
    """Of one that has Failed: only what is below its floor leaves that by itself."""
    if not below_floor(seen.instance):
        return NextStep.WAIT
    if seen.can_be_less:
        return NextStep.CHANGE
    if seen.recovery.action == "hold":
        return NextStep.WAIT
    if not seen.repair:
        return NextStep.CHANGE  # who was lost is back
    return NextStep.WAIT if seen.rests or seen.observed.allocation is None else NextStep.REPAIR_BELOW_FLOOR


def _of_settled(seen: Situation) -> NextStep:
    """Of one that has its nodes, none of which has to be repaired."""
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
