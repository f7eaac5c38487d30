"""SliceController: admit, program, reroute, withdraw. Who may use which part of the fabric is decided here and nowhere
else.

Every verb is idempotent and one transaction: repeating it with the same spec changes nothing. Agents report what they
did, and `reconcile_all` advances slices that wait for silent ones. `AdmissionState` has what is promised on each link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Conflict, InsufficientBandwidth, InvalidField
from matrixcommon.model.hardware_names import validate_resource_name
from matrixcommon.model.planes import Plane
from matrixcommon.model.quantities import pluralized
from matrixcommon.persistence.table_cache import mapping_of
from matrixlink.admission.admission_state import AdmissionState
from matrixlink.admission.slice_index import slice_state_of
from matrixlink.contract.slices import SliceRequest, SliceView
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.model.protection import check_protection
from matrixlink.model.qos import TERMS, check_terms
from matrixlink.model.slice_states import ADMITTED, FAILED, PROGRAMMING, REROUTING, WITHDRAWING
from matrixlink.ports import AgentReachability
from matrixlink.slices.acknowledgement import Acknowledgements
from matrixlink.slices.programs import program_bodies, request_clear, request_programs
from matrixlink.store.store import LinkStore
from matrixlink.store.tables import TRACES, SliceRow


class SliceController:
    """The verbs on slices. `fabric` is the fabric and its condition."""

    def __init__(self, store: LinkStore, fabric: Fabric, clock: Clock, reach: AgentReachability) -> None:
        self.store = store
        self.fabric = fabric
        self.promises = AdmissionState(store, fabric)
        self.clock = clock
        self._acknowledgements = Acknowledgements(store, self.promises, clock, reach)
        self.on_settled = self._acknowledgements.after
        """Called after slices were updated, for whatever else waits for agents' acknowledgements."""
        self.on_slice_changed: list[Callable[[Session, SliceRow], None]] = []
        """Called after a slice's spec changed or it is being withdrawn, for whatever depends on it."""
        self.extend_bodies: Callable[[SliceRow, dict[str, dict[str, Any]]], None] = lambda row, bodies: None
        """Adds to a slice's programs what its members hold besides their own routes."""

    # -- verbs -----------------------------------------------------------------------------------------------------

    def admit(self, name: str, request: SliceRequest, *, validate_only: bool = False) -> SliceView:
        """Promise a slice its floor, or change the promise. Raises InsufficientBandwidth, Conflict."""
        validate_resource_name(name)
        self._check(request)
        with self.promises.transaction(dry=validate_only) as session:
            row = session.get(SliceRow, name)
            desired = self._desired(session, name, request)
            if row is not None and row.state == WITHDRAWING:
                raise Conflict(f"slice {name!r} is being withdrawn; wait until it is gone")
            if row is not None and row.spec == desired.spec:
                return row.shown()
            if row is not None:
                _check_immutable(row, desired)
            current = self.promises.slices.get(name)
            desired.admitted_order = current.rank[1] if current else session.info["newest"] + 1
            try:
                booked = self.promises.book(slice_state_of(desired), current, dry=validate_only)
            except InsufficientBandwidth as refused:
                raise InsufficientBandwidth(
                    f"{refused.message}{self._describe_impairments(session, desired)}",
                    field=refused.field,
                    blocking=refused.blocking,
                ) from refused
            touched = dict.fromkeys([*desired.members, *(current.members if current else ())])
            generation = row.generation + 1 if row is not None else self.store.first_generation(session, name)
            row = self._apply_spec(session, row, desired)
            row.kept, row.unprotected, row.generation = booked.kept, booked.unprotected, generation
            row.ports_seen = self.promises.impaired_ports_of(booked)
            row.move(ADMITTED)
            self.reconcile(session, [row])
            if not validate_only:
                self.promises.update_slice(row)
                if current is not None:  # what it gave up is free for others
                    touched |= dict.fromkeys(self._acknowledgements.restore_floors(session, Plane(row.plane), but=name))
                self.promises.publish_shares(session, Plane(row.plane), touched, row)
                self._notify(session, row)
            if validate_only:
                return row.view()
        return row.shown()

    def program(self, name: str) -> SliceView:
        """Have the members' agents program the present generation, and former members clear theirs."""
        with self.promises.transaction() as session:
            row = self.store.slice(session, name)
            if row.state == WITHDRAWING:
                raise Conflict(f"slice {name!r} is being withdrawn")
            if row.program_generation != row.generation or row.state == FAILED:
                if row.state == FAILED:
                    row.generation += 1
                row.move(PROGRAMMING)
                self._request_programs(session, row, self._bodies(row))
            TRACES.note(f"{name}@{row.generation}")
            self.reconcile(session, [row])
        return row.shown()

    def withdraw(self, name: str) -> SliceView | None:
        """Clear a slice wherever an agent can be reached, then remove it (None once it is gone)."""
        with self.promises.transaction() as session:
            row = self.store.slice(session, name)
            if row.state != WITHDRAWING:
                row.move(WITHDRAWING)
                row.withdrawing_since = self.clock.now()
                if row.program_generation:  # otherwise no agent has ever heard of it
                    row.generation += 1
                    for program in self.store.programs(session, name):
                        request_clear(program, row.generation)
                self.promises.update_slice(row)
                self._notify(session, row)
            gone = name in self.reconcile(session, [row])
        return None if gone else row.shown()

    def reroute(self) -> list[str]:
        """Give new routes to every slice that uses a link which changed, and keep the floors that can be kept.

        Idempotent: slices already routed for the present condition are left alone. Return the slices with new routes.
        """
        with self.promises.transaction() as session:
            self.promises.trim_withdrawing()
            moved, unsettled = self.promises.stale_routes(), self.promises.unsettled
            return self.reroute_slices(session, moved, unsettled) if moved or unsettled else []

    def reroute_slices(self, session: Session, moved: list[str], also: Iterable[str] = ()) -> list[str]:
        """Give new routes to the slices in `moved`, and reallocate their floors and those that were reduced before;
        `also` are included. Return the slices with new routes."""
        rerouted: list[str] = []
        planes = {self.promises.slices[name].plane for name in (*moved, *also) if self.promises.slices.get(name)}
        trimmed = [name for plane in planes for name in self.promises.degraded_slices(plane)]
        rows = self.store.slices_named(session, {*moved, *also, *trimmed})
        self.promises.reallocate(rows)
        touched: dict[Plane, dict[str, None]] = {plane: {} for plane in planes}
        for row in rows:
            touched[Plane(row.plane)] |= dict.fromkeys(row.members)
            if row.name not in moved:
                continue
            row.ports_seen = self.promises.impaired_ports_of(self.promises.slices[row.name])
            self.promises.update_slice(row)
            if row.program_generation and row.state != ADMITTED and self.reprogram(session, row):
                rerouted.append(row.name)
        for plane, nodes in touched.items():
            self.promises.publish_shares(session, plane, nodes)
        self.reconcile(session, rows)
        self.promises.unsettled -= set(also)
        return rerouted

    def reconcile_all(self) -> list[str]:
        """Advance slices that wait for agents that fell silent. Return those that are gone."""
        with self.promises.transaction() as session:
            waiting = self.store.slices_clearing(session) | {
                terms.name for terms in self.promises.slices if terms.withdrawing
            }
            return self.reconcile(session, waiting) if waiting else []

    def reconcile(self, session: Session, slices: Iterable[SliceRow | str]) -> list[str]:
        """Derive slices' states from their programs. Return those that were withdrawn and are gone."""
        return self._acknowledgements.reconcile(session, slices)

    def supersede_generation(self, session: Session, name: str, generation: int) -> None:
        """Continue above a generation that an agent holds but that was never issued (the tables were restored to an
        older state)."""
        row = self.store.slice(session, name)
        if generation <= row.generation:
            return
        row.generation = generation + 1
        if row.state == WITHDRAWING:
            for program in self.store.programs(session, name):
                request_clear(program, row.generation)
        elif row.program_generation and row.state != ADMITTED:
            self._request_programs(session, row, self._bodies(row))

    # -- parts of verbs -----------------------------------------------------------------------------------------------

    def _check(self, request: SliceRequest) -> None:
        """Raises InvalidField for what could never be admitted."""
        model = self.promises.planes[request.plane]
        for at, member in enumerate(request.members):
            if not self.fabric.has(member):
                raise InvalidField(f"there is no node {member}", field=f"members[{at}]")
            if member in request.members[:at]:
                raise InvalidField(f"{member} is listed twice", field=f"members[{at}]")
            if request.plane == Plane.UB and member.supernode != request.members[0].supernode:
                raise InvalidField("a UB slice must stay inside one supernode", field=f"members[{at}]")
        check_terms(request.qos_class, request.floor_gbps_per_npu, request.ceiling_gbps_per_npu)
        if request.floor_gbps_per_npu > model.npu_gbps:
            raise InvalidField(f"an NPU has {model.npu_gbps:g} GB/s on plane {request.plane}", field="floorGbpsPerNpu")
        if request.latency_bound_us is not None and request.latency_bound_us < model.latency_us:
            raise InvalidField(
                f"plane {request.plane} has a latency of {model.latency_us:g} us between nodes", field="latencyBoundUs"
            )
        if request.security_rules and request.plane != Plane.VPC:
            raise InvalidField("security rules are only for slices on the VPC plane", field="securityRules")
        check_protection(request.plane, request.protection, request.floor_gbps_per_npu)

    def _describe_impairments(self, session: Session, desired: SliceRow) -> str:
        """Drained and impaired ports among the members', as the end of a refusal."""
        impaired = self.promises.impaired_ports(Plane(desired.plane), desired.members)
        drained = {owner: self.fabric.drained(owner).intersection(ports) for owner, ports in impaired.items()}
        by = [
            f"{row.name} ({', '.join(row.elements[:2])}{', ...' if len(row.elements) > 2 else ''})"
            for row in self.store.active_drains(session)
            if any(drained.get(owner, frozenset()).intersection(ports) for owner, ports in row.ports.items())
        ]
        out = sum(map(len, drained.values()))
        below = sum(map(len, impaired.values())) - out
        lacking = [f"{pluralized(out, 'port')} drained by {', '.join(by)}"] if by else []
        lacking += [f"{pluralized(below, 'port')} below the built rate"] if below else []
        return f"; of the members' ports, {' and '.join(lacking)}" if lacking else ""

    def _desired(self, session: Session, name: str, request: SliceRequest) -> SliceRow:
        """The spec as a row that is not in the session yet."""
        row: SliceRow = mapping_of(SliceRow).made(
            name=name,
            project=request.project,
            labels=request.labels,
            allocation=request.allocation,
            instance=request.instance,
            plane=str(request.plane),
            members=[str(member) for member in request.members],
            qos_class=str(request.qos_class),
            floor_gbps=request.floor_gbps_per_npu,
            ceiling_gbps=request.ceiling_gbps_per_npu,
            weight=request.weight or TERMS[request.qos_class].weight,
            latency_bound_us=request.latency_bound_us,
            protection=str(request.protection),
            security_rules=[rule.wire() for rule in request.security_rules],
        )
        return row

    def _apply_spec(self, session: Session, row: SliceRow | None, desired: SliceRow) -> SliceRow:
        if row is None:
            desired.isolation = "vni" if desired.plane == Plane.VPC else "partitionKey"
            current = self.promises.used_keys(desired.isolation)
            desired.isolation_key = self.store.free_key(session, desired.isolation, current, self.promises.fenced)
            desired.state = ADMITTED
            session.add(desired)
            return desired
        for column in SliceRow.SPEC:
            setattr(row, column, getattr(desired, column))
        return row

    def _bodies(self, row: SliceRow) -> dict[str, dict[str, Any]]:
        """What each member is to hold now: its own routes, and its peerings."""
        bodies = program_bodies(row, self.promises.routes(row), self.fabric.spec.node.npus)
        self.extend_bodies(row, bodies)
        return bodies

    def _notify(self, session: Session, row: SliceRow) -> None:
        for follow in self.on_slice_changed:
            follow(session, row)

    def _request_programs(self, session: Session, row: SliceRow, bodies: dict[str, dict[str, Any]]) -> None:
        row.program_generation = row.generation
        request_programs(session, row, bodies, self.store.programs(session, row.name))

    def reprogram(self, session: Session, row: SliceRow) -> bool:
        """Issue new routes with the next generation, if they differ. `ports_seen` stays as the floors were decided: if
        the ports have changed, `reroute` still has to decide them again."""
        bodies = self._bodies(row)
        current = {p.node: p.body for p in self.store.programs(session, row.name) if p.action == "program"}
        if bodies == current:
            return False
        row.generation += 1
        row.move(REROUTING)
        self._request_programs(session, row, bodies)
        return True


def _check_immutable(row: SliceRow, desired: SliceRow) -> None:
    """Refuse a change of plane or instance."""
    for fixed in ("plane", "instance"):
        if getattr(row, fixed) != getattr(desired, fixed):
            raise Conflict(
                f"slice {row.name!r} cannot change its {fixed}, {getattr(row, fixed)}; withdraw it first", field=fixed
            )
