"""Reconciling: look at what the neighbours show, write it into each instance, open the workflow the difference calls
for."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Literal, TypeVar

from sqlalchemy.orm import Session

from matrixcommon.api.client import WatchEvent
from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import InternalError, MatrixError
from matrixcommon.model.quantities import counted, from_timestamp
from matrixcommon.model.resource_key import name_of
from matrixcommon.workflows.runner import WorkflowRunner
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.model.observation import Observed
from matrixcompute.model.retries import Waiting, due_at, whose_turn
from matrixcompute.model.states import HOLDING, SETTLED
from matrixcompute.model.whole_blocks import whole_blocks
from matrixcompute.operations.context import MOVE, REPAIR, RESTORE_SLICES, SUSPEND
from matrixcompute.operations.starter import WorkflowStarter, below_floor, change_verb
from matrixcompute.reconcilers.findings import Findings, NotUnderstood, Surroundings, concerns_one
from matrixcompute.reconcilers.member_news import MemberNews
from matrixcompute.reconcilers.passed_over import PassedOver
from matrixcompute.reconcilers.preemption import PreemptionReconciler
from matrixcompute.reconcilers.room import RoomReconciler
from matrixcompute.recovery.ladder import RungTried
from matrixcompute.recovery.policy import (
    Recovery,
    RecoveryPolicy,
    broken_members,
    failed_since,
    plan_recovery,
    silent_members,
)
from matrixcompute.store.recovery_policies import policies_by_target, policy_of
from matrixcompute.store.store import ComputeStore, InstanceRow, OperationRow
from matrixresource.contract.allocations import AllocationView, MemberView

log = logging.getLogger(__name__)

T = TypeVar("T")

UNSCHEDULED = ("Pending", "Provisioning")
"""States in which an instance waits for its nodes."""


def waits_for_room(instance: InstanceRow) -> bool:
    """Whether it was refused and is to be tried again by itself."""
    return instance.state == "Pending" and 0 < instance.retry_at < math.inf


def shape_of(instance: InstanceRow) -> str:
    """What it asks for, and whose it is: the same text for all that are alike."""
    return f"{instance.project} {json.dumps(instance.spec, sort_keys=True)}"


class InstanceReconciler:
    """`reconcile` once per period, and whenever a neighbour reports a change."""

    def __init__(
        self,
        store: ComputeStore,
        neighbours: ControlPlane,
        runner: WorkflowRunner,
        clock: Clock,
        policy: RecoveryPolicy,
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called after a workflow was opened, for the runner to take it up at once."""
        self._store = store
        self._neighbours = neighbours
        self._runner = runner
        self._clock = clock
        self._policy = policy
        self._wake = wake
        self._workflows = WorkflowStarter(store, runner, clock)
        self._preemption = PreemptionReconciler(store, neighbours, self._workflows, clock)
        self._room = RoomReconciler(store, neighbours, self._workflows, clock)
        self._news = MemberNews(store, clock)
        self._passed_over = PassedOver(clock)

    def hear(self, event: WatchEvent | None) -> bool:
        """Take in what a watch of the allocations says, None after a break of it. Whether somebody has just failed or
        was revoked, so that looking cannot wait."""
        return self._news.take(event)

    async def reconcile(self) -> str:
        """Look at everything once: write down what is seen, and open the workflows that it calls for."""
        versions = self._store.instance_versions()
        if not versions:
            return "no instances"
        heard = self._news.look()
        found, slices, draining, out_then = await asyncio.gather(
            self._neighbours.allocations(),
            self._neighbours.slices(),
            self._neighbours.draining(),
            self._out_of_service(heard),  # with the rest, where it is known to matter
        )
        allocations = {each.key: each for each in found}
        broken = any(broken_members(each.members) for each in allocations.values())
        silent = {node for each in allocations.values() for node in silent_members(each.members)}
        out = sorted({*(out_then if heard else await self._out_of_service(broken)), *silent})
        around = Surroundings(versions, allocations, slices, draining, out)
        passed_over = self._passed_over.resting(around)
        while True:
            try:
                findings = self._look(around, passed_over)
                break
            except NotUnderstood as wrong:  # nothing of the look is written: all the others are looked at again
                log.error("an instance is passed over", extra={"instance": wrong.instance}, exc_info=wrong.cause)
                passed_over[wrong.instance] = wrong.cause
                self._passed_over.note(wrong.instance, wrong.cause, around)
        self._passed_over.keep(passed_over)
        self._news.looked(allocations)
        opened = await self._act_on(findings, allocations.values())
        return f"{opened} workflows opened" + (
            f", {counted(len(passed_over), 'instance')} passed over" if passed_over else ""
        )

    def _look(self, around: Surroundings, passed_over: Mapping[str, Exception]) -> Findings:
        """Write down what is seen of every instance, and open workflows, in one transaction. Raises NotUnderstood for
        the first one for which that fails and that is not passed over."""
        findings, now = Findings(), self._clock.now()
        with self._store.transaction() as session:
            busy = {workflow.target for workflow in self._store.open_operations(session)}
            instances = list(self._store.instances(session))
            looked_at = [each for each in instances if each.name not in passed_over]
            findings.turns = self._turns(looked_at, busy - around.allocations.keys())
            policies = policies_by_target(session)
            for instance in instances:
                if instance.version != around.versions.get(instance.name):
                    findings.changed.append(instance.name)  # what was seen may be older than what was written since
                    continue
                if instance.name in passed_over:
                    why = f"it is not looked after, by a fault of this program: {passed_over[instance.name]}"
                    self._store.record_event(session, instance.name, InternalError.__name__, why, now, "Warning")
                    continue
                policy = policy_of(instance.name, policies, self._policy)
                try:
                    self._look_at(session, instance, policy, around, findings, instance.name in busy)
                except Exception as wrong:
                    if concerns_one(wrong):
                        raise NotUnderstood(instance.name, wrong) from wrong
                    raise
        return findings

    def _look_at(
        self,
        session: Session,
        instance: InstanceRow,
        policy: RecoveryPolicy,
        around: Surroundings,
        findings: Findings,
        busy: bool,
    ) -> None:
        """The same for one of them; `busy`: a workflow carries it."""
        observed = Observed(around.allocations.get(instance.name), tuple(around.slices.get(instance.name, ())))
        members = observed.allocation.members if observed.allocation is not None else ()
        tried = self._tried(session, instance, members) if broken_members(members) else []
        recovery = plan_recovery(members, around.out, policy, tried, self._clock.now())
        instance.observe(observed, recovery, self._clock.now())
        self._note_down(instance, observed)
        if session.is_modified(instance):
            findings.changed.append(instance.name)
        if loss := self._preemption.loss(instance, observed.allocation, around.allocations.values()):
            findings.losses[instance.name] = loss
        elif not busy:
            self._decide(session, instance, observed, recovery, around.draining, findings)

    def _turns(self, instances: Sequence[InstanceRow], asking: Collection[str]) -> set[str]:
        """Who of those that wait for room asks for it now; `asking` are targets of workflows that have no nodes yet."""
        waiting = [
            Waiting(each.name, shape_of(each), each.shape.priority, each.retry_at)
            for each in instances
            if waits_for_room(each)
        ]
        refused = (each for each in instances if each.state in UNSCHEDULED and each.retry_at)
        return whose_turn(waiting, {shape_of(each) for each in refused if each.name in asking}, self._clock)

    async def _out_of_service(self, matters: bool) -> list[str]:
        return await self._neighbours.out_of_service() if matters else []

    def _tried(self, session: Session, instance: InstanceRow, members: Sequence[MemberView]) -> list[RungTried]:
        """What the repair before has begun about the failures there are, where that was refused or overtaken: nothing
        is tried twice about one failure."""
        before = session.get(OperationRow, instance.operation) if instance.operation else None
        since = {each.node: from_timestamp(each.failed_at) for each in members if each.failed_at is not None}
        tried = before.rungs_tried if before is not None and before.recovery is None else []
        return [each for each in tried if each.at >= since.get(each.node, 0.0)]

    def _tried_before(
        self, session: Session, instance: InstanceRow, members: Sequence[MemberView], recovery: Recovery
    ) -> bool:
        """Whether the repair before was of the same failure, and did not come to its end: it is one repair, however
        often it is tried."""
        before = session.get(OperationRow, instance.operation or "")
        if before is None or before.verb != REPAIR or before.state == "Done":
            return False
        since, begun = failed_since(members, recovery.concerned), before.created_at or 0.0
        again = since is not None and from_timestamp(since[0]) > begun
        return not again and {*recovery.concerned} <= {*(before.parameters or {}).get("nodes", "").split(", ")}

    def _note_down(self, instance: InstanceRow, observed: Observed) -> None:
        """Note since when an instance lacks a member, and that it does no longer where nobody had to repair it."""
        members, down = observed.allocation.members if observed.allocation is not None else [], instance.down
        broken = [member.node for member, _ in broken_members(members) if member.role == "member"]
        if broken:
            since = failed_since(members, broken)
            after = down.failed(from_timestamp(since[0]) if since is not None else self._clock.now())
        elif instance.lacks(observed.allocation):
            return
        elif instance.state == "Active" and observed.nodes_ready and down.down_since is not None:
            after = down.settled(self._clock.now(), on=True)
        else:
            return
        if after != down:
            instance.down_time = after.wire()

    async def _act_on(self, findings: Findings, allocations: Collection[AllocationView]) -> int:
        """What needs the neighbours, asked once everything is written down; how many workflows were opened in all. What
        is refused of one instance keeps none of the others, and is looked at again."""
        opened = findings.opened
        for name, loss in findings.losses.items():
            opened += await self._asked(name, self._preemption.give_up(name, loss, allocations))
        for name, nodes in findings.to_leave.items():
            opened += await self._asked(name, self._preemption.leave(name, nodes))
        for name in findings.to_restore:
            if restored := await self._asked(name, self._room.restore(name)):
                opened += restored
                break  # the others ask when it has taken its nodes
        for name, broken in findings.to_repair.items():
            opened += await self._asked(name, self._room.repair(name, *broken))
        for name, lacking in findings.to_start.items():
            opened += await self._asked(name, self._room.start(name, *lacking))
        for name, node in findings.gone_spares:
            await self._asked(name, self._neighbours.replace(name, node, "SpareGone"))
        if opened:
            self._wake()
        for name in findings.changed:
            self._runner.nudge(name)
        return opened

    async def _asked(self, name: str, asking: Awaitable[T]) -> T | Literal[0]:
        try:
            return await asking
        except MatrixError as refused:
            log.warning("an instance waits", extra={"instance": name, "why": refused.message})
            return 0

    def _decide(
        self,
        session: Session,
        instance: InstanceRow,
        observed: Observed,
        recovery: Recovery,
        draining: Sequence[str],
        findings: Findings,
    ) -> None:
        """For an instance that no workflow carries: open one, or note who is to leave a domain that drains."""
        if self._opened(session, instance, observed, recovery, findings):
            findings.opened += 1
        else:
            self._preemption.look_for_leavers(instance, observed, draining, findings)

    def _opened(
        self, session: Session, instance: InstanceRow, observed: Observed, recovery: Recovery, findings: Findings
    ) -> bool:
        """Open at most one workflow; whether one was."""
        now = self._clock.now()
        members = observed.allocation.members if observed.allocation is not None else []
        if instance.state == "Deleting":
            self._workflows.open_quietly(session, "delete-instance", instance)
            return True
        if instance.state in ("Suspending", "Suspended") or (instance.shape.suspend and instance.state in UNSCHEDULED):
            return self._suspended(session, instance)
        # What broke of one that is switched off is replaced when it starts, whatever else is asked of it until then.
        repair = recovery.action in ("replace", "repair") and instance.state != "Stopped"
        if instance.state == "Failed":
            if below_floor(instance) and self._can_be_less(instance, members):
                self._workflows.open_change(session, instance)
                return True
            if below_floor(instance) and recovery.action != "hold":
                if repair and observed.allocation is not None and not self._rests(instance):
                    tried = self._tried(session, instance, members)
                    stops = policy_of(instance.name, policies_by_target(session), self._policy).stops
                    findings.to_repair[instance.name] = observed.allocation, recovery, tried, stops
                elif not repair:
                    self._workflows.open_change(session, instance)  # who was lost is back
                    return True
            return False
        if instance.state == "Stopped" and instance.generation == instance.observed_generation:
            instance.set_condition("Progressing", False, "Settled", "nothing is under way", now)
            return False
        if recovery.action == "hold":
            self._store.record_event(session, instance.name, recovery.reason, recovery.message, now, "Warning")
            return False
        if self._rests(instance) and (not repair or self._repair_refused(session, instance)):
            # A refused change of shape does not keep a lost member from being replaced, nor a slice from coming back.
            return not repair and self._slices_restored(session, instance, observed)
        if instance.state in UNSCHEDULED:
            if waits_for_room(instance) and instance.name not in findings.turns:
                return False
            self._workflows.open(session, "create-instance", instance, "Provisioning", "Creating")
            return True
        if instance.state in HOLDING and instance.state not in SETTLED:  # its workflow ended without a word
            self._workflows.open_quietly(session, change_verb(session, instance), instance)
            return True
        if repair:
            if {m.node for m in members if m.role == "member"} & set(recovery.concerned):
                instance.repairs += not self._tried_before(session, instance, members, recovery)
                tried = self._tried(session, instance, members)
                self._workflows.open_repair(session, instance, members, recovery, tried)
                return True
            findings.gone_spares += [(instance.name, node) for node in recovery.nodes]
            return False
        reduced = instance.state == "Active" and instance.reduced(observed.allocation)
        if reduced and not self._rests(instance) and self._room.due(instance.name):
            findings.to_restore.append(instance.name)
            return False
        changed = instance.generation != instance.observed_generation
        if changed and instance.refused_generation == instance.generation:
            return self._slices_restored(session, instance, observed)
        starts = changed and instance.state == "Stopped" and instance.shape.power == "On"
        if starts and recovery.action == "replace" and observed.allocation is not None:
            findings.to_start[instance.name] = observed.allocation, recovery
            return False
        if changed or not self._whole(instance, observed):
            self._workflows.open_change(session, instance)
            return True
        if any(member.role == "successor" for member in members):  # of a move that was abandoned
            self._workflows.open(session, MOVE, instance, "Updating", "Moving")
            return True
        instance.set_condition("Progressing", False, "Settled", "nothing is under way", now)
        return False

    def _rests(self, instance: InstanceRow) -> bool:
        """Whether it was refused, and is not tried again yet."""
        return self._clock.now() < due_at(instance.retry_at, self._clock)

    def _can_be_less(self, instance: InstanceRow, members: Sequence[MemberView]) -> bool:
        """Whether one that is below its floor is asked to be what it can be with the members that work: off, without
        nodes, or smaller. That may have been asked for while it was being repaired."""
        shape, current = instance.shape, instance.last_active or instance.shape
        rests = self._rests(instance) and instance.retry_at < math.inf
        if rests or instance.generation == instance.observed_generation:
            return False
        broken = {member.node for member, _ in broken_members(members)}
        working = [each for each in members if each.role == "member" and each.node not in broken]
        fits = shape.floor <= len(whole_blocks(working, shape.placement.blocks)) and shape.nodes <= current.nodes
        return shape.suspend or shape.power == "Off" or fits

    def _repair_refused(self, session: Session, instance: InstanceRow) -> bool:
        """Whether what an instance waits after is a repair. One that ended well leaves `retry_at` to the change that
        was refused before it; one that is forgotten by now may be one that waits for `:retry`."""
        before = session.get(OperationRow, instance.operation or "")
        if before is None:
            return name_of(instance.operation or "").startswith(REPAIR)
        return before.verb == REPAIR and before.state != "Done"

    def _slices_restored(self, session: Session, instance: InstanceRow, observed: Observed) -> bool:
        """Have the slices of the present shape back while a changed one waits; whether a workflow was opened for it."""
        if (
            instance.state != "Active"
            or instance.generation == instance.observed_generation
            or observed.allocation is None
            or observed.joined
            or any(each.state == "Withdrawing" for each in observed.slices)
        ):
            return False
        before = session.get(OperationRow, instance.operation or "")
        refused = before is not None and before.verb == RESTORE_SLICES and before.state == "Failed"
        if refused and self._rests(instance):
            return False
        self._workflows.open(session, RESTORE_SLICES, instance, "Updating", "Restoring")
        return True

    def _suspended(self, session: Session, instance: InstanceRow) -> bool:
        """One that is to have nothing, or had nothing until now."""
        if instance.state != "Suspended":
            self._workflows.open(session, SUSPEND, instance, "Suspending", "Suspending")
            return True
        if instance.shape.suspend:
            return False
        self._workflows.open(session, "create-instance", instance, "Provisioning", "Creating")
        return True

    def _whole(self, instance: InstanceRow, observed: Observed) -> bool:
        """Whether everything an instance takes is still there, its slices join the members that it has, and its nodes
        are switched on or off as they are to be: a restart that was abandoned may have left them off."""
        allocation = observed.allocation
        powered = allocation is not None and allocation.power == instance.shape.power
        return allocation is not None and allocation.bound and powered and observed.joined
