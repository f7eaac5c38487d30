"""plan_maintenance: what a maintenance does next. A pure decision on what the neighbours show.

It looks at each node as it is now, so that after a crash, or after somebody else did something, it comes to the same.
Free nodes go first: who is then drained finds a place that has been worked on, and moves once. Nobody is drained
whose instance is not whole, and a move deploys the successor before it gives up the member, so that no instance has
fewer members than it asked for. A node that fails stays out and counts against the budget: with a bad firmware a
rollout stops by itself.
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
"""States that somebody else wants a node in; a maintenance would bring it back, so it keeps off."""
BEGINS_IN = ("Available", "Cleaning", "Reserved", "Deploying", "Spare", "Active", "Stopping")
USABLE = ("Available", "Reserved", "Deploying", "Spare", "Active", "Stopping")
BLOCKED = ("NoRoom", "InstanceChanging", "InstanceFailed")
"""Why members do not move that should."""
OUT = ("Quarantined", "Servicing", "Draining")


class Action(StrEnum):
    """What is asked of MatrixResource about a node, or of MatrixLink about a switch. Each may be asked repeatedly."""

    CORDON = "cordon"
    UNCORDON = "uncordon"
    SERVICE = "service"
    UPDATE = "update"
    RECOVER = "recover"
    DRAIN = "drain"
    RESTORE = "restore"


@dataclass(frozen=True)
class Ask:
    """One thing to ask for."""

    action: Action
    of: str


@dataclass(frozen=True)
class DrainSeen:
    """The drain of a switch as MatrixLink shows it."""

    drained: bool
    message: str = ""


@dataclass(frozen=True)
class Observations:
    """What the neighbours show: the target's nodes by name, or the switch's `drain`; of allocations that cannot be
    moved now, why (reason and sentence); the same of those whose members should move; the disruption budgets that hold
    for it now; by node, how many of the allocations that share it are memory of caches, which follows the members."""

    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    drain: DrainSeen | None = None
    unmovable: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    blocked: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    limits: Sequence[Limit] = ()
    lending: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The state it comes to, each unit's progress, and what to ask for now."""

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
    """`owner`: of its cordons; `state` and `units`: as it stood after the last look; `now` in s, emulated. The state
    makes one move of the table at most."""
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
    """Whether it counts against a budget, whatever for."""
    return node.state in OUT or node.agent == "Lost"


# -- one unit ----------------------------------------------------------------------------------------------------------


def _observed(look: _Look, unit: MaintenanceUnit) -> MaintenanceUnit:
    """With who has it and which firmware it has now; a settled one stays as it was."""
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
    """A unit that was begun, one step on; what is only pending is begun elsewhere, or never."""
    if unit.settled:
        return unit, []
    if unit.state == "Pending":
        return (_skipped(look, unit), []) if look.ending else (unit, [])
    if look.spec.target.kind == "switch":
        return _switch(look, unit)
    node = look.seen.nodes.get(unit.name)
    if node is None:
        return _to(look, unit, "Failed", "NotFound", "it is no part of the inventory any more"), []
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
    reason = ("DeadlinePassed", "the deadline came first") if late else ("Aborted", "it was aborted before it was done")
    return _to(look, unit, "Skipped", *reason)


def _left_to_others(look: _Look, unit: MaintenanceUnit, node: NodeView) -> tuple[MaintenanceUnit, list[Ask]]:
    """Somebody else has come to want it out. It settles once the own cordon is gone: nobody would lift that later."""
    if unit.state == "Draining":
        return _returned(look, unit, node)
    kept_out = ("KeptOut", f"it is {node.state}: {node.state_message}")
    if look.owner in node.cordoned_by:
        return _to(look, unit, "Cordoned", *kept_out), [Ask(Action.UNCORDON, node.name)]
    return _to(look, unit, "Skipped", *kept_out), []


def _cordoned(look: _Look, node: NodeView) -> list[Ask]:
    return [] if look.owner in node.cordoned_by else [Ask(Action.CORDON, node.name)]


def _drained(look: _Look, unit: MaintenanceUnit, node: NodeView) -> tuple[MaintenanceUnit, list[Ask]]:
    """Cordoned, left by whoever has it, then kept out."""
    asks = _cordoned(look, node)
    if node.state == "Servicing":
        return _to(look, unit, "InService"), asks
    if node.desired_state != "Servicing":
        asks.append(Ask(Action.SERVICE, node.name))
    if node.allocation is None:
        return _to(look, unit, "Draining", "Emptying", f"it is {node.state}"), asks
    why = look.seen.blocked.get(node.allocation)
    if why is not None:
        return _to(look, unit, "Draining", *why), asks
    return _to(look, unit, "Draining", "Moving", f"the member of {node.allocation} there moves away"), asks


def _worked_on(look: _Look, unit: MaintenanceUnit, node: NodeView) -> tuple[MaintenanceUnit, list[Ask]]:
    """The firmware is written, or the time of service passes. What an agent has begun to write is awaited."""
    if node.state != "Servicing":
        return _returned(look, _to(look, unit, "Returning", worked=_work_done(look.spec, node)), node)
    if node.task == "update":
        stage = f": {node.stage}" if node.stage else ""
        return _to(look, unit, "InService", "Updating", f"firmware {look.spec.firmware} is written{stage}"), []
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
    return _to(look, unit, "InService", "Serviced", f"kept out {until}"), []


def _work_done(spec: MaintenanceSpec, node: NodeView, unit: MaintenanceUnit | None = None, now: float = 0.0) -> bool:
    """Whether the work is done; without a `unit`, of a node that somebody took out of service."""
    if spec.action == "Firmware":
        return node.firmware == spec.firmware
    if unit is None:
        return True
    return spec.service_s is not None and unit.since is not None and now >= from_timestamp(unit.since) + spec.service_s


def _returned(look: _Look, unit: MaintenanceUnit, node: NodeView) -> tuple[MaintenanceUnit, list[Ask]]:
    """Checked by its agent and open for newcomers again, as far as this maintenance kept them off."""
    if node.desired_state == "Servicing":
        unit = _to(look, unit, "Returning", "Recovering", "its agent is asked to check it")
        return unit, [Ask(Action.RECOVER, node.name)]
    failed = node.desired_state in KEPT_OUT
    if not failed and (node.state not in USABLE or node.agent != "Connected"):
        at = f" at {node.stage}" if node.stage else ""
        return _to(look, unit, "Returning", "Checking", f"it is {node.state}{at}"), []
    if look.owner in node.cordoned_by:
        return _to(look, unit, "Returning", "Uncordoning", ""), [Ask(Action.UNCORDON, node.name)]
    if failed:
        return _to(look, unit, "Failed", node.state_reason or node.state, f"{node.state}: {node.state_message}"), []
    if unit.worked:
        return _to(look, unit, "Done"), []
    return _skipped(look, unit) if look.ending else _to(look, unit, "Pending"), []


def _switch(look: _Look, unit: MaintenanceUnit) -> tuple[MaintenanceUnit, list[Ask]]:
    """Routes go around it first; after its service they return."""
    drain = look.seen.drain
    if unit.state == "Draining" and not look.ending:
        if drain is None:  # what MatrixLink refused it for stays to be read
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
    """Begin as many as the budget allows, free nodes first; the others are informed what they wait for."""
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
        return _to(look, unit, "Failed", "NotFound", "it is no part of the inventory any more"), []
    if node.desired_state in KEPT_OUT:
        return (unit, []) if unit.state == "Cordoned" else _left_to_others(look, unit, node)
    if look.spec.action == "Firmware" and node.firmware == look.spec.firmware and unit.state == "Pending":
        return _to(look, unit, "Skipped", "UpToDate", f"it has firmware {node.firmware} already"), []
    occupied = node.allocation is not None or bool(node.shared_by)
    if (why := _not_now(look, node)) is not None:
        keep = occupied and not look.spec.movable and why[0] == "InUse"
        return _to(look, unit, "Cordoned" if keep else unit.state, *why), _cordoned(look, node) if keep else []
    if (full := _no_budget(look, node, units)) is not None:
        return _to(look, unit, unit.state, "NoBudget", full), []
    asks = [*_cordoned(look, node), Ask(Action.SERVICE, node.name)]
    return _to(look, unit, "Draining", "Moving" if occupied else "Emptying"), asks


def _not_now(look: _Look, node: NodeView) -> tuple[str, str] | None:
    """Why a node cannot be begun now, but for the budget."""
    if node.agent != "Connected":
        return "AgentLost", f"its agent is {node.agent}"
    if node.desired_state == "Servicing":
        return "ServicedByOthers", f"somebody else has it in service: {node.state_message}"
    if node.state not in BEGINS_IN:
        return "NotReady", f"it is {node.state}"
    if (staying := node.shared_by - look.seen.lending.get(node.name, 0)) > 0:
        return "InUse", f"parts of it are held by {counted(staying, 'allocation')} that cannot be moved"
    if node.allocation is None:
        return None
    if not look.spec.movable:
        return "InUse", f"{node.allocation} has it, and members are not to be moved"
    return look.seen.unmovable.get(node.allocation)


def _no_budget(look: _Look, node: NodeView, units: Iterable[MaintenanceUnit]) -> str | None:
    """The sentence that says so, where one more would be more than may be out. Who is out already costs nothing."""
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
    """The reason and the sentence of the whole."""
    by = Counter[str](unit.state for unit in units)
    under_way = sum(by[each] for each in UNDER_WAY)
    done = f"{by['Done']} of {len(units)} done"
    done += f", {under_way} under way" if under_way else ""
    done += f", {by['Failed']} failed" if by["Failed"] else ""
    if state == "Scheduled":
        return "NotYet", f"nothing is touched before {spec.not_before}"
    if state == "Paused":
        return "Paused", f"{done}; nothing more is begun until it is resumed"
    if state in ("Expiring", "Expired"):
        return "DeadlinePassed", f"{done}; its deadline, {spec.deadline}, has passed"
    if state in ("Aborting", "Aborted"):
        return "Aborted", f"{done}; it was aborted"
    failed = next((unit for unit in units if unit.state == "Failed"), None)
    if state == "Failed" and failed is not None:
        return failed.reason, f"{done}; {failed.name}: {failed.message}"
    if state == "Completed":
        return "Completed", done + (f", {by['Skipped']} left as they were" if by["Skipped"] else "")
    moving = next((unit for unit in units if unit.state in UNDER_WAY and unit.reason in BLOCKED), None)
    waiting = moving or next((unit for unit in units if unit.state in ("Pending", "Cordoned") and unit.reason), None)
    if waiting is not None and (moving is not None or not under_way):
        return waiting.reason, f"{done}; {waiting.name} waits: {waiting.message}"
    switch = next((unit for unit in units if spec.target.kind == "switch" and unit.reason), None)
    if switch is not None:
        return switch.reason, f"{switch.state}: {switch.message}"
    return "Rolling", done
