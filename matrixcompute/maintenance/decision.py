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
from matrixcommon.model.quantities import counted, from_timestamp, timestamp
from matrixcompute.maintenance.budgets import Limit
from matrixcompute.maintenance.spec import MaintenanceSpec, MaintenanceUnit
from matrixcompute.maintenance.states import ENDING, UNDER_WAY
from matrixresource.contract.nodes import NodeView

KEPT_OUT = ("Manageable", "Quarantined", "Retired")
"""States in which another owner keeps a node out. A maintenance ends by bringing its nodes back, so it skips these."""
BEGINS_IN = ("Available", "Cleaning", "Reserved", "Deploying", "Spare", "Active", "Stopping")
USABLE = ("Available", "Reserved", "Deploying", "Spare", "Active", "Stopping")
BLOCKED = ("NoRoom", "InstanceChanging", "InstanceFailed")
"""Reasons for which members that should move do not."""
OUT = ("Quarantined", "Servicing", "Draining")


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
class Ask:
    """One request: the action, and the node or switch it is about."""

    action: Action
    of: str


@dataclass(frozen=True)
class DrainSeen:
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
    drain: DrainSeen | None = None
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
    asks: tuple[Ask, ...] = ()


@dataclass(frozen=True)
class _Look:
    """What the steps of all units share."""

    owner: str
    spec: MaintenanceSpec
    seen: Observations
    ending: bool
    now: float


def plan_maintenance(
    owner: str, spec: MaintenanceSpec, state: str, units: Sequence[MaintenanceUnit], seen: Observations, now: float
) -> Plan:
    """Plan the next step of a maintenance. `owner`: of its cordons; `state` and `units`: the result of the last plan;
    `now`: s, emulated. The state makes at most one transition."""
    before = state
    if state in ("Scheduled", "Running", "Paused") and now >= spec.ends_at:
        state = "Expiring"
    elif state in ("Scheduled", "Running") and all(unit.state == "Pending" for unit in units):
        state = "Running" if now >= spec.starts_at else "Scheduled"
    look = _Look(owner, spec, seen, state in ENDING, now)
    asks: list[Ask] = []
    stepped = []
    for unit in units:
        after, wanted = _step(look, _observed(look, unit))
        stepped.append(after)
        asks += wanted
    if state == "Running":
        stepped, more = _begin(look, stepped)
        asks += more
    state = _ended(state, stepped) if state == before else state
    reason, message = summary(state, spec, stepped)
    return Plan(state, reason, message, tuple(stepped), tuple(asks))


def is_out(node: NodeView) -> bool:
    """Whether the node counts as unavailable, for whatever reason."""
    return node.state in OUT or node.agent == "Lost"


# -- one unit ----------------------------------------------------------------------------------------------------------


def _observed(look: _Look, unit: MaintenanceUnit) -> MaintenanceUnit:
    """The unit with the node's present allocation and firmware; a settled unit is left unchanged."""
    node = look.seen.nodes.get(unit.name)
    if unit.settled or node is None:
        return unit
    before = unit.firmware_before if unit.firmware_before is not None else node.firmware
    holders = [node.allocation] if node.allocation else []
    return unit.model_copy(update={"instances": holders, "firmware": node.firmware, "firmware_before": before})


def _to(
    look: _Look, unit: MaintenanceUnit, state: str, reason: str = "", message: str = "", **more: object
) -> MaintenanceUnit:
    since = unit.since if unit.state == state else timestamp(look.now)
    return unit.model_copy(update={"state": state, "reason": reason, "message": message[:300], "since": since, **more})


def _step(look: _Look, unit: MaintenanceUnit) -> tuple[MaintenanceUnit, list[Ask]]:
    """Take a unit that has begun one step further. Pending units are begun by `_begin`, or skipped at the end."""
    if unit.settled:
        return unit, []
    if unit.state == "Pending":
        return (_skipped(look, unit), []) if look.ending else (unit, [])
    if look.spec.target.kind == "switch":
        return _switch(look, unit)
    node = look.seen.nodes.get(unit.name)
    if node is None:
        return _to(look, unit, "Failed", "NotFound", "it is no longer in the inventory"), []
    if look.ending and unit.state in ("Cordoned", "Draining"):
        unit = _to(look, unit, "Returning")
    if unit.state in ("Cordoned", "Draining") and node.desired_state in KEPT_OUT:
        return _left_to_others(look, unit, node)
    if unit.state == "Cordoned":
        return unit, _cordoned(look, node)
    if unit.state == "Draining":
        return _drained(look, unit, node)
    if unit.state == "InService":
        return _worked_on(look, unit, node)
    return _returned(look, unit, node)


def _skipped(look: _Look, unit: MaintenanceUnit) -> MaintenanceUnit:
    late = look.now >= look.spec.ends_at
    reason = (
        ("DeadlinePassed", "the deadline passed before it was done")
        if late
        else ("Aborted", "the maintenance was aborted before it was done")
    )
    return _to(look, unit, "Skipped", *reason)


def _left_to_others(look: _Look, unit: MaintenanceUnit, node: NodeView) -> tuple[MaintenanceUnit, list[Ask]]:
    """Another owner keeps the node out now. Settle once our own cordon is lifted, since nobody would lift it later."""
    if unit.state == "Draining":
        return _returned(look, unit, node)
    kept_out = ("KeptOut", f"it is {node.state}: {node.state_message}")
    if look.owner in node.cordoned_by:
        return _to(look, unit, "Cordoned", *kept_out), [Ask(Action.UNCORDON, node.name)]
    return _to(look, unit, "Skipped", *kept_out), []


def _cordoned(look: _Look, node: NodeView) -> list[Ask]:
    return [] if look.owner in node.cordoned_by else [Ask(Action.CORDON, node.name)]


def _drained(look: _Look, unit: MaintenanceUnit, node: NodeView) -> tuple[MaintenanceUnit, list[Ask]]:
    """Cordon the node, wait until its holder has left, then take it into service."""
    asks = _cordoned(look, node)
    if node.state == "Servicing":
        return _to(look, unit, "InService"), asks
    if node.desired_state != "Servicing":
        asks.append(Ask(Action.SERVICE, node.name))
    if node.allocation is None:
        return _to(look, unit, "Draining", "Emptying", f"the node is {node.state}"), asks
    why = look.seen.blocked.get(node.allocation)
    if why is not None:
        return _to(look, unit, "Draining", *why), asks
    return _to(look, unit, "Draining", "Moving", f"the member of {node.allocation} is being moved away"), asks


def _worked_on(look: _Look, unit: MaintenanceUnit, node: NodeView) -> tuple[MaintenanceUnit, list[Ask]]:
    """Have the firmware written, or wait for the end of the service time. A firmware write under way is awaited."""
    if node.state != "Servicing":
        return _returned(look, _to(look, unit, "Returning", worked=_work_done(look.spec, node)), node)
    if node.task == "update":
        stage = f": {node.stage}" if node.stage else ""
        return _to(look, unit, "InService", "Updating", f"writing firmware {look.spec.firmware}{stage}"), []
    if _work_done(look.spec, node, unit, look.now):
        return _returned(look, _to(look, unit, "Returning", worked=True), node)
    if look.spec.action == "Firmware" and node.state_reason == "StageFailed":
        why = f"{node.state_message}; it stays in service until somebody recovers it"
        if look.owner in node.cordoned_by:
            return _to(look, unit, "InService", "StageFailed", why), [Ask(Action.UNCORDON, node.name)]
        return _to(look, unit, "Failed", "StageFailed", why), []
    if look.ending:
        return _returned(look, _to(look, unit, "Returning"), node)
    if look.spec.action == "Firmware":
        return _to(look, unit, "InService", "Updating", ""), [Ask(Action.UPDATE, node.name)]
    until = "until somebody recovers it" if look.spec.service_s is None else f"for {look.spec.service_s:g} s"
    return _to(look, unit, "InService", "Serviced", f"kept out of use {until}"), []


def _work_done(spec: MaintenanceSpec, node: NodeView, unit: MaintenanceUnit | None = None, now: float = 0.0) -> bool:
    """Whether the work is done. Without a `unit`: for a node that has already left service."""
    if spec.action == "Firmware":
        return node.firmware == spec.firmware
    if unit is None:
        return True
    return spec.service_s is not None and unit.since is not None and now >= from_timestamp(unit.since) + spec.service_s


def _returned(look: _Look, unit: MaintenanceUnit, node: NodeView) -> tuple[MaintenanceUnit, list[Ask]]:
    """Have the node's agent check it, then lift this maintenance's cordon."""
    if node.desired_state == "Servicing":
        unit = _to(look, unit, "Returning", "Recovering", "its agent was asked to check it")
        return unit, [Ask(Action.RECOVER, node.name)]
    failed = node.desired_state in KEPT_OUT
    if not failed and (node.state not in USABLE or node.agent != "Connected"):
        at = f" at {node.stage}" if node.stage else ""
        return _to(look, unit, "Returning", "Checking", f"the node is {node.state}{at}"), []
    if look.owner in node.cordoned_by:
        return _to(look, unit, "Returning", "Uncordoning", ""), [Ask(Action.UNCORDON, node.name)]
    if failed:
        return _to(look, unit, "Failed", node.state_reason or node.state, f"{node.state}: {node.state_message}"), []
    if unit.worked:
        return _to(look, unit, "Done"), []
    return _skipped(look, unit) if look.ending else _to(look, unit, "Pending"), []


def _switch(look: _Look, unit: MaintenanceUnit) -> tuple[MaintenanceUnit, list[Ask]]:
    """Route around the switch first; let routes return after its service."""
    drain = look.seen.drain
    if unit.state == "Draining" and not look.ending:
        if drain is None:  # keep the message of MatrixLink's last refusal
            return _to(look, unit, "Draining", unit.reason, unit.message), [Ask(Action.DRAIN, unit.name)]
        if not drain.drained:
            return _to(look, unit, "Draining", "Rerouting", drain.message), []
        unit = _to(look, unit, "InService", "Serviced", "no route crosses it")
    if unit.state == "InService":
        since = from_timestamp(unit.since) if unit.since else look.now
        over = look.spec.service_s is not None and look.now >= since + look.spec.service_s
        if drain is not None and not over and not look.ending:
            return unit, []
        unit = _to(look, unit, "Returning", worked=over or drain is None)
    if drain is not None:
        return _to(look, unit, "Returning", "Restoring", "routes return to it"), [Ask(Action.RESTORE, unit.name)]
    return (_to(look, unit, "Done") if unit.worked else _skipped(look, unit)), []


# -- beginning ---------------------------------------------------------------------------------------------------------


def _begin(look: _Look, units: list[MaintenanceUnit]) -> tuple[list[MaintenanceUnit], list[Ask]]:
    """Begin as many units as the budget allows, free nodes first; the others record what they wait for."""
    if look.spec.target.kind == "switch":
        begun = [_to(look, unit, "Draining") if unit.state == "Pending" else unit for unit in units]
        return begun, [Ask(Action.DRAIN, unit.name) for unit in units if unit.state == "Pending"]
    found = {unit.name: unit for unit in units}
    waiting = [unit for unit in units if unit.state in ("Pending", "Cordoned")]
    asks = []
    for unit in sorted(waiting, key=lambda unit: (bool(unit.instances), unit.name)):
        found[unit.name], wanted = _begun(look, unit, found.values())
        asks += wanted
    return [found[unit.name] for unit in units], asks


def _begun(look: _Look, unit: MaintenanceUnit, units: Iterable[MaintenanceUnit]) -> tuple[MaintenanceUnit, list[Ask]]:
    node = look.seen.nodes.get(unit.name)
    if node is None:
        return _to(look, unit, "Failed", "NotFound", "it is no longer in the inventory"), []
    if node.desired_state in KEPT_OUT:
        return (unit, []) if unit.state == "Cordoned" else _left_to_others(look, unit, node)
    if look.spec.action == "Firmware" and node.firmware == look.spec.firmware and unit.state == "Pending":
        return _to(look, unit, "Skipped", "UpToDate", f"it already has firmware {node.firmware}"), []
    occupied = node.allocation is not None or bool(node.shared_by)
    if (why := _not_now(look, node)) is not None:
        keep = occupied and not look.spec.movable and why[0] == "InUse"
        return _to(look, unit, "Cordoned" if keep else unit.state, *why), _cordoned(look, node) if keep else []
    if (full := _no_budget(look, node, units)) is not None:
        return _to(look, unit, unit.state, "NoBudget", full), []
    asks = [*_cordoned(look, node), Ask(Action.SERVICE, node.name)]
    return _to(look, unit, "Draining", "Moving" if occupied else "Emptying"), asks


def _not_now(look: _Look, node: NodeView) -> tuple[str, str] | None:
    """Why a node cannot be begun now, budgets aside: reason and message."""
    if node.agent != "Connected":
        return "AgentLost", f"its agent is {node.agent}"
    if node.desired_state == "Servicing":
        return "ServicedByOthers", f"somebody else keeps it in service: {node.state_message}"
    if node.state not in BEGINS_IN:
        return "NotReady", f"the node is {node.state}"
    if (staying := node.shared_by - look.seen.lending.get(node.name, 0)) > 0:
        return "InUse", f"parts of it are held by {counted(staying, 'allocation')} that cannot be moved"
    if node.allocation is None:
        return None
    if not look.spec.movable:
        return "InUse", f"{node.allocation} holds it, and movable is false"
    return look.seen.unmovable.get(node.allocation)


def _no_budget(look: _Look, node: NodeView, units: Iterable[MaintenanceUnit]) -> str | None:
    """The message that a budget is used up, if taking this node out would exceed one. A node that is out already does
    not count again."""
    out: dict[str, str] = {unit.name: unit.state for unit in units if unit.state in UNDER_WAY}
    out |= {each.name: each.state for each in look.seen.nodes.values() if is_out(each)}
    if node.name in out:
        return None
    budget = look.spec.budget
    cabinet = NodeName(node.name).cabinet
    per_cabinet = Counter(NodeName(name).cabinet for name in out)[cabinet]
    most = budget.max_unavailable_per_cabinet
    shown = ", ".join(f"{name} {state}" for name, state in sorted(out.items())[:3]) + (" ..." if len(out) > 3 else "")
    if len(out) >= budget.max_unavailable:
        return f"{len(out)} of at most {budget.max_unavailable} nodes are out: {shown}"
    if most is not None and per_cabinet >= most:
        return f"{per_cabinet} of at most {most} nodes of {cabinet} are out: {shown}"
    for limit in look.seen.limits:
        all_out = limit.out | (out.keys() & limit.within)
        if node.name in limit.within - all_out and len(all_out) >= limit.most:
            shown = ", ".join(sorted(all_out)[:3]) + (" ..." if len(all_out) > 3 else "")
            text = f"{len(all_out)} of at most {limit.most} nodes are out by disruption budget {limit.budget}"
            return f"{text}: {shown}" if shown else text
    return None


# -- the whole ---------------------------------------------------------------------------------------------------------


def _ended(state: str, units: Sequence[MaintenanceUnit]) -> str:
    if not all(unit.settled for unit in units):
        return state
    if state in ENDING:
        return {"Aborting": "Aborted", "Expiring": "Expired"}[state]
    if state == "Scheduled":
        return state
    return "Failed" if any(unit.state == "Failed" for unit in units) else "Completed"


def summary(state: str, spec: MaintenanceSpec, units: Sequence[MaintenanceUnit]) -> tuple[str, str]:
    """The reason and message of the whole maintenance."""
    by = Counter[str](unit.state for unit in units)
    under_way = sum(by[each] for each in UNDER_WAY)
    done = f"{by['Done']} of {len(units)} done"
    done += f", {under_way} under way" if under_way else ""
    done += f", {by['Failed']} failed" if by["Failed"] else ""
    if state == "Scheduled":
        return "NotYet", f"it starts no earlier than {spec.not_before}"
    if state == "Paused":
        return "Paused", f"{done}; no new node is begun until it is resumed"
    if state in ("Expiring", "Expired"):
        return "DeadlinePassed", f"{done}; its deadline, {spec.deadline}, has passed"
    if state in ("Aborting", "Aborted"):
        return "Aborted", f"{done}; it was aborted"
    failed = next((unit for unit in units if unit.state == "Failed"), None)
    if state == "Failed" and failed is not None:
        return failed.reason, f"{done}; {failed.name}: {failed.message}"
    if state == "Completed":
        return "Completed", done + (f", {by['Skipped']} skipped" if by["Skipped"] else "")
    moving = next((unit for unit in units if unit.state in UNDER_WAY and unit.reason in BLOCKED), None)
    waiting = moving or next((unit for unit in units if unit.state in ("Pending", "Cordoned") and unit.reason), None)
    if waiting is not None and (moving is not None or not under_way):
        return waiting.reason, f"{done}; {waiting.name} waits: {waiting.message}"
    switch = next((unit for unit in units if spec.target.kind == "switch" and unit.reason), None)
    if switch is not None:
        return switch.reason, f"{switch.state}: {switch.message}"
    return "Rolling", done
