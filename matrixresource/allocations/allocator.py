"""Allocator: reserve, bind, resize, move, replace and release. Who holds what is decided here and nowhere else.

Every verb is idempotent: repeating it with the same spec changes nothing. A verb is one transaction and takes effect
completely or not at all. The agents do their work afterwards; `reconcile` advances states as their reports arrive. The
ledger chooses nodes; `LedgerSync` keeps it consistent with the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as changed_to

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Conflict, NotFound
from matrixcommon.model.hardware_names import CabinetName, NodeName, validate_resource_name
from matrixcommon.model.quantities import timestamp
from matrixcommon.persistence.decision_metrics import VerbOutcome, report_outcome
from matrixcommon.persistence.table_cache import CachedTable
from matrixresource.allocations import quotas
from matrixresource.allocations.apply_placement import apply_placement, new_allocation, yield_place
from matrixresource.allocations.failover import Failover
from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.allocations.migration import Migrations
from matrixresource.allocations.node_assignment import NodeAssignments
from matrixresource.allocations.refusals import refusal
from matrixresource.allocations.relocation import Relocations
from matrixresource.allocations.request_checks import check_request
from matrixresource.allocations.request_mapping import NEVER
from matrixresource.allocations.reservations import ReservationService
from matrixresource.allocations.resizing import Resizing
from matrixresource.allocations.status import AllocationStatus
from matrixresource.contract.allocations import (
    REPLACEMENT_LABEL,
    AllocationRequest,
    AllocationView,
    BindingRequest,
    system_labels,
)
from matrixresource.contract.defragmentations import RelocateRequest
from matrixresource.contract.nodes import ADMIN, NodeView
from matrixresource.scheduler.changes import advance_reservation
from matrixresource.scheduler.model.request import Placement
from matrixresource.store.allocation_tables import TRACES, AllocationRow
from matrixresource.store.reservations import ReservationRow
from matrixresource.store.store import ResourceStore
from matrixresource.store.topology_versions import TopologyHeadRow

IMMUTABLE_FIELDS = ("project", "npus_per_node", "placement", "affinity", "anti_affinity")
"""Fields that cannot change in place: for another placement an allocation is moved, for the others it is recreated."""


class Allocator:
    """The verbs on allocations, and cordons of nodes."""

    def __init__(self, store: ResourceStore, clock: Clock, policy: str = "best") -> None:
        self._store = store
        self._clock = clock
        self.records = store.records
        store.records.cache_tables(*map(CachedTable, (quotas.QuotaRow, ReservationRow, TopologyHeadRow)))
        self.ledger = LedgerSync(store, policy)
        self._assignments = NodeAssignments(store)
        self._status = AllocationStatus(store, self._assignments)
        self._moves = Migrations(store, self.ledger, self._assignments)
        self.reservations = ReservationService(store, self.ledger, self._assignments, self._status, clock)
        self.decided: list[Callable[[VerbOutcome], None]] = []
        """Called with every decision."""
        self._relocations = Relocations(store, self.ledger, self._assignments)
        self._resizing = Resizing(store, self.ledger)
        self._failover = Failover(store, self.ledger, self._assignments)

    # -- verbs ---------------------------------------------------------------------------------------------------

    @report_outcome
    def reserve(self, name: str, request: AllocationRequest, *, validate_only: bool = False) -> AllocationView:
        """Grant `name` what it requests, or grow or shrink what it holds. Raises InsufficientCapacity, Conflict.

        With `validate_only` the view shows where it would be placed and, in `preempts`, whom it would preempt.
        Otherwise `preempts` lists those it has preempted that have not been granted capacity again.
        """
        validate_resource_name(name)
        with self._store.transaction(dry=validate_only) as session:
            self.ledger.open(session)
            current = session.get(AllocationRow, name)
            before = [] if current is None else current.preempts
            if current is None or request.spec_dict() != current.request:  # a repeated spec needs no check
                check_request(session, name, request, None if current is None else current.spec())
            if current is None:
                current = self._create(session, name, request)
            else:
                self._resize(session, current, request)
            self._reconcile(session, current)
            if validate_only:
                tried = current.view()
                tried.preempts = [other for other in tried.preempts if other not in before]
                return tried
        return current.shown()

    def bind(self, name: str, request: BindingRequest | None = None) -> AllocationView:
        """Have the agents deploy all members and prepare all spares, or switch all of them off.

        Raises Conflict when an allocation with parts of nodes is to be switched off.
        """
        power = request.power if request is not None else "On"
        TRACES.note(name)
        with self._store.transaction() as session:
            allocation = self._get_unreleased(session, name)
            if power == "Off" and self._store.parts(session, name):
                raise Conflict(f"{name!r} holds parts of nodes, which cannot be switched off", field="power")
            allocation.bound, allocation.power = True, power
            if allocation.state == "Reserved":
                allocation.move("Binding")
            for node in self._store.allocated_to(session, name):
                self._assignments.request_deploy(session, node, allocation)
            for part in self._store.parts(session, name):
                if not part.releasing:
                    self._assignments.request_part(session, self._store.node(session, NodeName(part.node)), part)
            self._reconcile(session, allocation)
        return allocation.shown()

    def renew(self, name: str, lease_s: float) -> AllocationView:
        """Restart an allocation's lease with this length. Raises Conflict if a reservation needs its nodes before
        then."""
        with self._store.transaction() as session:
            ledger = self.ledger.open(session)
            allocation = self._get_unreleased(session, name)
            until = self._clock.now() + lease_s
            self.ledger.invalidate()
            if not advance_reservation.extend(ledger, name, until):
                raise Conflict(
                    f"{name!r} cannot keep its nodes until {timestamp(until)}: a reservation needs them before"
                )
            allocation.expires_at = until
            self._reconcile(session, allocation)
        return allocation.shown()

    @report_outcome
    def move(self, name: str, request: AllocationRequest, *, validate_only: bool = False) -> AllocationView:
        """Take successors for the members that `request` would place on other nodes; nothing that is held is given up
        yet. `cut_over` completes the move, `abort_move` releases the successors.

        Repeated, it finds the move in progress; with another spec it replaces that move. With `validate_only` the view
        shows the allocation as it would be in the end.
        """
        with self._store.transaction(dry=validate_only) as session:
            self.ledger.open(session)
            allocation = self._get_unreleased(session, name)
            request = self._validate_move(session, allocation, request)
            if request.spec_dict() != allocation.moving_to:
                check_request(session, name, request, allocation.spec())
            ranks = self._moves.begin(session, allocation, request)
            if validate_only:
                self._cut_over(session, allocation, request, ranks)
            self._reconcile(session, allocation)
            if validate_only:
                return allocation.view()
        return allocation.shown()

    @report_outcome
    def relocate(self, name: str, request: RelocateRequest) -> AllocationView:
        """Take a successor for one member on a named node. `cut_over` completes it and `abort_move` cancels it, as for
        a move."""
        with self._store.transaction() as session:
            self.ledger.open(session)
            allocation = self._get_unreleased(session, name)
            self._relocations.begin(session, allocation, request)
            self._reconcile(session, allocation)
        return allocation.shown()

    @report_outcome
    def cut_over(self, name: str, request: AllocationRequest) -> AllocationView:
        """Turn successors into members and release the nodes they replace, all at once. Conflict until all are ready.

        Repeated, it changes nothing, since no successor is left.
        """
        with self._store.transaction() as session:
            self.ledger.open(session)
            allocation = self._get_unreleased(session, name)
            request = self._validate_move(session, allocation, request)
            self._moves.check_under_way(allocation, request)
            members = self.ledger.placement_request(request).nodes
            self._cut_over(session, allocation, request, self._moves.ready_ranks(session, allocation, members))
            self._reconcile(session, allocation)
        return allocation.shown()

    def abort_move(self, name: str) -> AllocationView:
        """Cancel a move and release its successors."""
        with self._store.transaction() as session:
            self.ledger.open(session)
            allocation = self._store.allocation(session, name)
            self._moves.abort(session, allocation)
            self._reconcile(session, allocation)
        return allocation.shown()

    @report_outcome
    def replace(self, name: str, node: NodeName, reason: str) -> AllocationView:
        """Give up one member and let a spare, or else a free node, take its rank; the others stay where they are.

        Repeated for a node that is no longer a member, it changes nothing. Raises InsufficientCapacity, and keeps the
        member, when there is neither a spare nor a free node.
        """
        with self._store.transaction() as session:
            self.ledger.open(session)
            allocation = self._get_unreleased(session, name)
            if self._failover.replace_node(session, allocation, node):
                allocation.generation += 1
                self._rebind(allocation)
                allocation.labels = {**allocation.labels, REPLACEMENT_LABEL: f"{node}.{reason}"[:63]}
                self._failover.refill(session, allocation)
                self._reconcile(session, allocation)
        return allocation.shown()

    def replenish(self) -> int:
        """Take free nodes for allocations that lack spares. Return how many. Run when nodes come back."""
        added = 0
        with self._store.transaction() as session:
            self.ledger.open(session)
            for allocation in self._store.allocations(session):
                if allocation.state != "Releasing":
                    added += self._failover.refill(session, allocation)
                    self._reconcile(session, allocation)
        return added

    @report_outcome
    def release(self, name: str) -> AllocationView | None:
        """Release everything: agents clean the nodes, then they are free and the allocation is gone. None if it already
        is."""
        with self._store.transaction() as session:
            allocation = self._store.allocation(session, name)
            self._release(session, allocation)
            gone = self._reconcile(session, allocation)
        return None if gone else allocation.shown()

    def expire(self) -> int:
        """Release allocations whose lease has ended. Return how many."""
        now = self._clock.now()
        with self._store.transaction() as session:
            unreleased = [row for row in self._store.allocations(session) if row.state != "Releasing"]
            ended = [row for row in unreleased if row.expires_at is not None and row.expires_at <= now]
            for allocation in ended:
                allocation.set_condition("Expired", True, "LeaseEnded", "its lease has ended", now)
                self._release(session, allocation)
                self._reconcile(session, allocation)
        return len(ended)

    def cordon(self, name: NodeName, cordoned: bool, by: str = ADMIN) -> NodeView:
        """Set or lift one owner's cordon on a node. Work that runs there continues; other owners' cordons stay."""
        with self._store.transaction() as session:
            node = self._store.node(session, name)
            node.cordon(by, cordoned)
        return node.view()

    def cordon_all(self, names: Sequence[NodeName], cabinets: Sequence[CabinetName], by: str) -> list[NodeName]:
        """Cordon these nodes, and all nodes of these cabinets, in one transaction. Return the names of those that
        exist, in order. Raises NotFound if none does."""
        with self._store.transaction() as session:
            within = [name for cabinet in cabinets for name in self._store.names_in(session, cabinet)]
            nodes = self._store.nodes(session, list(dict.fromkeys([*names, *within])))
            if not nodes:
                requested = [str(name) for name in (*names, *cabinets)]
                listed = ", ".join(requested[:5]) + (f" and {len(requested) - 5} more" if len(requested) > 5 else "")
                raise NotFound(f"no nodes found for {listed}", field="nodes" if names else "cabinets")
            for node in nodes:
                node.cordon(by, True)
        return [node.node_name for node in nodes]

    def reconcile(self, session: Session, names: set[str]) -> None:
        """Update these allocations after reports on their nodes changed."""
        for name in sorted(names):
            allocation = session.get(AllocationRow, name)
            if allocation is not None:
                self._reconcile(session, allocation)

    # -- parts of verbs ------------------------------------------------------------------------------------------

    def _get_unreleased(self, session: Session, name: str) -> AllocationRow:
        allocation = self._store.allocation(session, name)
        if allocation.state == "Releasing":
            raise Conflict(f"allocation {name!r} is being released; wait until it is gone")
        return allocation

    def _create(self, session: Session, name: str, request: AllocationRequest) -> AllocationRow:
        now = self._clock.now()
        allocation_request = self.ledger.placement_request(request, now)
        quotas.check_quota(session, request)
        preempted: list[str] = []
        if request.reservation is not None:
            place: Placement | None
            place = self.reservations.claim(session, request.reservation, name, allocation_request, now)
        else:
            if (row := session.get(ReservationRow, name)) is not None and row.promised:
                raise Conflict(
                    f"{name!r} is a reservation; once it is Active, name it in `reservation` to use it", field="name"
                )
            place, preempted = self.ledger.allocate(name, allocation_request, now)
        if place is None:
            raise refusal(self._store.nodes(session), self.ledger, allocation_request)
        expires_at = None if request.lease_s is None else now + request.lease_s
        allocation = new_allocation(session, name, request, allocation_request, expires_at)
        allocation.preempts = preempted
        for other in self.ledger.preemptors(name):
            winner = self._store.allocation(session, other)
            winner.preempts = [each for each in winner.preempts if each != name]
        for victim in preempted:
            self._preempt(session, self._store.allocation(session, victim), allocation, place)
        apply_placement(session, self._store, self._assignments, self.ledger, allocation, place)
        return allocation

    def _preempt(self, session: Session, victim: AllocationRow, by: AllocationRow, place: Placement) -> None:
        """Release the victim. What `by` takes is its own at once and cleaned before use; the rest is cleaned first."""
        message = f"preempted by {by.name}, which has a higher priority"
        victim.set_condition("Preempted", True, "Preempted", message, self._clock.now())
        self._release(session, victim)
        yield_place(session, self._store, self.ledger, victim, place)
        if not self._reconcile(session, victim):
            self.ledger.refresh(session, victim)

    def _resize(self, session: Session, allocation: AllocationRow, request: AllocationRequest) -> None:
        if allocation.state == "Releasing":
            raise Conflict(f"allocation {allocation.name!r} is being released; wait until it is gone")
        before = allocation.spec()
        for field in IMMUTABLE_FIELDS:
            if getattr(request, field) != getattr(before, field):
                name = "npusPerNode" if field == "npus_per_node" else field
                raise Conflict(f"{name} cannot change in place; move the allocation with PUT .../move", field=name)
        allocation.labels = {**request.labels, **system_labels(allocation.labels)}
        same = request.spec_dict() == allocation.request
        if allocation.moving_to is not None and not (same and allocation.moving_to == allocation.request):
            self._moves.abort(session, allocation)  # a relocation leaves the spec as it is
        if same:
            return
        now, expires_at = self._clock.now(), allocation.expires_at  # as renewed, or as set by its reservation
        if request.lease_s != before.lease_s:  # a different lease starts now
            expires_at = None if request.lease_s is None else now + request.lease_s
        allocation_request = self.ledger.placement_request(request, now)
        allocation_request = changed_to(
            allocation_request,
            excluded_nodes=allocation_request.excluded_nodes | self.ledger.nodes_being_wiped(session, allocation.name),
            lease_end=NEVER if expires_at is None else expires_at,
        )
        quotas.check_quota(session, request, allocation)
        if allocation_request.npus_per_node != self.ledger.ledger.allocations[allocation.name].request.npus_per_node:
            raise Conflict("the NPUs per node cannot change in place", field="npus")
        roles = self._resizing.roles(session, allocation)
        place, preempted = self._resizing.place(session, allocation, allocation_request, request.exclude_nodes, now)
        if place is None:
            missing = self._resizing.missing_request(allocation, allocation_request)
            raise refusal(self._store.nodes(session), self.ledger, missing, allocation.name)
        for victim in preempted:
            self._preempt(session, self._store.allocation(session, victim), allocation, place)
        allocation.preempts = [*allocation.preempts, *preempted]
        allocation.expires_at = expires_at
        allocation.nodes, allocation.npus, allocation.spares, allocation.request = (
            allocation_request.nodes,
            allocation_request.npus,
            request.spares,
            request.spec_dict(),
        )
        if apply_placement(session, self._store, self._assignments, self.ledger, allocation, place):
            allocation.generation += 1
            self._resizing.record_growth(session, allocation, roles, now)
            self._rebind(allocation)
        self.ledger.refresh(session, allocation)
        self._failover.refill(session, allocation)

    def _cut_over(
        self, session: Session, allocation: AllocationRow, request: AllocationRequest, ranks: Mapping[NodeName, int]
    ) -> None:
        allocation.labels = {**request.labels, **system_labels(allocation.labels)}
        if self._moves.cut_over(session, allocation, request, ranks):
            allocation.generation += 1
            self._rebind(allocation)
        self._failover.refill(session, allocation)

    def _validate_move(
        self, session: Session, allocation: AllocationRow, request: AllocationRequest
    ) -> AllocationRequest:
        """Check a request to move against project and quota, and keep the lease: a move never changes it."""
        if request.project != allocation.project:
            raise Conflict("an allocation cannot change its project", field="project")
        quotas.check_quota(session, request, allocation)
        return request.model_copy(update={"lease_s": allocation.spec().lease_s})

    def _release(self, session: Session, allocation: AllocationRow) -> None:
        if allocation.state == "Releasing":
            return
        allocation.move("Releasing")
        allocation.generation += 1
        for node in self._store.allocated_to(session, allocation.name):
            self._assignments.request_clean(session, node)
        for part in self._store.parts(session, allocation.name):
            self._assignments.release_part(session, part)

    def _rebind(self, allocation: AllocationRow) -> None:
        if allocation.bound and allocation.state in ("Bound", "Degraded"):
            allocation.move("Binding")

    def _reconcile(self, session: Session, allocation: AllocationRow) -> bool:
        return self._status.reconcile(session, allocation, self._clock.now())
