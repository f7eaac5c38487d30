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
from matrixcommon.model.quantities import parse_timestamp, pluralized
from matrixcommon.workflows.runner import WorkflowRunner
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.model.observation import Observed
from matrixcompute.model.retries import WaitingInstance, due_at, select_retries
from matrixcompute.operations.context import MOVE, REPAIR, RESTORE_SLICES, SUSPEND
from matrixcompute.operations.starter import WorkflowStarter, change_verb
from matrixcompute.reconcilers.capacity import CapacityReconciler
from matrixcompute.reconcilers.failure_backoff import FailureBackoff
from matrixcompute.reconcilers.findings import ClusterSnapshot, Findings, InstanceReconcileError, is_instance_error
from matrixcompute.reconcilers.next_step import UNSCHEDULED, NextStep, Situation, next_step, waits_for_capacity
from matrixcompute.reconcilers.preemption import PreemptionReconciler
from matrixcompute.reconcilers.readiness import ReadinessUpdater
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


def spec_key(instance: InstanceRow) -> str:
    """The instance's project and spec as text: equal for instances that ask for the same."""
    return f"{instance.project} {json.dumps(instance.spec, sort_keys=True)}"


class InstanceReconciler:
    """`reconcile` once per period, and whenever MatrixResource or MatrixLink reports a change."""

    def __init__(
        self,
        store: ComputeStore,
        control_plane: ControlPlane,
        runner: WorkflowRunner,
        clock: Clock,
        policy: RecoveryPolicy,
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called after a workflow was opened, so that the runner begins it at once."""
        self._store = store
        self._control_plane = control_plane
        self._runner = runner
        self._clock = clock
        self._policy = policy
        self._wake = wake
        self._workflows = WorkflowStarter(store, runner, clock)
        self._preemption = PreemptionReconciler(store, control_plane, self._workflows, clock)
        self._capacity = CapacityReconciler(store, control_plane, self._workflows, clock)
        self._readiness = ReadinessUpdater(store, clock)
        self._failure_backoff = FailureBackoff(clock)

    def observe_event(self, event: WatchEvent | None) -> bool:
        """Take an event of the watch of allocations (None: the watch was interrupted). Returns whether a member has
        just failed or an allocation was revoked, so that reconciling must not wait."""
        return self._readiness.observe(event)

    async def reconcile(self) -> str:
        """Observe all instances once, record what is observed, and open the workflows that it calls for."""
        versions = self._store.instance_versions()
        if not versions:
            return "no instances"
        member_failed = self._readiness.pop_new_failure()
        views, slices, draining, nodes_out = await asyncio.gather(
            self._control_plane.allocations(),
            self._control_plane.slices(),
            self._control_plane.draining(),
            self._out_of_service(member_failed),  # fetched along with the rest if known to be needed
        )
        allocations = {each.key: each for each in views}
        broken = any(broken_members(each.members) for each in allocations.values())
        silent = {node for each in allocations.values() for node in silent_members(each.members)}
        out = sorted({*(nodes_out if member_failed else await self._out_of_service(broken)), *silent})
        snapshot = ClusterSnapshot(versions, allocations, slices, draining, out)
        skipped = self._failure_backoff.backing_off(snapshot)
        while True:
            try:
                findings = self._observe_instances(snapshot, skipped)
                break
            except InstanceReconcileError as error:  # nothing was written: start again with all other instances
                log.error("an instance is passed over", extra={"instance": error.instance}, exc_info=error.cause)
                skipped[error.instance] = error.cause
                self._failure_backoff.record(error.instance, error.cause, snapshot)
        self._failure_backoff.retain(skipped)
        self._readiness.mark_observed(allocations)
        opened = await self._apply_findings(findings, allocations.values())
        return f"{opened} workflows opened" + (
            f", {pluralized(len(skipped), 'instance')} passed over" if skipped else ""
        )

    def _observe_instances(self, snapshot: ClusterSnapshot, skipped: Mapping[str, Exception]) -> Findings:
        """Record what is observed of every instance, and open workflows, in one transaction. Raises
        InstanceReconcileError for the first instance that fails and is not passed over."""
        findings, now = Findings(), self._clock.now()
        with self._store.transaction() as session:
            busy = {workflow.target for workflow in self._store.open_operations(session)}
            instances = list(self._store.instances(session))
            reconciled = [each for each in instances if each.name not in skipped]
            findings.may_request = self._select_retries(reconciled, busy - snapshot.allocations.keys())
            policies = policies_by_target(session)
            for instance in instances:
                if instance.version != snapshot.versions.get(instance.name):
                    findings.changed.append(instance.name)  # the observation may be older than the row
                    continue
                if instance.name in skipped:
                    why = f"it is skipped because of an internal error: {skipped[instance.name]}"
                    self._store.record_event(session, instance.name, InternalError.__name__, why, now, "Warning")
                    continue
                policy = policy_of(instance.name, policies, self._policy)
                try:
                    self._observe_instance(session, instance, policy, snapshot, findings, instance.name in busy)
                except Exception as error:
                    if is_instance_error(error):
                        raise InstanceReconcileError(instance.name, error) from error
                    raise
        return findings

    def _observe_instance(
        self,
        session: Session,
        instance: InstanceRow,
        policy: RecoveryPolicy,
        snapshot: ClusterSnapshot,
        findings: Findings,
        busy: bool,
    ) -> None:
        """The same for one instance. `busy`: a workflow is under way for it."""
        observed = Observed(snapshot.allocations.get(instance.name), tuple(snapshot.slices.get(instance.name, ())))
        members = observed.allocation.members if observed.allocation is not None else ()
        tried = self._rungs_tried(session, instance, members) if broken_members(members) else []
        recovery = plan_recovery(members, snapshot.out, policy, tried, self._clock.now())
        self._store.observe(session, instance, observed, recovery, self._clock.now())
        self._record_downtime(instance, observed)
        if session.is_modified(instance):
            findings.changed.append(instance.name)
        if loss := self._preemption.find_loss(instance, observed.allocation, snapshot.allocations.values()):
            findings.losses[instance.name] = loss
        elif not busy:
            self._decide(session, instance, observed, recovery, snapshot.draining, findings)

    def _select_retries(self, instances: Sequence[InstanceRow], requested: Collection[str]) -> set[str]:
        """Which of the instances that wait for room may ask now. `requested`: targets of workflows without nodes
        yet."""
        waiting = [
            WaitingInstance(each.name, spec_key(each), each.shape.priority, each.retry_at)
            for each in instances
            if waits_for_capacity(each)
        ]
        refused = (each for each in instances if each.state in UNSCHEDULED and each.retry_at)
        return select_retries(waiting, {spec_key(each) for each in refused if each.name in requested}, self._clock)

    async def _out_of_service(self, needed: bool) -> list[str]:
        return await self._control_plane.out_of_service() if needed else []

    def _rungs_tried(self, session: Session, instance: InstanceRow, members: Sequence[MemberView]) -> list[RungTried]:
        """The rungs that the previous repair began for the present failures, if it was refused or superseded, so that
        no rung is tried twice for one failure."""
        before = session.get(OperationRow, instance.operation) if instance.operation else None
        since = {each.node: parse_timestamp(each.failed_at) for each in members if each.failed_at is not None}
        tried = before.rungs_tried if before is not None and before.recovery is None else []
        return [each for each in tried if each.at >= since.get(each.node, 0.0)]

    def _continues_repair(
        self, session: Session, instance: InstanceRow, members: Sequence[MemberView], recovery: Recovery
    ) -> bool:
        """Whether the previous repair was for the same failure and did not finish. It counts as one repair, however
        often it is tried."""
        before = session.get(OperationRow, instance.operation or "")
        if before is None or before.verb != REPAIR or before.state == "Done":
            return False
        since, begun = failed_since(members, recovery.affected), before.created_at or 0.0
        failed_again = since is not None and parse_timestamp(since[0]) > begun
        return not failed_again and {*recovery.affected} <= {*(before.parameters or {}).get("nodes", "").split(", ")}

    def _record_downtime(self, instance: InstanceRow, observed: Observed) -> None:
        """Record since when an instance lacks a member, or that it no longer does although nothing was repaired."""
        members, down = observed.allocation.members if observed.allocation is not None else [], instance.down
        broken = [member.node for member, _ in broken_members(members) if member.role == "member"]
        if broken:
            since = failed_since(members, broken)
            after = down.mark_down(parse_timestamp(since[0]) if since is not None else self._clock.now())
        elif instance.missing_members(observed.allocation):
            return
        elif instance.state == "Active" and observed.nodes_ready and down.down_since is not None:
            after = down.mark_up(self._clock.now(), on=True)
        else:
            return
        if after != down:
            instance.down_time = after.wire()

    async def _apply_findings(self, findings: Findings, allocations: Collection[AllocationView]) -> int:
        """Act on findings that need calls to other services, after everything is recorded. Returns how many workflows
        were opened in all. A refusal for one instance does not stop the others, and is retried."""
        opened = findings.opened
        for name, loss in findings.losses.items():
            opened += await self._attempt(name, self._preemption.open_for_loss(name, loss, allocations))
        for name, nodes in findings.draining_members.items():
            opened += await self._attempt(name, self._preemption.move_draining_members(name, nodes))
        for name in findings.to_restore:
            if restored := await self._attempt(name, self._capacity.restore(name)):
                opened += restored
                break  # the others may ask once it has taken its nodes
        for name, repair_inputs in findings.to_repair.items():
            opened += await self._attempt(name, self._capacity.repair(name, *repair_inputs))
        for name, recovery_inputs in findings.to_start.items():
            opened += await self._attempt(name, self._capacity.start(name, *recovery_inputs))
        for name, node in findings.lost_spares:
            await self._attempt(name, self._control_plane.replace(name, node, "SpareGone"))
        if opened:
            self._wake()
        for name in findings.changed:
            self._runner.nudge(name)
        return opened

    async def _attempt(self, name: str, request: Awaitable[T]) -> T | Literal[0]:
        try:
            return await request
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
        situation = Situation(
            instance,
            observed,
            recovery,
            backing_off=self._clock.now() < due_at(instance.retry_at, self._clock),
            may_request=instance.name in findings.may_request,
            may_restore=self._capacity.due(instance.name),
            last_operation=lambda: session.get(OperationRow, instance.operation or ""),
        )
        step = next_step(situation)
        if self._open_workflow(session, situation, step):
            findings.opened += 1
            return
        self._record_step(session, situation, step, findings)
        self._preemption.find_draining_members(instance, observed, draining, findings)

    def _open_workflow(self, session: Session, situation: Situation, step: NextStep) -> bool:
        """Open the workflow of a step. Returns whether it has one."""
        instance, workflows = situation.instance, self._workflows
        match step:
            case NextStep.DELETE:
                workflows.open_without_transition(session, "delete-instance", instance)
            case NextStep.SUSPEND:
                workflows.open(session, SUSPEND, instance, "Suspending", "Suspending")
            case NextStep.CREATE:
                workflows.open(session, "create-instance", instance, "Provisioning", "Creating")
            case NextStep.RESUME:
                workflows.open_without_transition(session, change_verb(session, instance), instance)
            case NextStep.CHANGE:
                workflows.open_change(session, instance)
            case NextStep.REPAIR:
                instance.repairs += not self._continues_repair(session, instance, situation.members, situation.recovery)
                tried = self._rungs_tried(session, instance, situation.members)
                workflows.open_repair(session, instance, situation.members, situation.recovery, tried)
            case NextStep.FINISH_MOVE:
                workflows.open(session, MOVE, instance, "Updating", "Moving")
            case NextStep.RESTORE_SLICES:
                workflows.open(session, RESTORE_SLICES, instance, "Updating", "Restoring")
            case _:
                return False
        return True

    def _record_step(self, session: Session, situation: Situation, step: NextStep, findings: Findings) -> None:
        """Carry out a step without a workflow: note what it needs of other services, or what it shows."""
        instance, allocation, recovery, now = (
            situation.instance,
            situation.observed.allocation,
            situation.recovery,
            self._clock.now(),
        )
        match step:
            case NextStep.REPAIR_BELOW_FLOOR if allocation is not None:
                tried = self._rungs_tried(session, instance, situation.members)
                stop_on_exhausted = policy_of(
                    instance.name, policies_by_target(session), self._policy
                ).stop_on_exhausted
                findings.to_repair[instance.name] = allocation, recovery, tried, stop_on_exhausted
            case NextStep.START if allocation is not None:
                findings.to_start[instance.name] = allocation, recovery
            case NextStep.RESTORE_MEMBERS:
                findings.to_restore.append(instance.name)
            case NextStep.REPLACE_SPARES:
                findings.lost_spares += [(instance.name, node) for node in recovery.nodes]
            case NextStep.HOLD:
                self._store.record_event(session, instance.name, recovery.reason, recovery.message, now, "Warning")
            case NextStep.SETTLE:
                instance.set_condition("Progressing", False, "Settled", "nothing is under way", now)
