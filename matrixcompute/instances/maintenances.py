"""Maintenances: ensure, pause, resume, abort, delete. Requests are checked against the machine as it is."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Conflict, InvalidField
from matrixcommon.model.hardware_names import validate_resource_name
from matrixcommon.model.quantities import timestamp
from matrixcommon.persistence.database_session import check_etag, find
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.maintenance.decision import OUT_OF_USE
from matrixcompute.maintenance.spec import MaintenanceRequest, MaintenanceTarget, MaintenanceUnit, MaintenanceView
from matrixcompute.maintenance.states import MAINTENANCE_STATES
from matrixcompute.maintenance.summary import summary
from matrixcompute.store.maintenances import MaintenanceRow, open_maintenances
from matrixcompute.store.store import ComputeStore

NAME_LENGTH_MAX = 51
"""The limit that keeps `maintenance-NAME`, the owner of its cordons, a legal name."""
MUTABLE_FIELDS = {"not_before", "deadline", "budget", "reason", "labels"}
"""The fields of a maintenance that may change after it has begun."""

NO_OP_STATES = {"pause": ("Paused",), "resume": ("Scheduled", "Running"), "abort": ("Aborting", "Aborted")}
"""The states in which a verb has nothing to do."""


class Maintenances:
    """The verbs over maintenances. `wake` runs the reconciler at once."""

    def __init__(self, store: ComputeStore, control_plane: ControlPlane, clock: Clock) -> None:
        self._store = store
        self._control_plane = control_plane
        self._clock = clock
        self.wake: Callable[[], None] = lambda: None

    async def ensure(
        self, name: str, body: MaintenanceRequest, *, if_match: str | None = None, validate_only: bool = False
    ) -> MaintenanceView:
        """Create or change a maintenance. Before it has begun every field may change, afterwards only times, budget,
        reason and labels. A repeated request finds it, whatever has become of its target.

        Raises InvalidField for a deadline in the past, or a target that does not exist or cannot be worked on; Conflict
        if another open maintenance works on the same nodes.
        """
        validate_resource_name(name)
        if len(name) > NAME_LENGTH_MAX:
            limit = f"it may have {NAME_LENGTH_MAX} letters at most"
            raise InvalidField(f"{name!r} is too long: its cordons are named after it, so {limit}", field="name")
        with self._store.reading() as session:
            row = session.get(MaintenanceRow, name)
            check_etag(row, if_match)
            if row is not None and row.spec == body.wire():
                return row.view()
        units = await self._units(body.target)
        with self._store.transaction(dry=validate_only) as session:
            row = session.get(MaintenanceRow, name)
            check_etag(row, if_match)
            if row is None or row.spec != body.wire():
                row = self._apply_spec(session, name, row, body, units)
            session.flush()
            view = row.view()
        if validate_only:
            return view
        self.wake()
        return row.view()

    def _apply_spec(
        self,
        session: Session,
        name: str,
        row: MaintenanceRow | None,
        body: MaintenanceRequest,
        units: list[MaintenanceUnit],
    ) -> MaintenanceRow:
        now = self._clock.now()
        if body.ends_at <= now:
            raise InvalidField(
                f"deadline {body.deadline} has passed; give a time after {timestamp(now)}", field="deadline"
            )
        self._check_overlap(session, name, units)
        if row is None:
            row = MaintenanceRow(name=name, state="Scheduled", generation=1, units=[], conditions=[])
            session.add(row)
        elif not row.open:
            raise Conflict(f"maintenance {name!r} is {row.state}; delete it, or use another name", field="name")
        else:
            before = row.request
            changed = {field for field in type(body).model_fields if getattr(body, field) != getattr(before, field)}
            immutable = sorted(type(body).model_fields[each].alias or each for each in changed - MUTABLE_FIELDS)
            if immutable and any(unit.state != "Pending" for unit in row.progress()):
                raise Conflict(
                    f"{', '.join(immutable)} cannot change once it has begun; abort it and create another",
                    field=immutable[0],
                )
            row.generation += bool(changed - {"labels"})
        row.write(_merge_units(row.progress(), units))
        row.spec, row.labels = body.wire(), body.labels
        return row

    def _check_overlap(self, session: Session, name: str, units: list[MaintenanceUnit]) -> None:
        own = {unit.name for unit in units}
        for other in open_maintenances(session):
            shared = sorted(own & {unit.name for unit in other.progress() if not unit.settled})
            if other.name != name and shared:
                more = f" and {len(shared) - 1} more" if len(shared) > 1 else ""
                raise Conflict(
                    f"maintenance {other.name!r} works on {shared[0]}{more}; wait until it is over, or abort it",
                    field="target",
                )

    async def _units(self, target: MaintenanceTarget) -> list[MaintenanceUnit]:
        """The units of a target: its nodes, or the switch."""
        field = f"target.{target.kind}"
        if target.kind == "switch":
            if not await self._control_plane.knows_switch(target.name):
                raise InvalidField(f"there is no switch {target.name}; `get switches` lists them", field=field)
            return [MaintenanceUnit(name=target.name, instances=await self._control_plane.routed_over(target.name))]
        nodes = await self._control_plane.nodes(
            f"name={target.name}" if target.kind == "node" else f"{target.kind}={target.name}"
        )
        if not nodes:
            known = sorted(domain.name for domain in await self._control_plane.domains(f"level={target.kind}"))
            shown = f"; there are {', '.join(known[:16])}" if known else ""
            raise InvalidField(f"there is no {target} in the inventory{shown}", field=field)
        if all(node.desired_state in OUT_OF_USE for node in nodes):
            raise InvalidField(
                f"{target} has no node that can be worked on: {nodes[0].name} is {nodes[0].state}; "
                "recover or enrol it first",
                field=field,
            )
        return [
            MaintenanceUnit(name=node.name, instances=[node.allocation] if node.allocation else [])
            for node in sorted(nodes, key=lambda node: node.name)
        ]

    def pause(self, name: str) -> MaintenanceView:
        """Begin no new node; finish those under way."""
        return self._apply_verb(name, "pause")

    def resume(self, name: str) -> MaintenanceView:
        """Continue."""
        return self._apply_verb(name, "resume")

    def abort(self, name: str) -> MaintenanceView:
        """Bring back the nodes under way, lift its cordons, and end. Finished work stays done."""
        return self._apply_verb(name, "abort")

    def _apply_verb(self, name: str, verb: str) -> MaintenanceView:
        with self._store.transaction() as session:
            row = find(session, MaintenanceRow, name)
            if row.state not in NO_OP_STATES[verb]:
                row.move(MAINTENANCE_STATES.asked(verb, row.state))
                row.phase_reason, row.message = summary(row.state, row.request, row.progress())
        return row.view()

    def delete(self, name: str) -> None:
        """Delete a maintenance that is over or has not begun. Raises Conflict for one under way."""
        with self._store.transaction() as session:
            row = find(session, MaintenanceRow, name)
            if row.open and any(unit.state != "Pending" for unit in row.progress()):
                raise Conflict(f"maintenance {name!r} is {row.state}; abort it first")
            session.delete(row)


def _merge_units(before: list[MaintenanceUnit], selected: list[MaintenanceUnit]) -> list[MaintenanceUnit]:
    """The units of the target as it is now, with their progress; a cabinet may have got another node. Units that have
    begun but are no longer in the target stay, so that they are finished."""
    known, names = {unit.name: unit for unit in before}, {unit.name for unit in selected}
    removed = [unit for unit in before if unit.name not in names and unit.state != "Pending"]
    return sorted([*(known.get(unit.name, unit) for unit in selected), *removed], key=lambda unit: unit.name)
