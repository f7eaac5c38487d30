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
from matrixcommon.model.quantities import counted, from_timestamp
from matrixcommon.model.resource_key import name_of, named, project_of
from matrixcommon.workflows.workflow import StepPending
from matrixcompute.autoscaling.policy import is_policy, is_resource
from matrixcompute.clients.inference import Inference
from matrixcompute.operations.context import StepContext
from matrixcompute.recovery.ladder import recovery_rules
from matrixcompute.recovery.loss import active_or_none
from matrixcompute.recovery.notice import DrainNotice, notice_of_move, notice_of_repair
from matrixcompute.recovery.policy import Recovery
from matrixcompute.workflows import repairing_steps, steps
from matrixcompute.workflows.moving_steps import still_wanted
from matrixresource.contract.allocations import AllocationView

AGAIN_S = 3.0
"""The interval at which a workload is checked (s, emulated)."""
ANSWERS = 3
"""How often CloudMatrix-Infer may fail to answer a step before its workload is taken to be gone with it."""
SERVE_S = 300.0
"""How long a workload may take to use nodes it got (s, emulated). ASSUMPTION: several times what executors, graphs and
weights take by the calibration. Then the operation continues without it."""
RETURNING = ("Loading", "Unavailable")
"""States from which a deployment serves again once its instance is whole."""
GRACE_S = 30.0
"""How long to wait past a drain's deadline: CloudMatrix-Infer ends the drain at the deadline, and has to report it."""


async def await_loaded(work: StepContext) -> None:
    """Wait until the workload uses the successors too, so that they are ready before the members drain."""
    if work.inference is None:
        return
    await still_wanted(work)
    allocation = await steps.current_allocation(work)
    coming = set(steps.nodes_of(allocation, {"successor"}))
    if not coming or work.recovery_policy().drain_s <= 0:
        return
    try:
        loading = _not_ready(await work.inference.deployments_on(work.instance), coming)
    except Unavailable as away:
        _check_answers(work, "await_loaded", away)
        return
    if loading:
        _await_workload(work, "await_loaded", f"{loading} the successors before the members drain")


async def leave_successors(work: StepContext) -> None:
    """Undo a move: drain the successors that the workload has begun to use, before they leave. Not waited for if
    something has broken, or if the workload does not answer."""
    allocation = active_or_none(await work.neighbours.find_allocation(work.instance))
    drain_s = work.recovery_policy().drain_s
    if work.inference is None or allocation is None or drain_s <= 0:
        return
    coming = steps.nodes_of(allocation, {"successor"})
    if not coming or (await repairing_steps.recovery(work, allocation)).action != "keep":
        return
    running = {}
    try:
        for name, view in (await work.inference.deployments_on(work.instance)).items():
            if {*coming} & {*view["readyNodes"]}:
                asked = {"deadlineS": drain_s, "by": work.operation, "keepServing": True}
                running[name] = (await _drain(work.inference, name, view, coming, asked)).get("drain") or {}
    except (Unavailable, NotFound, Conflict, InsufficientCapacity):
        return
    running = {name: drain for name, drain in running.items() if drain.get("state") == "Draining"}
    until = max((from_timestamp(drain["deadlineAt"]) for drain in running.values()), default=0.0)
    if running and work.clock.now() < until + GRACE_S:
        raise StepPending(f"{_requests(running)} still on {', '.join(coming)}", again_s=AGAIN_S)


async def tell_workload(work: StepContext) -> None:
    """Ask the workload to drain the members that are about to be moved or repaired, by a deadline.

    Members that cannot finish their work are left out, and so is a member that cannot be replaced because there is no
    node: it keeps serving meanwhile.
    """
    notice, plan = await _notice(work)
    before = set() if plan is None else work.informed()
    if work.inference is not None:
        await _tell(work, work.inference, notice, plan, before)
    if plan is not None:
        work.note_informed(plan.concerned)


async def _tell(
    work: StepContext, inference: Inference, notice: DrainNotice, plan: Recovery | None, before: Collection[str]
) -> None:
    for node, why in notice.skipped.items():
        if node not in before:
            work.record_event("NotDrained", f"{node}: {why}")
    replaced = [*notice.nodes] if plan is None else [node for node in notice.nodes if node in plan.nodes]
    refused = [] if plan is None else [node for node in replaced if not await _replaceable(work, node)]
    notice = replace(notice, nodes=tuple(node for node in notice.nodes if node not in refused))
    if not notice.nodes:
        return
    try:
        for name, view in (await inference.deployments_on(work.instance)).items():
            await _ask_to_drain(work, inference, name, view, notice, keep_serving=not {*notice.nodes} <= {*replaced})
    except Unavailable as away:
        _check_answers(work, "tell_workload", away)


async def _replaceable(work: StepContext, node: str) -> bool:
    """Whether there is another node for a member. Changes nothing."""
    try:
        await work.neighbours.replace(work.instance, node, "NodeUnhealthy", validate_only=True)
    except InsufficientCapacity as full:
        work.record_event("NotDrained", f"{node}: {full.message}")
        return False
    return True


async def _ask_to_drain(
    work: StepContext, inference: Inference, name: str, view: dict[str, Any], notice: DrainNotice, keep_serving: bool
) -> None:
    """Ask a deployment to drain the notice's nodes, in addition to those it already drains for this operation."""
    asked = {"deadlineS": notice.deadline_s, "by": work.operation, "keepServing": keep_serving}
    nodes = ", ".join(notice.nodes)
    draining = [node for each in _own_drains(work, {name: view}).values() for node in each["nodes"]]
    try:
        view = await _drain(inference, name, view, sorted({*notice.nodes, *draining}), asked)
    except NotFound:
        return
    except (Conflict, InsufficientCapacity) as refused:
        work.record_event("NotDrained", f"{nodes}: {name_of(name)}: {refused.message}")
        return
    if began := (view.get("drain") or {}).get("requestsAtStart"):
        work.record_event("Draining", f"{counted(began, 'request')} of {name_of(name)} on {nodes}")


async def _drain(
    inference: Inference, name: str, view: Mapping[str, Any], nodes: list[str], asked: Mapping[str, Any]
) -> dict[str, Any]:
    """Drain nodes of a deployment. A drain of a scaling policy or a CloudMatrixInstance is ended first; those do not
    shrink an instance that is being moved or repaired, and ask again afterwards."""
    by = (view.get("drain") or {}).get("by") or ""
    if is_policy(by) or is_resource(by):
        await inference.undrain(name)
    return await inference.drain(name, nodes, **asked)


async def withdraw_drains(work: StepContext) -> None:
    """Undo: no node is taken, so have the workload use these nodes again. If it does not answer, the orphan collector
    does that later."""
    if work.inference is not None:
        with contextlib.suppress(Unavailable):
            for name, drain in (await work.inference.drains()).items():
                if drain.by == work.operation:
                    await _undrain(work.inference, name)


async def drain_members(work: StepContext) -> None:
    """Wait until nothing runs on the draining members, or the deadline has passed. A member lost meanwhile is not
    waited for; the loss of a successor ends the move before any member has left."""
    if work.inference is None:
        return
    await still_wanted(work)
    notice, plan = await _notice(work)
    if plan is not None:  # members that failed since have to be notified first
        notice = replace(notice, nodes=tuple(node for node in notice.nodes if node in work.informed()))
    if not notice.nodes:
        return
    late = work.clock.now() - work.since("drain_members") > notice.deadline_s + GRACE_S
    try:
        drains = _own_drains(work, await work.inference.deployments_on(work.instance))
    except Unavailable as away:
        _check_answers(work, "drain_members", away)
        return
    running = {name: drain for name, drain in drains.items() if drain["state"] != "Drained"}
    nodes = ", ".join(notice.nodes)
    if running and not late:
        until = max(each["deadlineAt"] for each in running.values())
        raise StepPending(f"{_requests(running)} still on {nodes}, until {until} at most", again_s=AGAIN_S)
    if running:
        work.record_event("DrainDeadline", f"{_listed(work, running)} did not drain {nodes} in time", warning=True)
    elif drains:
        work.record_event("Drained", f"no requests are left on {nodes}")


async def await_serving(work: StepContext) -> None:
    """Wait until the workload follows the instance's fabric and uses every member; drained members that stay are
    returned to it first. A deployment that never served is not waited for."""
    if work.inference is None or work.shape.power == "Off":
        return
    allocation = await repairing_steps.whole_allocation(work)
    try:
        deployments = await work.inference.deployments_on(work.instance)
        waiting = await _following(work, work.inference, allocation, deployments) if deployments else ""
    except Unavailable:
        return  # CloudMatrix-Infer is down, so nothing serves
    if waiting:
        _await_workload(work, "await_serving", f"{waiting} every member")


async def _following(
    work: StepContext, inference: Inference, allocation: AllocationView, deployments: Mapping[str, dict[str, Any]]
) -> str:
    """What is still waited for, in words. Drained members that stay are returned to the workload once the deployment
    knows which nodes have left."""
    generation = await work.neighbours.fabric_generation(work.instance)
    if behind := [name for name, view in deployments.items() if view["fabricGeneration"] != generation]:
        return f"{_listed(work, behind)} has yet to see"
    drains, members = _own_drains(work, deployments), set(steps.nodes_of(allocation, {"member"}))
    for name, drain in drains.items():
        if back := members & {*drain["nodes"]}:
            await _undrain(inference, name)
            work.record_event("Rejoined", f"{name_of(name)} may use {', '.join(sorted(back))} again")
    return f"{_listed(work, drains)} has yet to use" if drains else _not_ready(deployments, members, RETURNING)


async def _undrain(inference: Inference, name: str) -> None:
    with contextlib.suppress(NotFound):
        await inference.undrain(name)


async def _notice(work: StepContext) -> tuple[DrainNotice, Recovery | None]:
    """The members that this operation drains; for a repair, with its plan."""
    allocation = await steps.current_allocation(work)
    if work.rungs() is None:
        return notice_of_move(allocation.members, work.recovery_policy().drain_s), None
    plan = await repairing_steps.recovery(work, allocation)
    repairing_steps.raise_on_hold(plan)
    return notice_of_repair(allocation.members, plan, recovery_rules(), work.recovery_policy().drain_s), plan


def _own_drains(work: StepContext, deployments: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The drains that this operation owns, by deployment."""
    drains = {name: view.get("drain") or {} for name, view in deployments.items()}
    return {name: drain for name, drain in drains.items() if drain.get("by") == work.operation}


def _not_ready(
    deployments: Mapping[str, dict[str, Any]], nodes: set[str], about_to: Collection[str] = ("Loading",)
) -> str:
    """Which deployments do not use all of these `nodes` yet, in words, among those that serve or are in a state
    `about_to` serve; "" if none."""
    starting = [name_of(name) for name, view in deployments.items() if view["state"] in about_to]
    serving = {name_of(name): view for name, view in deployments.items() if view["state"] in ("Serving", "Degraded")}
    without = [name for name, view in serving.items() if not nodes <= {*view["readyNodes"]}]
    return f"{', '.join(starting + without)} has yet to use" if starting or without else ""


def _check_answers(work: StepContext, step: str, away: Unavailable) -> None:
    """Raise `away` while a retry is worth while; after that, continue the operation without the workload."""
    if work.failures(step) < ANSWERS:
        raise away
    work.record_event("NotDrained", f"CloudMatrix-Infer does not answer: {away.message}", warning=True)


def _await_workload(work: StepContext, step: str, waiting: str) -> None:
    """Raise StepPending until the workload has had its time; after that, continue without it."""
    if work.clock.now() - work.since(step) < SERVE_S:
        raise StepPending(waiting, again_s=AGAIN_S)
    work.record_event("NotServingYet", f"{waiting}; continuing without it", warning=True)


def _requests(drains: Mapping[str, dict[str, Any]]) -> str:
    return counted(sum(each["requests"] for each in drains.values()), "request")


def _listed(work: StepContext, deployments: Iterable[str]) -> str:
    return named(sorted(deployments), project_of(work.instance))
