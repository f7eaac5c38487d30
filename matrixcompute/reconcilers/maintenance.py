"""Reconcile maintenances: read the target's nodes, decide, record what is to be begun, and then request it.

Recording comes before requesting: after a crash in between, the next pass finds it begun and requests it again.
Affected instances are notified by an event and their condition Maintenance.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import MatrixError
from matrixcommon.model.quantities import parse_timestamp
from matrixcommon.model.resource_model import is_condition_true
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.maintenance.budgets import Limit, limits_of
from matrixcompute.maintenance.decision import (
    Action,
    Observations,
    Plan,
    Request,
    SwitchDrain,
    is_out,
    plan_maintenance,
)
from matrixcompute.maintenance.spec import MaintenanceSpec, MaintenanceUnit
from matrixcompute.maintenance.states import ENDING, UNDER_WAY
from matrixcompute.model.states import SETTLED
from matrixcompute.store.disruption_budgets import DisruptionBudgetRow, budgets_of_supernodes, disruption_budgets
from matrixcompute.store.maintenances import MaintenanceRow, open_maintenances
from matrixcompute.store.store import ComputeStore, EventRow, InstanceRow
from matrixresource.contract.allocations import DEPLOYMENT_LABEL
from matrixresource.contract.nodes import MAINTENANCE_PREFIX, NodeView

log = logging.getLogger(__name__)

CONDITION = "Maintenance"
"""The condition of an instance with members, or routes, that are or will be under maintenance."""
IMMOVABLE_STATES = ("Provisioning", "Repairing", "Stopping", "Starting")
"""States in which members do not move. Updating is not one of them: the update may be the move."""


def owner_of(name: str) -> str:
    """The owner of the cordons of a maintenance, and of the drain of its switch."""
    return f"{MAINTENANCE_PREFIX}{name}"


class MaintenanceReconciler:
    """`reconcile` once per period, and whenever a node changes while a maintenance is open. `wake` schedules another
    pass soon."""

    def __init__(self, store: ComputeStore, control_plane: ControlPlane, clock: Clock) -> None:
        self._store = store
        self._control_plane = control_plane
        self._clock = clock
        self.wake: Callable[[], None] = lambda: None
        self.any_open = True

    def node_changed(self) -> None:
        """Schedule a pass if a maintenance is open."""
        if self.any_open:
            self.wake()

    async def reconcile(self) -> str:
        """Reconcile every open maintenance. An error in one does not affect the others."""
        await self._update_budgets()
        names = [row.name for row in self._store.records.query_unless_known_empty(MaintenanceRow, open_maintenances)]
        notified = self._store.records.query_unless_known_empty(InstanceRow, self._notified_instances)
        self.any_open = bool(names)
        if not names and not notified:
            return "no maintenances"
        for name in names:
            try:
                await self._reconcile_maintenance(name)
            except MatrixError as refused:
                log.warning("a maintenance waits", extra={"maintenance": name, "why": refused.message})
                self._record_refusal(name, refused)
        self._update_conditions()
        return f"{len(names)} maintenances are open"

    async def _update_budgets(self) -> None:
        """Update the state of the budgets that name a supernode, which may have been added or removed."""
        if not self._store.records.query_unless_known_empty(DisruptionBudgetRow, budgets_of_supernodes):
            return
        supernodes = {domain.name for domain in await self._control_plane.domains("level=supernode")}
        with self._store.transaction() as session:
            for row in budgets_of_supernodes(session):
                row.update_state(supernodes, self._clock.now())

    def _notified_instances(self, session: Session) -> list[InstanceRow]:
        """The instances whose condition Maintenance is true."""
        return [row for row in self._store.instances(session) if is_condition_true(row.conditions or [], CONDITION)]

    async def _reconcile_maintenance(self, name: str) -> None:
        with self._store.reading() as session:
            row = session.get(MaintenanceRow, name)
            if row is None or not row.open:
                return
            version, state, spec, units = row.version, row.state, row.request, row.progress()
        observations = await self._observe(owner_of(name), spec, units)
        with self._store.transaction() as session:
            row = session.get(MaintenanceRow, name)
            if row is None or row.version != version:
                self.wake()
                return
            now, spec = self._clock.now(), row.request
            plan = plan_maintenance(owner_of(name), spec, row.state, units, observations, now)
            visible_units = _before_results(units, plan)
            row.move(plan.state)
            row.write(visible_units)
            if (row.phase_reason, row.message) != (plan.reason, plan.message):
                row.phase_reason, row.message = plan.reason, plan.message
            if row.started_at is None and any(unit.state != "Pending" for unit in plan.units):
                row.started_at = now
            if not row.open:
                row.finished_at = now
        refused = [(request.target, await self._send_request(name, spec, request)) for request in plan.requests]
        self._record_results(name, plan, visible_units, {unit: why for unit, why in refused if why is not None})
        if any(why is None for _, why in refused) or visible_units != units or plan.state != state:
            self.wake()

    def _record_results(
        self, name: str, plan: Plan, visible_units: Sequence[MaintenanceUnit], refused: Mapping[str, MatrixError]
    ) -> None:
        """Record the result of the request for each unit, if it differs from what is shown."""
        results = {unit.name: _with_refusal(unit, refused.get(unit.name)) for unit in plan.units}
        if all(results[unit.name] == unit for unit in visible_units):
            return
        with self._store.transaction() as session:
            if (row := session.get(MaintenanceRow, name)) is not None:
                found = row.progress()
                row.write([results[unit.name] if unit in visible_units else unit for unit in found])

    def _record_refusal(self, name: str, refused: MatrixError) -> None:
        with self._store.transaction() as session:
            row = session.get(MaintenanceRow, name)
            if row is not None and (row.phase_reason, row.message) != (refused.reason, refused.message):
                row.phase_reason, row.message = refused.reason, refused.message

    # -- observing -----------------------------------------------------------------------------------------------------

    async def _observe(self, owner: str, spec: MaintenanceSpec, units: Collection[MaintenanceUnit]) -> Observations:
        target = spec.target
        if target.kind == "switch":
            drain = await self._control_plane.find_drain(owner)
            return Observations(drain=None if drain is None else SwitchDrain(drain.state == "Drained", drain.message))
        where = f"name={target.name}" if target.kind == "node" else f"{target.kind}={target.name}"
        nodes = {node.name: node for node in await self._control_plane.nodes(where)}
        holders = {node.allocation for node in nodes.values() if node.allocation is not None}
        begun = {unit.name: parse_timestamp(unit.since) for unit in units if unit.state == "Draining" and unit.since}
        with self._store.reading() as session:
            unmovable = {holder: why for holder in holders if (why := self._unmovable(session, holder)) is not None}
            draining = [(node.allocation, begun[name]) for name, node in nodes.items() if name in begun]
            since = {holder: at for holder, at in draining if holder is not None}
            blocked = {
                holder: why for holder, at in since.items() if (why := self._blocked(session, holder, at)) is not None
            }
        lending = await self._count_cache_allocations() if any(node.shared_by for node in nodes.values()) else {}
        return Observations(nodes, None, unmovable, blocked, await self._limits(spec, nodes.values()), lending)

    async def _count_cache_allocations(self) -> Mapping[str, int]:
        """The number of cache allocations in each node's memory: caches follow their deployment to other nodes."""
        found = [each for each in await self._control_plane.allocations() if DEPLOYMENT_LABEL in each.labels]
        return Counter(member.node for each in found for member in each.members if member.role == "pool")

    async def _limits(self, spec: MaintenanceSpec, nodes: Collection[NodeView]) -> tuple[Limit, ...]:
        """The disruption budgets in effect for it now. Nodes taken out by any maintenance count, and failed nodes."""
        with self._store.reading() as session:
            budgets = disruption_budgets(session)
            begun = [
                unit.name for row in open_maintenances(session) for unit in row.progress() if unit.state in UNDER_WAY
            ]
        now = self._clock.now()
        if not any(spec.action in each.reasons and each.in_force(now) for each in budgets.values()):
            return ()
        supernodes = sorted({node.supernode for node in nodes})
        all_nodes = [node for each in supernodes for node in await self._control_plane.nodes(f"supernode={each}")]
        return limits_of(
            budgets, spec.action, all_nodes, {*begun, *(each.name for each in all_nodes if is_out(each))}, now
        )

    def _unmovable(self, session: Session, holder: str) -> tuple[str, str] | None:
        """Why the members of an allocation cannot be moved now: reason and message; None if they can."""
        instance = session.get(InstanceRow, holder)
        if instance is None:
            return "InUse", f"allocation {holder} has it, which is no instance's: its owner has to release it"
        if instance.state == "Failed":
            return _instance_failed(holder)
        if instance.state not in SETTLED:
            return "InstanceChanging", f"instance {holder} is {instance.state}; nobody is drained meanwhile"
        members = sum(member["role"] == "member" for member in instance.members or [])
        floor = (instance.last_active or instance.shape).floor  # of the active shape; a larger one may wait for room
        if instance.state == "Active" and instance.ready_nodes < max(members, floor):
            return "BelowFloor", f"instance {holder} has {instance.ready_nodes} of {members} members ready"
        return None

    def _blocked(self, session: Session, holder: str, since: float) -> tuple[str, str] | None:
        """Why members that should move do not, as reason and message: the instance is in a state without moves, or its
        last event says that there is no room. None otherwise."""
        instance = session.get(InstanceRow, holder)
        if instance is not None and instance.state == "Failed":
            return _instance_failed(holder)
        if instance is not None and instance.state in IMMOVABLE_STATES:
            return "InstanceChanging", f"instance {holder} is {instance.state}; its member there moves after that"
        query = select(EventRow).where(EventRow.about == holder, EventRow.at >= since)
        last = session.scalars(query.order_by(EventRow.at.desc(), EventRow.name.desc()).limit(1)).first()
        return ("NoRoom", last.message) if last is not None and last.reason == "DrainBlocked" else None

    # -- requesting ----------------------------------------------------------------------------------------------------

    async def _send_request(self, name: str, spec: MaintenanceSpec, request: Request) -> MatrixError | None:
        """Send one request to MatrixResource or MatrixLink. Returns its refusal, or None; a refused request is repeated
        later."""
        owner, control_plane = owner_of(name), self._control_plane
        reason = f"maintenance {name}" + (f": {spec.reason}" if spec.reason else "")
        try:
            if request.action in (Action.CORDON, Action.UNCORDON):
                await control_plane.cordon(request.target, owner, request.action is Action.CORDON)
            elif request.action is Action.DRAIN:
                await control_plane.ensure_drain(owner, request.target, reason)
            elif request.action is Action.RESTORE:
                await control_plane.delete_drain(owner)
            else:
                firmware = spec.firmware if request.action is Action.UPDATE else None
                await control_plane.call_node_verb(request.target, request.action.value, reason, firmware)
        except MatrixError as refused:
            log.info(
                "a maintenance was refused", extra={"maintenance": name, "of": request.target, "why": refused.message}
            )
            return refused
        return None

    # -- notices -------------------------------------------------------------------------------------------------------

    def _update_conditions(self) -> None:
        """Update the condition Maintenance of each instance from the open maintenances that affect it."""
        with self._store.transaction() as session:
            notices = [(row.name, _notice(row), _affected_names(row)) for row in open_maintenances(session)]
            for instance in self._store.instances(session):
                own = {instance.name, *(member["node"] for member in instance.members or [])}
                self._update_condition(session, instance, {name: text for name, text, units in notices if own & units})

    def _update_condition(self, session: Session, instance: InstanceRow, notices: Mapping[str, str]) -> None:
        """`notices`: by maintenance, all that affect it. Each that is new or has changed is an event, and each end."""
        now, current = self._clock.now(), instance.find_condition(CONDITION)
        before = str(current["message"]) if current is not None and current["status"] == "True" else ""
        message = NOTICE_SEPARATOR.join(notices.values())
        if message == before:
            return
        for name in _notified(before):
            if name not in notices:
                text = _end_notice(name, session.get(MaintenanceRow, name))
                self._store.record_event(session, instance.name, "MaintenanceEnded", text, now)
        for notice in notices.values():
            if notice not in before:
                self._store.record_event(session, instance.name, "MaintenanceScheduled", notice, now)
        if notices:
            instance.set_condition(CONDITION, True, "Scheduled", message, now)
        else:
            instance.set_condition(CONDITION, False, "Over", "nothing of it is to be worked on", now)


def _instance_failed(holder: str) -> tuple[str, str]:
    return "InstanceFailed", f"instance {holder} has Failed: it keeps its members until it is repaired or deleted"


def _before_results(units: Sequence[MaintenanceUnit], plan: Plan) -> list[MaintenanceUnit]:
    """The units of a plan as shown until the results of their requests are known. A unit that stays in its state keeps
    its previous reason and message, so that a request that is refused again causes no write."""
    requested, before = {request.target for request in plan.requests}, {unit.name: unit for unit in units}
    return [
        unit.model_copy(update={"reason": earlier.reason, "message": earlier.message})
        if unit.name in requested and (earlier := before[unit.name]).state == unit.state
        else unit
        for unit in plan.units
    ]


def _with_refusal(unit: MaintenanceUnit, refused: MatrixError | None) -> MaintenanceUnit:
    if refused is None:
        return unit
    return unit.model_copy(update={"reason": refused.reason, "message": refused.message[:300]})


def _affected_names(row: MaintenanceRow) -> set[str]:
    """The nodes whose maintenance is not finished; for a switch, the instances that had routes over it."""
    open_units = [unit for unit in row.progress() if not unit.settled]
    if row.request.target.kind == "switch":
        return {name for unit in open_units for name in unit.instances}
    return {unit.name for unit in open_units}


NOTICE_SEPARATOR = "; "


def _notified(message: str) -> list[str]:
    """The maintenances that the message of the condition names."""
    return re.findall(rf"(?:^|{NOTICE_SEPARATOR})maintenance ([a-z0-9-]+) of ", message)


def _end_notice(name: str, row: MaintenanceRow | None) -> str:
    """Why a maintenance no longer affects an instance. `row`: None if it was deleted."""
    if row is None:
        return f"maintenance {name} was deleted"
    if not row.open or row.state in ENDING:
        return f"maintenance {name} of {row.request.target} is {row.state}: {row.message}"
    return f"maintenance {name} of {row.request.target} has nothing of it left to work on"


def _notice(row: MaintenanceRow) -> str:
    spec = row.request
    when = f"not before {spec.not_before}" if spec.not_before else "from now on"
    until = f", until {spec.deadline}" if spec.deadline else ""
    how = "its members there are moved" if spec.movable else "its members there have to leave by themselves"
    how = "routes go around it" if spec.target.kind == "switch" else how
    why = f" ({spec.reason})" if spec.reason else ""
    return f"maintenance {row.name} of {spec.target}{why}, {when}{until}: {how}"
