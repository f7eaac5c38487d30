"""The last steps of workflows: record the result, and the state of the instance that follows from it."""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.quantities import pluralized
from matrixcommon.model.resource_model import is_condition_true
from matrixcommon.persistence.database_session import find
from matrixcompute.model.observation import Observed
from matrixcompute.model.states import settled_state
from matrixcompute.operations.context import StepContext
from matrixcompute.recovery.times import describe_parts, final_parts
from matrixcompute.store.store import InstanceRow, OperationRow
from matrixcompute.workflows.new_members import record_wait
from matrixcompute.workflows.repairing_steps import POWER_STATES, recovery
from matrixcompute.workflows.steps import current_allocation


async def mark_active(context: StepContext) -> None:
    """Record that this workflow's spec is fulfilled, together with the members and slices that fulfil it."""
    allocation = await current_allocation(context)
    plan = await recovery(context, allocation)
    observed = Observed(allocation, tuple(await context.control_plane.slices_of(context.instance)))
    done, now, state = context.spec_generation, context.clock.now(), settled_state(context.shape.power)
    with context.store.transaction() as session:
        instance = context.store.instance(session, context.instance)
        instance.move(state)
        instance.observed_generation = done
        instance.applied = context.shape.wire()
        if is_condition_true(instance.conditions or [], "Preempted"):
            instance.set_condition("Preempted", False, "Returned", "it has nodes again", now, done)
        context.store.observe(session, instance, observed, plan, now)
        of = f"{allocation.nodes} of " if instance.missing_members(allocation) else ""
        verb = "is" if context.shape.nodes == 1 else "are"
        nodes, power = pluralized(context.shape.nodes, "node"), POWER_STATES[context.shape.power]
        message = f"generation {done}: {of}{nodes} {verb} {power}"
        _record_recovery(context, session, instance, now)
        record_wait(context, session, instance)
        if instance.missing_members(allocation):
            instance.down_time = instance.down.mark_down(now).wire()
        context.store.record_event(session, context.instance, state, message, now)


def _record_recovery(context: StepContext, session: Session, instance: InstanceRow, now: float) -> None:
    """Record how long the recovery that ends here took, once, with its operation and the instance."""
    operation = find(session, OperationRow, context.operation)
    if operation.recovery is not None:
        return  # repeated after a crash
    since, on = operation.failed_since(), context.shape.power == "On"
    if since is None:
        instance.down_time = instance.down.mark_up(now, on).wire()
        return
    operation.recovery = final_parts(*since, operation.trace or {}, now)
    instance.last_recovery = operation.recovery
    instance.down_time = instance.down.mark_up(now, on, operation.recovery).wire()
    rungs = {each.node: each.rung for each in operation.rungs_tried}
    about = ", ".join(f"{node} ({rung})" for node, rung in rungs.items()) or (operation.parameters or {}).get(
        "nodes", ""
    )
    message = f"{about}: in {describe_parts(operation.recovery)}"
    context.store.record_event(session, context.instance, "Recovered", message, now)


async def mark_pending(context: StepContext) -> None:
    """Everything is released; the instance is created again now, or when there is room."""
    with context.store.transaction() as session:
        instance = context.store.instance(session, context.instance)
        instance.expires_at = None
        instance.down_time = instance.down.mark_down(context.clock.now()).wire()
        instance.retry_at = 0.0


async def mark_suspended(context: StepContext) -> None:
    """Everything is released, and stays so until `suspend` is false."""
    with context.store.transaction() as session:
        instance, now = context.store.instance(session, context.instance), context.clock.now()
        if instance.state == "Suspended":
            return
        instance.enter("Suspended", now)
        instance.observed_generation, instance.expires_at, instance.leaving = context.spec_generation, None, None
        instance.down_time = instance.down.mark_up(now, on=False).wire()
        instance.set_condition("Progressing", False, "Settled", "nothing is under way", now)
        text = "its nodes and slices were given back; the slices' peerings have ended and are not restored with them"
        context.store.record_event(session, context.instance, "Suspended", text, now)


async def mark_deleted(context: StepContext) -> None:
    """Everything is released: delete the instance."""
    with context.store.transaction() as session:
        if (instance := session.get(InstanceRow, context.instance)) is not None:  # else repeated after a crash
            context.store.record_event(
                session, context.instance, "Deleted", "everything was given back", context.clock.now()
            )
            session.delete(instance)
