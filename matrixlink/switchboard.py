"""Switchboard: admit, program, reroute, withdraw. Who may use which part of the fabric is decided here and nowhere
else.

Every verb is idempotent and one transaction: asked twice with the same wish it finds what it did. What the agents then
do is reported, and `settle` moves slices on. Two things are kept in memory beside the tables, since every decision
needs them: the fabric's present condition and the ledger of floors. Both can be read back from the tables at any
moment, which is what happens at start and after a transaction that failed half way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.orm import Session

from matrixlink.admission import FloorClaim, admit, fitting, regrant, scaled
from matrixlink.contract import SliceRequest, SliceView
from matrixlink.fabric.link import Fabric, plane_of_port
from matrixlink.fabric.planes import PlaneModel, plane_models
from matrixlink.fabric.reservations import Ledger
from matrixlink.network_slice import (
    ADMITTED,
    FAILED,
    PROGRAMMING,
    REROUTING,
    SLICE_STATES,
    WITHDRAWING,
    WITHDRAWN,
    stands,
)
from matrixlink.ports import Reach
from matrixlink.programs import ask_to_clear, ask_to_program, program_bodies
from matrixlink.qos import TERMS, check_terms
from matrixlink.routing import Routes, choose_routes
from matrixlink.store import FenceRow, LinkStore, SliceRow
from matrixlink.views import slice_view
from matrixresource.vocabulary.clock import Clock
from matrixresource.vocabulary.errors import Conflict, InsufficientBandwidth, InvalidField, NotYetSupported
from matrixresource.vocabulary.names import checked_resource_name
from matrixresource.vocabulary.planes import Plane
from matrixresource.vocabulary.records import check_etag
from matrixresource.vocabulary.wire import condition


class Switchboard:
    """The verbs over slices. `fabric` is what there is and how it is."""

    def __init__(self, store: LinkStore, fabric: Fabric, clock: Clock, reach: Reach) -> None:
        self.store = store
        self.fabric = fabric
        self.ledger = Ledger(lambda link: fabric.capacity(str(link)))
        self.planes: dict[Plane, PlaneModel] = plane_models(fabric.spec)
        self._clock = clock
        self._reach = reach
        self._stale = False
        self.load()

    # -- verbs -----------------------------------------------------------------------------------------------------

    def admit(
        self, name: str, request: SliceRequest, *, if_match: str | None = None, validate_only: bool = False
    ) -> SliceView:
        """Promise a slice its floor, or change what it was promised. Raises InsufficientBandwidth, Conflict."""
        checked_resource_name(name)
        self._check(request)
        with self.changing(dry=validate_only) as session:
            row = session.get(SliceRow, name)
            check_etag(row, if_match)
            wish = self._wished(session, name, request)
            if row is not None and row.state == WITHDRAWING:
                raise Conflict(f"slice {name!r} is being withdrawn; wait until it is gone")
            if row is not None and row.wish == wish.wish:
                return row.view()
            kept = self._book(name, wish, row)
            touched = set(wish.members) | set(row.members if row else ())
            row = self._taken_over(session, row, wish)
            row.kept = kept
            row.generation = self.store.next_generation(session, name)
            row.ports_seen = self._below(row)
            row.move(ADMITTED)
            session.flush()
            self.settle(session, {name})
            self._show(session, row.plane, touched)
            view = row.view()
        return view if validate_only else row.view()

    def program(self, name: str) -> SliceView:
        """Ask the members' agents to program the present generation, and those that left to clear."""
        with self.changing() as session:
            row = self.store.slice(session, name)
            if row.state == WITHDRAWING:
                raise Conflict(f"slice {name!r} is being withdrawn")
            if row.program_generation != row.generation or row.state == FAILED:
                if row.state == FAILED:
                    row.generation = self.store.next_generation(session, name)
                row.move(PROGRAMMING)
                self._ask(session, row, self._routes(row))
            self.settle(session, {name})
        return row.view()

    def withdraw(self, name: str, *, if_match: str | None = None) -> SliceView | None:
        """Clear a slice wherever an agent can be reached, then forget it (None once it is gone)."""
        with self.changing() as session:
            row = self.store.slice(session, name)
            check_etag(row, if_match)
            if row.state != WITHDRAWING:
                row.move(WITHDRAWING)
                row.generation = self.store.next_generation(session, name)
                row.withdrawing_since = self._clock.now()
                for program in self.store.programs(session, name):
                    ask_to_clear(program, row.generation)
                session.flush()
            view = row.view()
            gone = name in self.settle(session, {name})
        return None if gone else view

    def reroute(self) -> list[str]:
        """Give every slice that crosses a link which changed new routes, and keep what floors can be kept.

        Idempotent: what was routed around the present condition is left alone. The slices that got new routes.
        """
        rerouted: list[str] = []
        with self.changing() as session:
            rows = [row for row in self.store.slices(session) if row.state != WITHDRAWING]
            moved = [row for row in rows if self._below(row) != (row.ports_seen or {})]
            if not moved:
                return []
            planes = {row.plane for row in moved}
            self._regrant([row for row in rows if row in moved or (row.kept < 1 and row.plane in planes)])
            for row in moved:
                row.ports_seen = self._below(row)
                if row.program_generation and row.state != ADMITTED and self._reroute(session, row):
                    rerouted.append(row.name)
                self._show(session, row.plane, row.members)
            session.flush()
            self.settle(session, {row.name for row in rows if row.plane in planes})
        return rerouted

    def settle_all(self) -> list[str]:
        """Move on what waits for agents that fell silent. The slices that are gone."""
        with self.changing() as session:
            waiting = {row.slice for row in self.store.programs(session) if row.action == "clear"}
            waiting |= {row.name for row in self.store.slices(session) if row.state == WITHDRAWING}
            return self.settle(session, waiting) if waiting else []

    # -- reading states off reports -----------------------------------------------------------------------------------

    def settle(self, session: Session, names: Iterable[str]) -> list[str]:
        """Read each slice's state off its programs. The slices that were withdrawn and are gone."""
        gone = []
        for name in sorted(names):
            row = session.get(SliceRow, name)
            if row is None:
                continue
            self._drop_cleared(session, row)
            if row.state == WITHDRAWING:
                if not self.store.programs(session, name):
                    self._forget(session, row)
                    gone.append(name)
                continue
            wanted = [p for p in self.store.programs(session, name) if p.action == "program"]
            row.programmed = sum(p.state == "Programmed" and p.generation == row.generation for p in wanted)
            failed = [p for p in wanted if p.state == "Failed"]
            if row.program_generation == row.generation:
                whole = not row.ports_seen and row.kept >= 1
                row.move(stands(row.state, row.programmed, len(row.members), len(failed), whole))
            self._tell(row, [f"{p.node}: {p.message}" for p in failed])
        return gone

    def _drop_cleared(self, session: Session, row: SliceRow) -> None:
        """Programs that were cleared go; those on nodes that cannot be reached go too, and leave a fence behind."""
        overdue = row.withdrawing_since is not None and SLICE_STATES.stuck(
            WITHDRAWING, row.withdrawing_since, self._clock.now()
        )
        for program in self.store.programs(session, row.name):
            if program.action != "clear":
                continue
            if program.state != "Cleared":
                if self._reach.reachable(program.node) and not overdue:
                    continue
                session.merge(
                    FenceRow(
                        slice=row.name, node=program.node, generation=program.generation,
                        isolation=row.isolation, isolation_key=row.isolation_key,
                    )
                )  # fmt: skip
            session.delete(program)
        session.flush()

    def _forget(self, session: Session, row: SliceRow) -> None:
        row.move(WITHDRAWN)
        self._stale = True
        self.ledger.release(row.name)
        session.delete(row)
        session.flush()
        plane = [other for other in self.store.slices(session) if other.plane == row.plane]
        trimmed = [other for other in plane if other.kept < 1 and other.state != WITHDRAWING]
        if trimmed:
            self._regrant(trimmed)
            for other in trimmed:
                self._tell(other, [])
        self._show(session, row.plane, row.members)

    # -- parts of verbs -----------------------------------------------------------------------------------------------

    def _check(self, request: SliceRequest) -> None:
        """InvalidField for what can never be, whatever is free."""
        model = self.planes[request.plane]
        for at, member in enumerate(request.members):
            if not self.fabric.has(member):
                raise InvalidField(f"there is no node {member}", field=f"members[{at}]")
            if member in request.members[:at]:
                raise InvalidField(f"{member} is there twice", field=f"members[{at}]")
            if request.plane == Plane.UB and member.supernode != request.members[0].supernode:
                raise InvalidField("a UB slice stays inside one supernode", field=f"members[{at}]")
        check_terms(request.qos_class, request.floor_gbps_per_npu, request.ceiling_gbps_per_npu)
        if request.floor_gbps_per_npu > model.npu_gbps:
            raise InvalidField(f"an NPU has {model.npu_gbps:g} GB/s on plane {request.plane}", field="floorGbpsPerNpu")
        if request.latency_bound_us is not None and request.latency_bound_us < model.latency_us:
            raise InvalidField(
                f"plane {request.plane} takes {model.latency_us:g} us between nodes", field="latencyBoundUs"
            )
        if request.protection not in (None, "none"):
            raise NotYetSupported("disjoint backup paths are not in this version", field="protection")

    def _wished(self, session: Session, name: str, request: SliceRequest) -> SliceRow:
        """The wish as a row that is not (yet) in the session."""
        return SliceRow(
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
            kept=1.0,
        )

    def _book(self, name: str, wish: SliceRow, held: SliceRow | None) -> float:
        """Book the wish's floor; the part that is kept. A slice that asks for no higher a floor than it was promised
        may change its members while links are down: what the loss takes of it is shown, not refused."""
        routes = self._routes(wish)
        claim = FloorClaim(name, wish.plane, routes.need, wish.floor_gbps, (0,))
        try:
            booked, kept = admit(self.ledger, claim), 1.0
        except InsufficientBandwidth:
            if held is None or held.plane != wish.plane or wish.floor_gbps > held.floor_gbps:
                raise
            wanted = scaled(claim.need, claim.floor_gbps)
            if not self._fits_when_whole(name, wanted):
                raise
            kept = fitting(self.ledger, name, wanted)
            booked = scaled(wanted, kept)
        self._stale = True
        self.ledger.put(name, booked)
        return kept

    def _fits_when_whole(self, name: str, wanted: dict[str, float]) -> bool:
        held = self.ledger.held(name)
        return all(
            float(self.ledger.booked(link) - held.get(link, 0)) + min(amount, self._built(link))
            <= self._built(link) + 1e-6
            for link, amount in wanted.items()
        )

    def _built(self, link: str) -> float:
        return self.fabric.built.get(link.partition(".")[2], self.fabric.spec.rdma.leaf_spine_gbps)

    def _taken_over(self, session: Session, row: SliceRow | None, wish: SliceRow) -> SliceRow:
        if row is None:
            wish.isolation = "vni" if wish.plane == Plane.VPC else "partitionKey"
            wish.isolation_key = self.store.free_key(session, wish.isolation)
            wish.admitted_order = self.store.records.latest()
            wish.state = ADMITTED
            session.add(wish)
            return wish
        for fixed in ("plane", "instance"):
            if getattr(row, fixed) != getattr(wish, fixed):
                raise Conflict(
                    f"slice {row.name!r} is on {fixed} {getattr(row, fixed)}; withdraw it first", field=fixed
                )
        for column in ("project", "labels", "allocation", "members", "qos_class", "floor_gbps", "ceiling_gbps",
                       "weight", "latency_bound_us"):  # fmt: skip
            setattr(row, column, getattr(wish, column))
        return row

    def _routes(self, row: SliceRow) -> Routes:
        return choose_routes(self.fabric, Plane(row.plane), row.members)

    def _ask(self, session: Session, row: SliceRow, routes: Routes) -> None:
        row.program_generation = row.generation
        ask_to_program(session, row, program_bodies(row, routes), self.store.programs(session, row.name))
        session.flush()

    def _reroute(self, session: Session, row: SliceRow) -> bool:
        """New routes in a generation of their own, if they are any different."""
        routes = self._routes(row)
        held = {p.node: p.body for p in self.store.programs(session, row.name) if p.action == "program"}
        if program_bodies(row, routes) == held:
            return False
        row.generation = self.store.next_generation(session, row.name)
        row.move(REROUTING)
        self._ask(session, row, routes)
        return True

    def _regrant(self, rows: list[SliceRow]) -> None:
        """Keep as much of each floor as there is, the better class first."""
        self._stale = True
        kept = regrant(
            self.ledger,
            [FloorClaim(r.name, r.plane, self._routes(r).need, r.floor_gbps, r.rank) for r in rows],
        )
        for row in rows:
            row.kept = kept[row.name]

    def _below(self, row: SliceRow) -> dict[str, dict[str, float]]:
        """The members' ports on this plane that are below their rate."""
        found = {
            node: {port: gbps for port, gbps in self.fabric.below(node).items() if plane_of_port(port) == row.plane}
            for node in row.members
        }
        return {node: ports for node, ports in found.items() if ports}

    def _show(self, session: Session, plane: str, nodes: Iterable[str]) -> None:
        """Work out anew what every slice on these nodes may use; a view that changed is one generation on."""
        here, rows = set(nodes), [row for row in self.store.slices(session) if row.plane == plane]
        for row in rows:
            if here & set(row.members):
                shown = slice_view(row, rows, self.fabric, self.ledger, self.planes[Plane(plane)])
                if shown != row.fabric_view:
                    row.fabric_view, row.view_generation = shown, (row.view_generation or 0) + 1

    def _tell(self, row: SliceRow, failures: list[str]) -> None:
        """The conditions, from what is known now."""
        generation = row.generation
        members, below = len(row.members), sum(map(len, (row.ports_seen or {}).values()))
        done = row.programmed == members and row.program_generation == row.generation
        lines: list[tuple[str, bool, str, str]] = [
            ("Admitted", True, "FloorsBooked", f"{row.floor_gbps:g} GB/s per NPU on every link its members need"),
            (
                "RoutesProgrammed", done,
                "AllProgrammed" if done else "Failed" if failures else "Waiting",
                "; ".join(failures[:3]) or f"{row.programmed} of {members} agents acknowledged generation {generation}",
            ),
            (
                "QosSatisfied", row.kept >= 1, "FloorKept" if row.kept >= 1 else "FloorReduced",
                f"{row.floor_gbps * row.kept:.4g} of {row.floor_gbps:g} GB/s per NPU are kept",
            ),
            (
                "Degraded", bool(below) or row.kept < 1, "LinksLost" if below else "AllLinksUp",
                f"{below} ports of {len(row.ports_seen or {})} members are below their rate" if below else "",
            ),
        ]  # fmt: skip
        told: list[dict[str, Any]] = row.conditions or []
        for type, status, reason, message in lines:
            told = condition(told, type, status, reason, message, generation=row.generation, now=self._clock.now())
        if told != row.conditions:
            row.conditions = told

    # -- memory -------------------------------------------------------------------------------------------------------

    @contextmanager
    def changing(self, dry: bool = False) -> Iterator[Session]:
        """A transaction after which memory and tables agree, whatever happened in it."""
        self._stale = False
        try:
            with self.store.transaction(dry) as session:
                yield session
            if dry and self._stale:
                self.load()
        except BaseException:
            if self._stale:
                self.load()
            raise

    def mark_stale(self) -> None:
        """Memory was changed in this transaction: read it back should the transaction fail."""
        self._stale = True

    def load(self) -> None:
        """Read the fabric's condition and the floors back from the tables."""
        with self.store.reading() as session:
            below: dict[str, dict[str, float]] = {node: {} for node in self.fabric.nodes()}
            for link in self.store.links(session):
                below.setdefault(link.node, {})[link.port] = link.gbps
            for node, ports in below.items():
                self.fabric.set_ports(node, ports)
            rows = self.store.slices(session)
            held = {row.name for row in rows}
            for owner in self.ledger.all_owners() - set(held):
                self.ledger.release(owner)
            self._regrant(rows)
        self._stale = False
