"""The verbs on reservations: promise, activate when the start comes, let others draw on it, end."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Conflict, InsufficientCapacity, InvalidField
from matrixcommon.model.hardware_names import NodeName, validate_resource_name
from matrixcommon.model.quantities import TIMESTAMP_MAX_S, timestamp
from matrixcommon.model.resource_key import name_of
from matrixcommon.persistence.database_session import find
from matrixresource.allocations import quotas
from matrixresource.allocations.apply_placement import apply_placement, new_allocation
from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.allocations.node_assignment import NodeAssignments
from matrixresource.allocations.refusals import describe_obstacle, describe_request, does_not_fit, refusal
from matrixresource.allocations.request_checks import check_placement
from matrixresource.allocations.status import AllocationStatus
from matrixresource.contract.allocations import RESERVATION_LABEL, system_labels
from matrixresource.contract.reservations import ReservationRequest, ReservationView
from matrixresource.scheduler.changes import advance_reservation as ledger_reserving
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.reservations import ReservationRow, active_reservations
from matrixresource.store.store import ResourceStore
from matrixresource.store.topology_versions import checked_version

NODES_SHOWN = 5
"""The most unavailable nodes of a reservation that a message names."""


class ReservationService:
    """Over one store and its ledger."""

    def __init__(
        self,
        store: ResourceStore,
        ledger: LedgerSync,
        assignments: NodeAssignments,
        status: AllocationStatus,
        clock: Clock,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._assignments = assignments
        self._status = status
        self._clock = clock

    def put(self, name: str, request: ReservationRequest) -> ReservationView:
        """Promise what is requested. Repeated with the same spec, it changes nothing. Raises InsufficientCapacity,
        Conflict, StaleTopology."""
        validate_resource_name(name)
        check_placement(request.spec())
        start, now = request.start, self._clock.now()
        if start + request.duration_s > TIMESTAMP_MAX_S:
            raise InvalidField(
                f"it would end after {timestamp(TIMESTAMP_MAX_S)}, the latest time that can be represented",
                field="durationS",
            )
        with self._store.transaction() as session:
            row = session.get(ReservationRow, name)
            stored_request = request.spec().spec_dict()
            if row is not None:
                if row.request != stored_request or not row.has_period(start, start + request.duration_s):
                    raise Conflict(f"reservation {name!r} exists with another spec; delete it first")
                row.labels = request.labels
                holding = session.get(AllocationRow, name)
                if holding is not None and holding.labels.get(RESERVATION_LABEL) == name:
                    holding.labels = {**request.labels, **system_labels(holding.labels)}
                return row.view()
            checked_version(session, request.topology_version)
            if start < now:
                raise InvalidField(f"{request.starts_at} has passed", field="startsAt")
            if session.get(AllocationRow, name) is not None:
                raise Conflict(f"an allocation {name!r} exists; a reservation becomes an allocation of the same name")
            quotas.check_quota(session, request.spec())
            ledger = self._ledger.open(session)
            allocation_request = self._ledger.placement_request(request.spec(), now)
            self._ledger.invalidate()
            place = ledger_reserving.reserve(ledger, name, allocation_request, start, start + request.duration_s)
            if place is None:
                requested = replace(allocation_request, lease_end=start + request.duration_s)
                raise refusal(self._store.nodes(session), self._ledger, requested, reserved_from=start)
            row = ReservationRow(
                name=name,
                project=request.project,
                labels=request.labels,
                state="Promised",
                starts_at=start,
                ends_at=start + request.duration_s,
                request=stored_request,
                place=self._ledger.placement_json(place),
            )
            session.add(row)
        return row.view()

    def delete(self, name: str) -> None:
        """Withdraw a promise, or forget one that has ended. An active one is released through its allocation."""
        with self._store.transaction() as session:
            row = find(session, ReservationRow, name)
            if row.state == "Active":
                raise Conflict(f"reservation {name!r} is held; release allocation {name!r}")
            session.delete(row)

    def reconcile(self) -> str:
        """Activate reservations whose start has come and end those whose end has. Runs periodically."""
        now, current = self._clock.now(), 0
        with self._store.transaction() as session:
            rows = active_reservations(session)
            if not any(row.ends_at <= now or row.starts_at <= now for row in rows):
                return "no reservation is due"
            ledger = self._ledger.open(session)
            self._ledger.invalidate()
            for row in rows:
                if row.ends_at <= now or (row.state == "Active" and session.get(AllocationRow, row.name) is None):
                    row.move("Ended")
            places, waiting = ledger_reserving.activate_due(ledger, now)
            for row in rows:
                if row.name in places:
                    self._activate(session, row, places[row.name], now)
                    current += 1
                elif row.name in waiting:
                    if row.state == "Promised":
                        row.move("Waiting")
                    message = self._waiting_message(session, row)
                    row.set_condition("Scheduled", False, "InsufficientCapacity", message, now)
        return f"{current} reservations are held now"

    def _activate(self, session: Session, row: ReservationRow, place: Placement, now: float) -> None:
        request = row.spec()
        placement_request = self._ledger.placement_request(request, now)
        allocation = new_allocation(session, row.name, request, placement_request, row.ends_at)
        allocation.project, allocation.labels = row.project, {**row.labels, RESERVATION_LABEL: row.name}
        apply_placement(session, self._store, self._assignments, self._ledger, allocation, place)
        self._status.reconcile(session, allocation, now)
        row.place = self._ledger.placement_json(place)
        row.move("Active")
        row.set_condition("Scheduled", True, "Reserved", f"allocation {name_of(row.name)} has its nodes", now)

    def _waiting_message(self, session: Session, row: ReservationRow) -> str:
        """Why a reservation whose start has come has no nodes, naming a few that are not free."""
        names = sorted(row.nodes)
        obstacles = {str(node.node_name): describe_obstacle(node) for node in self._store.nodes(session, names)}
        unavailable = [f"{name} ({why})" for name in names if (why := obstacles.get(name, "Gone"))]
        shown = ", ".join(unavailable[:NODES_SHOWN]) + (
            f" and {more} more" if (more := len(unavailable) - NODES_SHOWN) > 0 else ""
        )
        details = f"these of its nodes are not free: {shown}; " if unavailable else ""
        return f"its start has come; {details}nowhere else has room"

    def claim(self, session: Session, reservation: str, name: str, request: PlacementRequest, now: float) -> Placement:
        """Take from an active reservation. Its nodes have no holder until the caller applies the placement.

        Raises Conflict before its start, and InsufficientCapacity if what is left of it cannot satisfy the spec.
        """
        row = find(session, ReservationRow, reservation)
        allocation = session.get(AllocationRow, reservation)
        if row.state != "Active" or allocation is None:
            waits = row.find_condition("Scheduled") if row.state == "Waiting" else None
            why = f": {waits['message']}" if waits is not None else ""
            raise Conflict(
                f"reservation {reservation!r} is {row.state} and cannot be drawn on{why}", field="reservation"
            )
        if allocation.bound or allocation.state != "Reserved":
            raise Conflict(f"allocation {reservation!r} is in use itself and cannot be drawn on", field="reservation")
        self._ledger.invalidate()
        ledger = self._ledger.ledger
        place = ledger_reserving.claim(ledger, reservation, name, request, now)
        if place is None:
            has = describe_request(ledger.allocations[reservation].request, ledger.shape.npus)
            why = f"what is left of reservation {reservation!r} is {has}, not placed suitably"
            raise InsufficientCapacity(f"{does_not_fit(request, ledger.shape.npus)}: {why}", field="reservation")
        left = ledger.allocations.get(reservation)
        stays = set() if left is None else {*self._ledger.nodes(left.place), *self._ledger.spares(left.place)}
        for node in self._store.allocated_to(session, reservation):
            if node.node_name not in stays:  # taken whole or in part; in the latter case the rest becomes a part
                node.holder = node.role = node.rank = None
        if left is None:
            for part in self._store.parts(session, reservation):
                self._assignments.delete_part(session, part)
            session.delete(allocation)
            row.move("Ended")
            return place
        self._update_parts(session, allocation, left.place)
        self._shrink_spec(session, allocation, left.request)
        self._status.reconcile(session, allocation, now)
        row.place = self._ledger.placement_json(left.place)
        return place

    def _shrink_spec(self, session: Session, allocation: AllocationRow, request: PlacementRequest) -> None:
        """Make the allocation's spec describe what is left: members with consecutive ranks, and spares as members if no
        member is left. Members of different sizes count as the largest share of a node that all of them have."""
        nodes = self._store.allocated_to(session, allocation.name)
        parts = [part for part in self._store.parts(session, allocation.name) if part.dies]
        if not parts and all(node.role == "spare" for node in nodes):
            for each in nodes:
                each.role = "member"
        members = [node for node in nodes if node.role == "member"]
        for rank, node in enumerate(members):
            node.rank = rank
        for rank, part in enumerate(parts, len(members)):
            part.rank = rank
        sizes = [part.dies.bit_count() / 2 for part in parts] + [float(self._ledger.ledger.shape.npus)] * len(members)
        npus_per_node = min(sizes, default=None)
        allocation.nodes, allocation.npus = len(sizes), sum(sizes)
        allocation.spares = min(allocation.spares, len(nodes) - len(members))
        allocation.request = {
            **allocation.request,
            "npus": None,
            "nodes": len(sizes) or None,
            "npusPerNode": npus_per_node if npus_per_node is None or npus_per_node == 0.5 else int(npus_per_node),
            "spares": allocation.spares,
            "cpus": request.cpus,
            "memoryGib": request.mem,
            "memoryGibByNode": {self._ledger.name(node): gib for node, gib in request.mem_by_node},
        }

    def _update_parts(self, session: Session, allocation: AllocationRow, left: Placement) -> None:
        wanted = self._ledger.parts(left)
        for part in self._store.parts(session, allocation.name):
            new = wanted.pop(NodeName(part.node), None)
            if new is None:
                self._assignments.delete_part(session, part)
            else:
                part.dies, part.cpus, part.memory_gib = new.dies, new.cpus, new.memory_gib
        for new in wanted.values():
            self._assignments.assign_part(session, allocation, new)
