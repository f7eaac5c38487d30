"""Steps that involve the workload: drain members before they are moved or repaired, and wait until it serves again.

They use the same drain of CloudMatrix-Infer as scaling in (decision 163), owned by the operation: repeated requests
continue it, and the drain of an operation that has ended is withdrawn (`reconcilers/orphan_collector.py`). A workload
cannot prevent a move or repair: if a deployment does not answer or drain in time, the operation goes ahead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from matrixcommon.model.errors import Conflict, InsufficientCapacity, NotFound, Unavailable
from matrixcommon.model.quantities import parse_timestamp, pluralized
from matrixcommon.model.resource_key import name_of, names_shown_to, project_of
from matrixcommon.workflows.workflow import StepPending
from matrixcompute.autoscaling.policy import is_policy, is_resource
from matrixcompute.clients.inference import Inference
from matrixcompute.operations.context import StepContext
from matrixcompute.recovery.ladder import recovery_rules
from matrixcompute.recovery.loss import active_or_none
from matrixcompute.recovery.notice import DrainNotice, notice_of_move, notice_of_repair
from matrixcompute.recovery.policy import Recovery
from matrixcompute.workflows import repairing_steps, steps
from matrixcompute.workflows.moving_steps import check_move_is_current
from matrixresource.contract.allocations import AllocationView

POLL_INTERVAL_S = 3.0
"""The interval at which a workload is checked (s, emulated)."""
UNANSWERED_MAX = 3
"""How often CloudMatrix-Infer may fail to answer a step before its workload is taken to be gone with it."""
SERVING_TIMEOUT_S = 300.0
"""How long a workload may take to use nodes it got (s, emulated). ASSUMPTION: several times what executors, graphs and
weights take by the calibration. Then the operation continues without it."""
RETURNING_STATES = ("Loading", "Unavailable")
"""States from which a deployment serves again once its instance is whole."""
GRACE_S = 30.0
"""How long to wait past a drain's deadline: CloudMatrix-Infer ends the drain at the deadline, and has to report it."""


async def await_loaded(context: StepContext) -> None:
    """Wait until the workload uses the successors too, so that they are ready before the members drain."""
    if context.inference is None:
        return
    await check_move_is_current(context)
    allocation = await steps.current_allocation(context)
    successors = set(steps.nodes_of(allocation, {"successor"}))
    if not successors or context.recovery_policy().drain_s <= 0:
        return
    try:
        loading = _describe_not_ready(await context.inference.deployments_on(context.instance), successors)
    except Unavailable as unavailable:
        _raise_while_retryable(context, "await_loaded", unavailable)
        return
    if loading:
        _await_workload(context, "await_loaded", f"{loading} the successors before the members drain")


async def leave_successors(context: StepContext) -> None:
    """Undo a move: drain the successors that the workload has begun to use, before they leave. Not waited for if
    something has broken, or if the workload does not answer."""
    allocation = active_or_none(await context.control_plane.find_allocation(context.instance))
    drain_s = context.recovery_policy().drain_s
    if context.inference is None or allocation is None or drain_s <= 0:
        return
    successors = steps.nodes_of(allocation, {"successor"})
    if not successors or (await repairing_steps.recovery(context, allocation)).action != "keep":
        return
    running = {}
    try:
        for name, view in (await context.inference.deployments_on(context.instance)).items():
            if {*successors} & {*view["readyNodes"]}:
                request = {"deadlineS": drain_s, "by": context.operation, "keepServing": True}
                running[name] = (await _drain(context.inference, name, view, successors, request)).get("drain") or {}
    except (Unavailable, NotFound, Conflict, InsufficientCapacity):
        return
    running = {name: drain for name, drain in running.items() if drain.get("state") == "Draining"}
    until = max((parse_timestamp(drain["deadlineAt"]) for drain in running.values()), default=0.0)
    if running and context.clock.now() < until + GRACE_S:
        raise StepPending(f"{_count_requests(running)} still on {', '.join(successors)}", again_s=POLL_INTERVAL_S)


async def tell_workload(context: StepContext) -> None:
    """Ask the workload to drain the members that are about to be moved or repaired, by a deadline.

    Members that cannot finish their work are left out, and so is a member that cannot be replaced because there is no
    node: it keeps serving meanwhile.
    """
    notice, plan = await _notice(context)
    before = set() if plan is None else context.notified()
    if context.inference is not None:
        await _request_drains(context, context.inference, notice, plan, before)
    if plan is not None:
        context.record_notified(plan.affected)


async def _request_drains(
    context: StepContext, inference: Inference, notice: DrainNotice, plan: Recovery | None, before: Collection[str]
) -> None:
    for node, why in notice.skipped.items():
        if node not in before:
            context.record_event("NotDrained", f"{node}: {why}")
    replaced = [*notice.nodes] if plan is None else [node for node in notice.nodes if node in plan.nodes]
    refused = [] if plan is None else [node for node in replaced if not await _replaceable(context, node)]
    notice = replace(notice, nodes=tuple(node for node in notice.nodes if node not in refused))
    if not notice.nodes:
        return
    try:
        for name, view in (await inference.deployments_on(context.instance)).items():
            await _request_drain(
                context, inference, name, view, notice, keep_serving=not {*notice.nodes} <= {*replaced}
            )
    except Unavailable as unavailable:
        _raise_while_retryable(context, "tell_workload", unavailable)


async def _replaceable(context: StepContext, node: str) -> bool:
    """Whether there is another node for a member. Changes nothing."""
    try:
        await context.control_plane.replace(context.instance, node, "NodeUnhealthy", validate_only=True)
    except InsufficientCapacity as refusal:
        context.record_event("NotDrained", f"{node}: {refusal.message}")
        return False
    return True


async def _request_drain(
    context: StepContext, inference: Inference, name: str, view: dict[str, Any], notice: DrainNotice, keep_serving: bool
) -> None:
    """Ask a deployment to drain the notice's nodes, in addition to those it already drains for this operation."""
    request = {"deadlineS": notice.deadline_s, "by": context.operation, "keepServing": keep_serving}
    nodes = ", ".join(notice.nodes)
    draining = [node for each in _own_drains(context, {name: view}).values() for node in each["nodes"]]
    try:
        view = await _drain(inference, name, view, sorted({*notice.nodes, *draining}), request)
    except NotFound:
        return
    except (Conflict, InsufficientCapacity) as refused:
        context.record_event("NotDrained", f"{nodes}: {name_of(name)}: {refused.message}")
        return
    if began := (view.get("drain") or {}).get("requestsAtStart"):
        context.record_event("Draining", f"{pluralized(began, 'request')} of {name_of(name)} on {nodes}")


async def _drain(
    inference: Inference, name: str, view: Mapping[str, Any], nodes: list[str], request: Mapping[str, Any]
) -> dict[str, Any]:
    """Drain nodes of a deployment. A drain of a scaling policy or a CloudMatrixInstance is ended first; those do not
    shrink an instance that is being moved or repaired, and ask again afterwards."""
    by = (view.get("drain") or {}).get("by") or ""
    if is_policy(by) or is_resource(by):
        await inference.undrain(name)
    return await inference.drain(name, nodes, **request)


async def withdraw_drains(context: StepContext) -> None:
    """Undo: no node is taken, so have the workload use these nodes again. If it does not answer, the orphan collector
    does that later."""
    if context.inference is not None:
        with contextlib.suppress(Unavailable):
            for name, drain in (await context.inference.drains()).items():
                if drain.by == context.operation:
                    await _undrain(context.inference, name)


async def drain_members(context: StepContext) -> None:
    """Wait until nothing runs on the draining members, or the deadline has passed. A member lost meanwhile is not
    waited for; the loss of a successor ends the move before any member has left."""
    if context.inference is None:
        return
    await check_move_is_current(context)
    notice, plan = await _notice(context)
    if plan is not None:  # members that failed since have to be notified first
        notice = replace(notice, nodes=tuple(node for node in notice.nodes if node in context.notified()))
    if not notice.nodes:
        return
    late = context.clock.now() - context.started_at("drain_members") > notice.deadline_s + GRACE_S
    try:
        drains = _own_drains(context, await context.inference.deployments_on(context.instance))
    except Unavailable as unavailable:
        _raise_while_retryable(context, "drain_members", unavailable)
        return
    running = {name: drain for name, drain in drains.items() if drain["state"] != "Drained"}
    nodes = ", ".join(notice.nodes)
    if running and not late:
        until = max(each["deadlineAt"] for each in running.values())
        raise StepPending(
            f"{_count_requests(running)} still on {nodes}, until {until} at most", again_s=POLL_INTERVAL_S
        )
    if running:
        context.record_event(
            "DrainDeadline", f"{_join_names(context, running)} did not drain {nodes} in time", warning=True
        )
    elif drains:
        context.record_event("Drained", f"no requests are left on {nodes}")


async def await_serving(context: StepContext) -> None:
    """Wait until the workload follows the instance's fabric and uses every member; drained members that stay are
    returned to it first. A deployment that never served is not waited for."""
    if context.inference is None or context.shape.power == "Off":
        return
    allocation = await repairing_steps.healthy_allocation(context)
    try:
        deployments = await context.inference.deployments_on(context.instance)
        waiting = await _await_rejoin(context, context.inference, allocation, deployments) if deployments else ""
    except Unavailable:
        return  # CloudMatrix-Infer is down, so nothing serves
    if waiting:
        _await_workload(context, "await_serving", f"{waiting} every member")


async def _await_rejoin(
    context: StepContext, inference: Inference, allocation: AllocationView, deployments: Mapping[str, dict[str, Any]]
) -> str:
    """What is still waited for, in words. Drained members that stay are returned to the workload once the deployment
    knows which nodes have left."""
    generation = await context.control_plane.fabric_generation(context.instance)
    if behind := [name for name, view in deployments.items() if view["fabricGeneration"] != generation]:
        return f"{_join_names(context, behind)} has yet to see"
    drains, members = _own_drains(context, deployments), set(steps.nodes_of(allocation, {"member"}))
    for name, drain in drains.items():
        if returning := members & {*drain["nodes"]}:
            await _undrain(inference, name)
            context.record_event("Rejoined", f"{name_of(name)} may use {', '.join(sorted(returning))} again")
    return (
        f"{_join_names(context, drains)} has yet to use"
        if drains
        else _describe_not_ready(deployments, members, RETURNING_STATES)
    )


async def _undrain(inference: Inference, name: str) -> None:
    with contextlib.suppress(NotFound):
        await inference.undrain(name)


async def _notice(context: StepContext) -> tuple[DrainNotice, Recovery | None]:
    """The members that this operation drains; for a repair, with its plan."""
    allocation = await steps.current_allocation(context)
    if context.rungs() is None:
        return notice_of_move(allocation.members, context.recovery_policy().drain_s), None
    plan = await repairing_steps.recovery(context, allocation)
    repairing_steps.raise_on_hold(plan)
    return notice_of_repair(allocation.members, plan, recovery_rules(), context.recovery_policy().drain_s), plan


def _own_drains(context: StepContext, deployments: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The drains that this operation owns, by deployment."""
    drains = {name: view.get("drain") or {} for name, view in deployments.items()}
    return {name: drain for name, drain in drains.items() if drain.get("by") == context.operation}


def _describe_not_ready(
    deployments: Mapping[str, dict[str, Any]], nodes: set[str], starting_states: Collection[str] = ("Loading",)
) -> str:
    """Which deployments do not use all of these `nodes` yet, in words, among those that serve or are in a state
    `starting_states` serve; "" if none."""
    starting = [name_of(name) for name, view in deployments.items() if view["state"] in starting_states]
    serving = {name_of(name): view for name, view in deployments.items() if view["state"] in ("Serving", "Degraded")}
    waiting = [name for name, view in serving.items() if not nodes <= {*view["readyNodes"]}]
    return f"{', '.join(starting + waiting)} has yet to use" if starting or waiting else ""


def _raise_while_retryable(context: StepContext, step: str, unavailable: Unavailable) -> None:
    """Raise `unavailable` while a retry is worth while; after that, continue the operation without the workload."""
    if context.failures(step) < UNANSWERED_MAX:
        raise unavailable
    context.record_event("NotDrained", f"CloudMatrix-Infer does not answer: {unavailable.message}", warning=True)


def _await_workload(context: StepContext, step: str, waiting: str) -> None:
    """Raise StepPending until the workload has had its time; after that, continue without it."""
    if context.clock.now() - context.started_at(step) < SERVING_TIMEOUT_S:
        raise StepPending(waiting, again_s=POLL_INTERVAL_S)
    context.record_event("NotServingYet", f"{waiting}; continuing without it", warning=True)


def _count_requests(drains: Mapping[str, dict[str, Any]]) -> str:
    return pluralized(sum(each["requests"] for each in drains.values()), "request")


def _join_names(context: StepContext, deployments: Iterable[str]) -> str:
    return names_shown_to(sorted(deployments), project_of(context.instance))
