"""The last steps of workflows: record the result, and the state of the instance that follows from it."""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.quantities import counted
from matrixcommon.model.resource_model import is_true
from matrixcommon.persistence.database_session import find
from matrixcompute.model.observation import Observed
from matrixcompute.model.states import settled_state
from matrixcompute.operations.context import StepContext
from matrixcompute.recovery.times import in_words, parts_at_the_end
from matrixcompute.store.store import InstanceRow, OperationRow
from matrixcompute.workflows.new_members import note_wait
from matrixcompute.workflows.repairing_steps import NODES_ARE, recovery
from matrixcompute.workflows.steps import current_allocation


async def mark_active(work: StepContext) -> None:
    """Record that this workflow's spec is fulfilled, together with the members and slices that fulfil it."""
    allocation = await current_allocation(work)
    plan = await recovery(work, allocation)
    observed = Observed(allocation, tuple(await work.neighbours.slices_of(work.instance)))
    done, now, state = work.spec_generation, work.clock.now(), settled_state(work.shape.power)
    with work.store.transaction() as session:
        instance = work.store.instance(session, work.instance)
        instance.move(state)
        instance.observed_generation = done
        instance.applied = work.shape.wire()
        if is_true(instance.conditions or [], "Preempted"):
            instance.set_condition("Preempted", False, "Returned", "it has nodes again", now, done)
        instance.observe(observed, plan, now)
        of = f"{allocation.nodes} of " if instance.lacks(allocation) else ""
        verb = "is" if work.shape.nodes == 1 else "are"
        message = f"generation {done}: {of}{counted(work.shape.nodes, 'node')} {verb} {NODES_ARE[work.shape.power]}"
        _note_recovery(work, session, instance, now)
        note_wait(work, session, instance)
        if instance.lacks(allocation):
            instance.down_time = instance.down.failed(now).wire()
        work.store.record_event(session, work.instance, state, message, now)


def _note_recovery(work: StepContext, session: Session, instance: InstanceRow, now: float) -> None:
    """Record how long the recovery that ends here took, once, with its operation and the instance."""
    operation = find(session, OperationRow, work.operation)
    if operation.recovery is not None:
        return  # repeated after a crash
    since, on = operation.failed_since(), work.shape.power == "On"
    if since is None:
        instance.down_time = instance.down.settled(now, on).wire()
        return
    operation.recovery = parts_at_the_end(*since, operation.trace or {}, now)
    instance.last_recovery = operation.recovery
    instance.down_time = instance.down.settled(now, on, operation.recovery).wire()
    rungs = {each.node: each.rung for each in operation.rungs_tried}
    about = ", ".join(f"{node} ({rung})" for node, rung in rungs.items()) or (operation.parameters or {}).get(
        "nodes", ""
    )
    message = f"{about}: in {in_words(operation.recovery)}"
    work.store.record_event(session, work.instance, "Recovered", message, now)


async def mark_pending(work: StepContext) -> None:
    """Everything is released; the instance is created again now, or when there is room."""
    with work.store.transaction() as session:
        instance = work.store.instance(session, work.instance)
        instance.expires_at = None
        instance.down_time = instance.down.failed(work.clock.now()).wire()
        instance.retry_at = 0.0


async def mark_suspended(work: StepContext) -> None:
    """Everything is released, and stays so until `suspend` is false."""
    with work.store.transaction() as session:
        instance, now = work.store.instance(session, work.instance), work.clock.now()
        if instance.state == "Suspended":
            return
        instance.enter("Suspended", now)
        instance.observed_generation, instance.expires_at, instance.leaving = work.spec_generation, None, None
        instance.down_time = instance.down.settled(now, on=False).wire()
        instance.set_condition("Progressing", False, "Settled", "nothing is under way", now)
        work.store.record_event(session, work.instance, "Suspended", "its nodes and slices were given back", now)


async def mark_deleted(work: StepContext) -> None:
    """Everything is released: delete the instance."""
    with work.store.transaction() as session:
        if (instance := session.get(InstanceRow, work.instance)) is not None:  # else repeated after a crash
            work.store.record_event(session, work.instance, "Deleted", "everything was given back", work.clock.now())
            session.delete(instance)
