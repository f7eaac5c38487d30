"""plan_maintenance: decide what a maintenance does next, from what MatrixResource and MatrixLink show. Pure.

Each decision starts from the nodes as they are now, so it comes out the same after a crash or after somebody else's
change. Free nodes go first: members drained later can move to nodes that are finished, and move only once. Members are
drained only from instances that are whole, and a move deploys the successor before it releases the member, so no
instance has fewer members than it asked for. A node that fails stays out and counts against the budget, so a rollout of
bad firmware stops by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.quantities import parse_timestamp, pluralized, timestamp
from matrixcompute.maintenance.budgets import Limit
from matrixcompute.maintenance.spec import MaintenanceSpec, MaintenanceUnit
from matrixcompute.maintenance.states import ENDING, UNDER_WAY
from matrixcompute.maintenance.summary import summary
from matrixresource.contract.nodes import NodeView

OUT_OF_USE = ("Manageable", "Quarantined", "Retired")
"""States in which another owner keeps a node out. A maintenance ends by bringing its nodes back, so it skips these."""
STARTABLE_STATES = ("Available", "Cleaning", "Reserved", "Deploying", "Spare", "Active", "Stopping")
USABLE_STATES = ("Available", "Reserved", "Deploying", "Spare", "Active", "Stopping")
OUT_STATES = ("Quarantined", "Servicing", "Draining")


class Action(StrEnum):
    """A request to MatrixResource about a node, or to MatrixLink about a switch. Each may be repeated safely."""

    CORDON = "cordon"
    UNCORDON = "uncordon"
    SERVICE = "service"
    UPDATE = "update"
    RECOVER = "recover"
    DRAIN = "drain"
    RESTORE = "restore"


@dataclass(frozen=True)
class Request:
    """One request: the action, and the node or switch it is about."""

    action: Action
    target: str


@dataclass(frozen=True)
class SwitchDrain:
    """The drain of a switch as MatrixLink shows it."""

    drained: bool
    message: str = ""


@dataclass(frozen=True)
class Observations:
    """What MatrixResource and MatrixLink show.

    `nodes`: the target's nodes by name; `drain`: of a target switch. `unmovable`: the allocations that cannot be moved
    now, with reason and message; `blocked`: the same for those whose members should be moving. `limits`: the disruption
    budgets in force for this maintenance. `lending`: by node, how many of the allocations that share it are cache
    memory, which follows the members.
    """

    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    drain: SwitchDrain | None = None
    unmovable: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    blocked: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    limits: Sequence[Limit] = ()
    lending: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The maintenance's next state, each unit's progress, and the requests to send now."""

    state: str
    reason: str
    message: str
    units: tuple[MaintenanceUnit, ...]
    requests: tuple[Request, ...] = ()


UnitStep = tuple[MaintenanceUnit, list[Request]]
"""A unit after a step, and the requests that the step needs."""


@dataclass(frozen=True)
class _Inputs:
    """What the steps of all units share."""

    owner: str
    spec: MaintenanceSpec
    observed: Observations
    ending: bool
    now: float


def plan_maintenance(
    owner: str, spec: MaintenanceSpec, state: str, units: Sequence[MaintenanceUnit], observed: Observations, now: float
) -> Plan:
    """Plan the next step of a maintenance. `owner`: of its cordons; `state` and `units`: the result of the last plan;
    `now`: s, emulated. The state makes at most one transition."""
    before = state
    if state in ("Scheduled", "Running", "Paused") and now >= spec.ends_at:
        state = "Expiring"
    elif state in ("Scheduled", "Running") and all(unit.state == "Pending" for unit in units):
        state = "Running" if now >= spec.starts_at else "Scheduled"
    inputs = _Inputs(owner, spec, observed, state in ENDING, now)
    requests: list[Request] = []
    planned = []
    for unit in units:
        after, new_requests = _step_unit(inputs, _refresh(inputs, unit))
        planned.append(after)
        requests += new_requests
    if state == "Running":
        planned, new_requests = _begin_units(inputs, planned)
        requests += new_requests
    elif state == "Paused":  # what a node waited for when it was paused is not what it waits for now
        planned = [_enter(inputs, unit, "Pending") if unit.state == "Pending" else unit for unit in planned]
    state = _final_state(state, planned) if state == before else state
    reason, message = summary(state, spec, planned)
    return Plan(state, reason, message, tuple(planned), tuple(requests))


def is_out(node: NodeView) -> bool:
    """Whether the node counts as unavailable, for whatever reason."""
    return node.state in OUT_STATES or node.agent == "Lost"


# -- one unit ----------------------------------------------------------------------------------------------------------


def _refresh(inputs: _Inputs, unit: MaintenanceUnit) -> MaintenanceUnit:
    """The unit with the node's present allocation and firmware; a settled unit is left unchanged."""
    node = inputs.observed.nodes.get(unit.name)
    if unit.settled or node is None:
        return unit
    before = unit.firmware_before if unit.firmware_before is not None else node.firmware
    holders = [node.allocation] if node.allocation else []
    return unit.model_copy(update={"instances": holders, "firmware": node.firmware, "firmware_before": before})


def _enter(
    inputs: _Inputs, unit: MaintenanceUnit, state: str, reason: str = "", message: str = "", **fields: object
) -> MaintenanceUnit:
    since = unit.since if unit.state == state else timestamp(inputs.now)
    return unit.model_copy(
        update={"state": state, "reason": reason, "message": message[:300], "since": since, **fields}
    )


def _step_unit(inputs: _Inputs, unit: MaintenanceUnit) -> UnitStep:
    """Take a unit that has begun one step further. Pending units are begun by `_begin_units`, or skipped at the end."""
    if unit.settled:
        return unit, []
    if unit.state == "Pending":
        return (_skip(inputs, unit), []) if inputs.ending else (unit, [])
    if inputs.spec.target.kind == "switch":
        return _step_switch(inputs, unit)
    node = inputs.observed.nodes.get(unit.name)
    if node is None:
        return _enter(inputs, unit, "Failed", "NotFound", "it is no longer in the inventory"), []
    if inputs.ending and unit.state in ("Cordoned", "Draining"):
        unit = _enter(inputs, unit, "Returning")
    if unit.state in ("Cordoned", "Draining") and node.desired_state in OUT_OF_USE:
        return _yield_to_other_owner(inputs, unit, node)
    if unit.state == "Cordoned":
        return unit, _ensure_cordon(inputs, node)
    if unit.state == "Draining":
        return _drain(inputs, unit, node)
    if unit.state == "InService":
        return _service(inputs, unit, node)
    return _return_to_use(inputs, unit, node)


def _skip(inputs: _Inputs, unit: MaintenanceUnit) -> MaintenanceUnit:
    late = inputs.now >= inputs.spec.ends_at
    reason = (
        ("DeadlinePassed", "the deadline passed before it was done")
        if late
        else ("Aborted", "the maintenance was aborted before it was done")
    )
    return _enter(inputs, unit, "Skipped", *reason)


def _yield_to_other_owner(inputs: _Inputs, unit: MaintenanceUnit, node: NodeView) -> UnitStep:
    """Another owner keeps the node out now. Settle once our own cordon is lifted, since nobody would lift it later."""
    if unit.state == "Draining":
        return _return_to_use(inputs, unit, node)
    reason = ("KeptOut", f"it is {node.state}: {node.state_message}")
    if inputs.owner in node.cordoned_by:
        return _enter(inputs, unit, "Cordoned", *reason), [Request(Action.UNCORDON, node.name)]
    return _enter(inputs, unit, "Skipped", *reason), []


def _ensure_cordon(inputs: _Inputs, node: NodeView) -> list[Request]:
    return [] if inputs.owner in node.cordoned_by else [Request(Action.CORDON, node.name)]


def _drain(inputs: _Inputs, unit: MaintenanceUnit, node: NodeView) -> UnitStep:
    """Cordon the node, wait until its holder has left, then take it into service."""
    requests = _ensure_cordon(inputs, node)
    if node.state == "Servicing":
        return _enter(inputs, unit, "InService"), requests
    if node.desired_state != "Servicing":
        requests.append(Request(Action.SERVICE, node.name))
    if node.allocation is None:
        return _enter(inputs, unit, "Draining", "Emptying", f"the node is {node.state}"), requests
    why = inputs.observed.blocked.get(node.allocation)
    if why is not None:
        return _enter(inputs, unit, "Draining", *why), requests
    return _enter(inputs, unit, "Draining", "Moving", f"the member of {node.allocation} is being moved away"), requests


def _service(inputs: _Inputs, unit: MaintenanceUnit, node: NodeView) -> UnitStep:
    """Have the firmware written, or wait for the end of the service time. A firmware write under way is awaited."""
    if node.state != "Servicing":
        return _return_to_use(inputs, _enter(inputs, unit, "Returning", worked=_work_done(inputs.spec, node)), node)
    if node.task == "update":
        stage = f": {node.stage}" if node.stage else ""
        return _enter(inputs, unit, "InService", "Updating", f"writing firmware {inputs.spec.firmware}{stage}"), []
    if _work_done(inputs.spec, node, unit, inputs.now):
        return _return_to_use(inputs, _enter(inputs, unit, "Returning", worked=True), node)
    if inputs.spec.action == "Firmware" and node.state_reason == "StageFailed":
        why = f"{node.state_message}; it stays in service until somebody recovers it"
        if inputs.owner in node.cordoned_by:
            return _enter(inputs, unit, "InService", "StageFailed", why), [Request(Action.UNCORDON, node.name)]
        return _enter(inputs, unit, "Failed", "StageFailed", why), []
    if inputs.ending:
        return _return_to_use(inputs, _enter(inputs, unit, "Returning"), node)
    if inputs.spec.action == "Firmware":
        return _enter(inputs, unit, "InService", "Updating", ""), [Request(Action.UPDATE, node.name)]
    until = "until somebody recovers it" if inputs.spec.service_s is None else f"for {inputs.spec.service_s:g} s"
    return _enter(inputs, unit, "InService", "Serviced", f"kept out of use {until}"), []


def _work_done(spec: MaintenanceSpec, node: NodeView, unit: MaintenanceUnit | None = None, now: float = 0.0) -> bool:
    """Whether the work is done. Without a `unit`: for a node that has already left service."""
    if spec.action == "Firmware":
        return node.firmware == spec.firmware
    if unit is None:
        return True
    return spec.service_s is not None and unit.since is not None and now >= parse_timestamp(unit.since) + spec.service_s


def _return_to_use(inputs: _Inputs, unit: MaintenanceUnit, node: NodeView) -> UnitStep:
    """Have the node's agent check it, then lift this maintenance's cordon."""
    if node.desired_state == "Servicing":
        unit = _enter(inputs, unit, "Returning", "Recovering", "its agent was asked to check it")
        return unit, [Request(Action.RECOVER, node.name)]
    failed = node.desired_state in OUT_OF_USE
    if not failed and (node.state not in USABLE_STATES or node.agent != "Connected"):
        at = f" at {node.stage}" if node.stage else ""
        return _enter(inputs, unit, "Returning", "Checking", f"the node is {node.state}{at}"), []
    if inputs.owner in node.cordoned_by:
        return _enter(inputs, unit, "Returning", "Uncordoning", ""), [Request(Action.UNCORDON, node.name)]
    if failed:
        return _enter(
            inputs, unit, "Failed", node.state_reason or node.state, f"{node.state}: {node.state_message}"
        ), []
    if unit.worked:
        return _enter(inputs, unit, "Done"), []
    return _skip(inputs, unit) if inputs.ending else _enter(inputs, unit, "Pending"), []


def _step_switch(inputs: _Inputs, unit: MaintenanceUnit) -> UnitStep:
    """Route around the switch first; let routes return after its service."""
    drain = inputs.observed.drain
    if unit.state == "Draining" and not inputs.ending:
        if drain is None:  # keep the message of MatrixLink's last refusal
            return _enter(inputs, unit, "Draining", unit.reason, unit.message), [Request(Action.DRAIN, unit.name)]
        if not drain.drained:
            return _enter(inputs, unit, "Draining", "Rerouting", drain.message), []
        service_s = inputs.spec.service_s
        until = f"until its drain {inputs.owner} is deleted" if service_s is None else f"for {service_s:g} s"
        unit = _enter(inputs, unit, "InService", "Serviced", f"no route crosses it; kept out of use {until}")
    if unit.state == "InService":
        since = parse_timestamp(unit.since) if unit.since else inputs.now
        service_ended = inputs.spec.service_s is not None and inputs.now >= since + inputs.spec.service_s
        if drain is not None and not service_ended and not inputs.ending:
            return unit, []
        unit = _enter(inputs, unit, "Returning", worked=service_ended or drain is None)
    if drain is not None:
        return _enter(inputs, unit, "Returning", "Restoring", "routes return to it"), [
            Request(Action.RESTORE, unit.name)
        ]
    return (_enter(inputs, unit, "Done") if unit.worked else _skip(inputs, unit)), []


# -- beginning ---------------------------------------------------------------------------------------------------------


def _begin_units(inputs: _Inputs, units: list[MaintenanceUnit]) -> tuple[list[MaintenanceUnit], list[Request]]:
    """Begin as many units as the budget allows, free nodes first; the others record what they wait for."""
    if inputs.spec.target.kind == "switch":
        begun = [_enter(inputs, unit, "Draining") if unit.state == "Pending" else unit for unit in units]
        return begun, [Request(Action.DRAIN, unit.name) for unit in units if unit.state == "Pending"]
    found = {unit.name: unit for unit in units}
    waiting = [unit for unit in units if unit.state in ("Pending", "Cordoned")]
    requests = []
    for unit in sorted(waiting, key=lambda unit: (bool(unit.instances), unit.name)):
        found[unit.name], new_requests = _begin_unit(inputs, unit, found.values())
        requests += new_requests
    return [found[unit.name] for unit in units], requests


def _begin_unit(inputs: _Inputs, unit: MaintenanceUnit, units: Iterable[MaintenanceUnit]) -> UnitStep:
    node = inputs.observed.nodes.get(unit.name)
    if node is None:
        return _enter(inputs, unit, "Failed", "NotFound", "it is no longer in the inventory"), []
    if node.desired_state in OUT_OF_USE:
        return (unit, []) if unit.state == "Cordoned" else _yield_to_other_owner(inputs, unit, node)
    if inputs.spec.action == "Firmware" and node.firmware == inputs.spec.firmware and unit.state == "Pending":
        return _enter(inputs, unit, "Skipped", "UpToDate", f"it already has firmware {node.firmware}"), []
    occupied = node.allocation is not None or bool(node.shared_by)
    if (why := _blocking_reason(inputs, node)) is not None:
        keep = occupied and not inputs.spec.movable and why[0] == "InUse"
        return _enter(inputs, unit, "Cordoned" if keep else unit.state, *why), _ensure_cordon(
            inputs, node
        ) if keep else []
    if (exhausted := _exhausted_budget(inputs, node, units)) is not None:
        return _enter(inputs, unit, unit.state, "NoBudget", exhausted), []
    requests = [*_ensure_cordon(inputs, node), Request(Action.SERVICE, node.name)]
    return _enter(inputs, unit, "Draining", "Moving" if occupied else "Emptying"), requests


def _blocking_reason(inputs: _Inputs, node: NodeView) -> tuple[str, str] | None:
    """Why a node cannot be begun now, budgets aside: reason and message."""
    if node.agent != "Connected":
        return "AgentLost", f"its agent is {node.agent}"
    if node.desired_state == "Servicing":
        return "ServicedByOthers", f"somebody else keeps it in service: {node.state_message}"
    if node.state not in STARTABLE_STATES:
        return "NotReady", f"the node is {node.state}"
    if (immovable := node.shared_by - inputs.observed.lending.get(node.name, 0)) > 0:
        return "InUse", f"parts of it are held by {pluralized(immovable, 'allocation')} that cannot be moved"
    if node.allocation is None:
        return None
    if not inputs.spec.movable:
        return "InUse", f"{node.allocation} holds it, and movable is false"
    return inputs.observed.unmovable.get(node.allocation)


def _exhausted_budget(inputs: _Inputs, node: NodeView, units: Iterable[MaintenanceUnit]) -> str | None:
    """The message that a budget is used up, if taking this node out would exceed one. A node that is out already does
    not count again."""
    out: dict[str, str] = {unit.name: unit.state for unit in units if unit.state in UNDER_WAY}
    out |= {each.name: each.state for each in inputs.observed.nodes.values() if is_out(each)}
    if node.name in out:
        return None
    budget = inputs.spec.budget
    cabinet = NodeName(node.name).cabinet
    per_cabinet = Counter(NodeName(name).cabinet for name in out)[cabinet]
    most = budget.max_unavailable_per_cabinet
    shown = ", ".join(f"{name} {state}" for name, state in sorted(out.items())[:3]) + (" ..." if len(out) > 3 else "")
    if len(out) >= budget.max_unavailable:
        return f"{len(out)} of at most {budget.max_unavailable} nodes are out: {shown}"
    if most is not None and per_cabinet >= most:
        return f"{per_cabinet} of at most {most} nodes of {cabinet} are out: {shown}"
    for limit in inputs.observed.limits:
        all_out = limit.out | (out.keys() & limit.nodes)
        if node.name in limit.nodes - all_out and len(all_out) >= limit.out_max:
            shown = ", ".join(sorted(all_out)[:3]) + (" ..." if len(all_out) > 3 else "")
            text = f"{len(all_out)} of at most {limit.out_max} nodes are out by disruption budget {limit.budget}"
            return f"{text}: {shown}" if shown else text
    return None


# -- the whole ---------------------------------------------------------------------------------------------------------


def _final_state(state: str, units: Sequence[MaintenanceUnit]) -> str:
    if not all(unit.settled for unit in units):
        return state
    if state in ENDING:
        return {"Aborting": "Aborted", "Expiring": "Expired"}[state]
    if state == "Scheduled":
        return state
    return "Failed" if any(unit.state == "Failed" for unit in units) else "Completed"
