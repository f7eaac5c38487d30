"""Reconcile instances: observe MatrixResource and MatrixLink, record what they show in each instance, and open the
workflow that the difference from its spec calls for."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Literal, TypeVar

from sqlalchemy.orm import Session

from matrixcommon.api.client import WatchEvent
from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import InternalError, MatrixError
from matrixcommon.model.quantities import counted, from_timestamp
from matrixcommon.workflows.runner import WorkflowRunner
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.model.observation import Observed
from matrixcompute.model.retries import Waiting, due_at, whose_turn
from matrixcompute.operations.context import MOVE, REPAIR, RESTORE_SLICES, SUSPEND
from matrixcompute.operations.starter import WorkflowStarter, change_verb
from matrixcompute.reconcilers.findings import Findings, NotUnderstood, Surroundings, concerns_one
from matrixcompute.reconcilers.member_news import MemberNews
from matrixcompute.reconcilers.next_step import UNSCHEDULED, NextStep, Situation, next_step, waits_for_room
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


def shape_of(instance: InstanceRow) -> str:
    """The instance's project and spec as text: equal for instances that ask for the same."""
    return f"{instance.project} {json.dumps(instance.spec, sort_keys=True)}"


class InstanceReconciler:
    """`reconcile` once per period, and whenever MatrixResource or MatrixLink reports a change."""

    def __init__(
        self,
        store: ComputeStore,
        neighbours: ControlPlane,
        runner: WorkflowRunner,
        clock: Clock,
        policy: RecoveryPolicy,
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called after a workflow was opened, so that the runner begins it at once."""
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
        """Take an event of the watch of allocations (None: the watch was interrupted). Returns whether a member has
        just failed or an allocation was revoked, so that reconciling must not wait."""
        return self._news.take(event)

    async def reconcile(self) -> str:
        """Observe all instances once, record what is observed, and open the workflows that it calls for."""
        versions = self._store.instance_versions()
        if not versions:
            return "no instances"
        heard = self._news.look()
        found, slices, draining, out_then = await asyncio.gather(
            self._neighbours.allocations(),
            self._neighbours.slices(),
            self._neighbours.draining(),
            self._out_of_service(heard),  # fetched along with the rest if known to be needed
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
            except NotUnderstood as wrong:  # nothing was written: start again with all other instances
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
        """Record what is observed of every instance, and open workflows, in one transaction. Raises NotUnderstood for
        the first instance that fails and is not passed over."""
        findings, now = Findings(), self._clock.now()
        with self._store.transaction() as session:
            busy = {workflow.target for workflow in self._store.open_operations(session)}
            instances = list(self._store.instances(session))
            looked_at = [each for each in instances if each.name not in passed_over]
            findings.turns = self._turns(looked_at, busy - around.allocations.keys())
            policies = policies_by_target(session)
            for instance in instances:
                if instance.version != around.versions.get(instance.name):
                    findings.changed.append(instance.name)  # the observation may be older than the row
                    continue
                if instance.name in passed_over:
                    why = f"it is skipped because of an internal error: {passed_over[instance.name]}"
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
        """The same for one instance. `busy`: a workflow is under way for it."""
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
        """Which of the instances that wait for room may ask now. `asking`: targets of workflows without nodes yet."""
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
        """The rungs that the previous repair began for the present failures, if it was refused or superseded, so that
        no rung is tried twice for one failure."""
        before = session.get(OperationRow, instance.operation) if instance.operation else None
        since = {each.node: from_timestamp(each.failed_at) for each in members if each.failed_at is not None}
        tried = before.rungs_tried if before is not None and before.recovery is None else []
        return [each for each in tried if each.at >= since.get(each.node, 0.0)]

    def _tried_before(
        self, session: Session, instance: InstanceRow, members: Sequence[MemberView], recovery: Recovery
    ) -> bool:
        """Whether the previous repair was for the same failure and did not finish. It counts as one repair, however
        often it is tried."""
        before = session.get(OperationRow, instance.operation or "")
        if before is None or before.verb != REPAIR or before.state == "Done":
            return False
        since, begun = failed_since(members, recovery.concerned), before.created_at or 0.0
        again = since is not None and from_timestamp(since[0]) > begun
        return not again and {*recovery.concerned} <= {*(before.parameters or {}).get("nodes", "").split(", ")}

    def _note_down(self, instance: InstanceRow, observed: Observed) -> None:
        """Record since when an instance lacks a member, or that it no longer does although nothing was repaired."""
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
        """Act on findings that need calls to other services, after everything is recorded. Returns how many workflows
        were opened in all. A refusal for one instance does not stop the others, and is retried."""
        opened = findings.opened
        for name, loss in findings.losses.items():
            opened += await self._asked(name, self._preemption.give_up(name, loss, allocations))
        for name, nodes in findings.to_leave.items():
            opened += await self._asked(name, self._preemption.leave(name, nodes))
        for name in findings.to_restore:
            if restored := await self._asked(name, self._room.restore(name)):
                opened += restored
                break  # the others may ask once it has taken its nodes
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
        """Decide about an instance without a workflow under way: open one, or note what it needs of other services, or
        which members have to leave a draining domain."""
        seen = Situation(
            instance,
            observed,
            recovery,
            rests=self._clock.now() < due_at(instance.retry_at, self._clock),
            has_turn=instance.name in findings.turns,
            may_restore=self._room.due(instance.name),
            last_operation=lambda: session.get(OperationRow, instance.operation or ""),
        )
        step = next_step(seen)
        if self._opened(session, seen, step):
            findings.opened += 1
            return
        self._noted(session, seen, step, findings)
        self._preemption.look_for_leavers(instance, observed, draining, findings)

    def _opened(self, session: Session, seen: Situation, step: NextStep) -> bool:
        """Open the workflow of a step. Returns whether it has one."""
        instance, workflows = seen.instance, self._workflows
        match step:
            case NextStep.DELETE:
                workflows.open_quietly(session, "delete-instance", instance)
            case NextStep.SUSPEND:
                workflows.open(session, SUSPEND, instance, "Suspending", "Suspending")
            case NextStep.CREATE:
                workflows.open(session, "create-instance", instance, "Provisioning", "Creating")
            case NextStep.RESUME:
                workflows.open_quietly(session, change_verb(session, instance), instance)
            case NextStep.CHANGE:
                workflows.open_change(session, instance)
            case NextStep.REPAIR:
                instance.repairs += not self._tried_before(session, instance, seen.members, seen.recovery)
                tried = self._tried(session, instance, seen.members)
                workflows.open_repair(session, instance, seen.members, seen.recovery, tried)
            case NextStep.FINISH_MOVE:
                workflows.open(session, MOVE, instance, "Updating", "Moving")
            case NextStep.RESTORE_SLICES:
                workflows.open(session, RESTORE_SLICES, instance, "Updating", "Restoring")
            case _:
                return False
        return True

    def _noted(self, session: Session, seen: Situation, step: NextStep, findings: Findings) -> None:
        """Carry out a step without a workflow: note what it needs of other services, or what it shows."""
        instance, allocation, recovery, now = seen.instance, seen.observed.allocation, seen.recovery, self._clock.now()
        match step:
            case NextStep.REPAIR_BELOW_FLOOR if allocation is not None:
                tried = self._tried(session, instance, seen.members)
                stops = policy_of(instance.name, policies_by_target(session), self._policy).stops
                findings.to_repair[instance.name] = allocation, recovery, tried, stops
            case NextStep.START if allocation is not None:
                findings.to_start[instance.name] = allocation, recovery
            case NextStep.RESTORE_MEMBERS:
                findings.to_restore.append(instance.name)
            case NextStep.REPLACE_SPARES:
                findings.gone_spares += [(instance.name, node) for node in recovery.nodes]
            case NextStep.HOLD:
                self._store.record_event(session, instance.name, recovery.reason, recovery.message, now, "Warning")
            case NextStep.SETTLE:
                instance.set_condition("Progressing", False, "Settled", "nothing is under way", now)
