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
    backing_off: bool
    """Whether it was refused and its retry is not due yet."""
    may_request: bool
    """Whether it is its turn to ask for room, among the instances that wait."""
    may_restore: bool
    """Whether its missing members may be requested now."""
    last_operation: Callable[[], OperationRow | None]

    @property
    def members(self) -> Sequence[MemberView]:
        return self.observed.allocation.members if self.observed.allocation is not None else []

    @property
    def spec_changed(self) -> bool:
        """Whether its spec differs from its present shape."""
        return self.instance.generation != self.instance.observed_generation

    @property
    def needs_repair(self) -> bool:
        """Whether a member or spare has to be repaired. Broken nodes of a stopped instance are replaced when it starts,
        whatever else is requested before."""
        return self.recovery.action in ("replace", "repair") and self.instance.state != "Stopped"

    @property
    def matches_spec(self) -> bool:
        """Whether its allocation is bound, its slices join exactly its members, and its nodes are powered as specified;
        an abandoned restart may have left them off."""
        allocation = self.observed.allocation
        powered = allocation is not None and allocation.power == self.instance.shape.power
        return allocation is not None and allocation.bound and powered and self.observed.slices_match

    @property
    def can_reach_smaller_spec(self) -> bool:
        """Whether an instance whose members cannot be replaced has a new spec that its working members can satisfy:
        off, suspended, or smaller. The spec may have changed during an operation that has ended since."""
        instance = self.instance
        shape, current = instance.shape, instance.last_active or instance.shape
        if not self.spec_changed or (self.backing_off and instance.retry_at < math.inf):
            return False
        broken = {member.node for member, _ in broken_members(self.members)}
        working = [each for each in self.members if each.role == "member" and each.node not in broken]
        is_feasible = shape.floor <= len(whole_blocks(working, shape.placement.blocks)) and shape.nodes <= current.nodes
        return shape.suspend or shape.power == "Off" or is_feasible

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
        if self.instance.state != "Active" or not self.spec_changed or self.observed.allocation is None:
            return False
        if self.observed.slices_match or any(each.state == "Withdrawing" for each in self.observed.slices):
            return False
        before = self.last_operation()
        refused = before is not None and before.verb == RESTORE_SLICES and before.state == "Failed"
        return not (refused and self.backing_off)


def waits_for_capacity(instance: InstanceRow) -> bool:
    """Whether it was refused and is retried automatically."""
    return instance.state == "Pending" and 0 < instance.retry_at < math.inf


def next_step(situation: Situation) -> NextStep:
    """Decide what to do about an instance."""
    state = situation.instance.state
    if state == "Deleting":
        return NextStep.DELETE
    if state in ("Suspending", "Suspended") or (state in UNSCHEDULED and situation.instance.shape.suspend):
        return _next_if_suspended(situation)
    if state == "Failed":
        return _next_if_failed(situation)
    if state == "Stopped" and not situation.spec_changed:
        return NextStep.SETTLE
    if situation.recovery.action == "hold":
        return _next_without_repair(situation)
    if situation.backing_off and (not situation.needs_repair or situation.repair_refused):
        # A refused change of shape does not keep a lost member from being replaced, nor a slice from coming back.
        return NextStep.RESTORE_SLICES if not situation.needs_repair and situation.lacks_slices else NextStep.WAIT
    if state in UNSCHEDULED:
        return (
            NextStep.WAIT if waits_for_capacity(situation.instance) and not situation.may_request else NextStep.CREATE
        )
    if state in HOLDING and state not in SETTLED:
        return NextStep.RESUME
    if situation.needs_repair:
        failed = {member.node for member in situation.members if member.role == "member"} & {
            *situation.recovery.affected
        }
        return NextStep.REPAIR if failed else NextStep.REPLACE_SPARES
    return _next_if_settled(situation)


def _next_if_suspended(situation: Situation) -> NextStep:
    """For an instance that is suspended, or about to be suspended or resumed."""
    if situation.instance.state != "Suspended":
        return NextStep.SUSPEND
    return NextStep.WAIT if situation.instance.shape.suspend else NextStep.CREATE


def _next_without_repair(situation: Situation) -> NextStep:
    """For an instance whose broken members may not be replaced now. Being switched off or shrunk needs none of them,
    and is what somebody may want in a large outage."""
    refused = situation.instance.refused_generation == situation.instance.generation
    if situation.instance.state in SETTLED and situation.can_reach_smaller_spec and not refused:
        return NextStep.CHANGE
    return NextStep.HOLD


def _next_if_failed(situation: Situation) -> NextStep:
    """For a Failed instance: only one below its floor leaves that state by itself."""
    if not below_floor(situation.instance):
        return NextStep.WAIT
    if situation.can_reach_smaller_spec:
        return NextStep.CHANGE
    if situation.recovery.action == "hold":
        return NextStep.WAIT
    if not situation.needs_repair:
        return NextStep.CHANGE  # the lost members are back
    return (
        NextStep.WAIT if situation.backing_off or situation.observed.allocation is None else NextStep.REPAIR_BELOW_FLOOR
    )


def _next_if_settled(situation: Situation) -> NextStep:
    """For an instance that has its nodes, with none to repair."""
    instance, allocation = situation.instance, situation.observed.allocation
    if (
        instance.state == "Active"
        and instance.is_reduced(allocation)
        and not situation.backing_off
        and situation.may_restore
    ):
        return NextStep.RESTORE_MEMBERS
    if situation.spec_changed and instance.refused_generation == instance.generation:
        return NextStep.RESTORE_SLICES if situation.lacks_slices else NextStep.WAIT
    starts = situation.spec_changed and instance.state == "Stopped" and instance.shape.power == "On"
    if starts and situation.recovery.action == "replace" and allocation is not None:
        return NextStep.START
    if situation.spec_changed or not situation.matches_spec:
        return NextStep.CHANGE
    if any(member.role == "successor" for member in situation.members):
        return NextStep.FINISH_MOVE
    return NextStep.SETTLE
