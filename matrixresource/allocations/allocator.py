"""Allocator: reserve, bind, resize, replace, release. Who holds what is decided here and nowhere else.

Every verb is idempotent: asked twice with the same spec it finds what it did. A verb is one transaction, so it happens
whole or not at all; what the agents then do is watched, and `settle` moves states on as reports come in. Where
something comes to lie is the ledger's choice (`capacity`), kept in step with the tables by the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as changed_to

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Conflict, NotFound
from matrixcommon.model.hardware_names import CabinetName, NodeName, checked_resource_name
from matrixcommon.model.quantities import timestamp
from matrixcommon.persistence.decision_metrics import VerbOutcome, decision
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

FIXED = ("project", "npus_per_node", "placement", "affinity", "anti_affinity")
"""What of a spec cannot change in place: an allocation moves to another placement, and is made anew for the others."""


class Allocator:
    """The verbs over nodes and allocations."""

    def __init__(self, store: ResourceStore, clock: Clock, policy: str = "best") -> None:
        self._store = store
        self._clock = clock
        self.records = store.records
        store.records.keep(CachedTable(quotas.QuotaRow), CachedTable(ReservationRow), CachedTable(TopologyHeadRow))
        self.ledger = LedgerSync(store, policy)
        self._assignments = NodeAssignments(store)
        self._status = AllocationStatus(store, self._assignments)
        self._moves = Migrations(store, self.ledger, self._assignments)
        self.reservations = ReservationService(store, self.ledger, self._assignments, self._status, clock)
        self.decided: list[Callable[[VerbOutcome], None]] = []
        """Informed of every decision."""
        self._relocations = Relocations(store, self.ledger, self._assignments)
        self._resizing = Resizing(store, self.ledger)
        self._steps_in = Failover(store, self.ledger, self._assignments)

    # -- verbs ---------------------------------------------------------------------------------------------------

    @decision
    def reserve(self, name: str, request: AllocationRequest, *, validate_only: bool = False) -> AllocationView:
        """Hold what is asked for `name`, or grow and shrink what it holds. Raises InsufficientCapacity, Conflict.

        With `validate_only` the view shows where it would lie and, under `preempts`, whom it would preempt; otherwise
        `preempts` are those it has preempted who have not come back.
        """
        checked_resource_name(name)
        with self._store.transaction(dry=validate_only) as session:
            self.ledger.open(session)
            current = session.get(AllocationRow, name)
            before = [] if current is None else current.preempts
            if current is None or request.spec_dict() != current.request:  # what was granted is found again
                check_request(session, name, request, None if current is None else current.spec())
            if current is None:
                current = self._reserved(session, name, request)
            else:
                self._resized(session, current, request)
            self._reconcile(session, current)
            if validate_only:
                tried = current.view()
                tried.preempts = [other for other in tried.preempts if other not in before]
                return tried
        return current.shown()

    def bind(self, name: str, request: BindingRequest | None = None) -> AllocationView:
        """Ask the agents of all members to deploy, and of all spares to stand ready; or all of them to switch off.

        Raises Conflict where nodes that others share are to be switched off.
        """
        power = request.power if request is not None else "On"
        TRACES.note(name)
        with self._store.transaction() as session:
            allocation = self._living(session, name)
            if power == "Off" and self._store.parts(session, name):
                raise Conflict(f"{name!r} has parts of nodes, which cannot be switched off", field="power")
            allocation.bound, allocation.power = True, power
            if allocation.state == "Reserved":
                allocation.move("Binding")
            for node in self._store.allocated_to(session, name):
                self._assignments.request_deploy(session, node, allocation)
            for part in self._store.parts(session, name):
                if not part.releasing:
                    self._assignments.ask_part(session, self._store.node(session, NodeName(part.node)), part)
            self._reconcile(session, allocation)
        return allocation.shown()

    def renew(self, name: str, lease_s: float) -> AllocationView:
        """Let an allocation's lease start again, for this long. Raises Conflict where what it holds is promised to
        somebody before that."""
        with self._store.transaction() as session:
            ledger = self.ledger.open(session)
            allocation = self._living(session, name)
            until = self._clock.now() + lease_s
            self.ledger.touched()
            if not advance_reservation.extend(ledger, name, until):
                raise Conflict(f"what {name!r} holds is promised to a reservation before {timestamp(until)}")
            allocation.expires_at = until
            self._reconcile(session, allocation)
        return allocation.shown()

    @decision
    def move(self, name: str, request: AllocationRequest, *, validate_only: bool = False) -> AllocationView:
        """Take successors for the members that would lie elsewhere under `request`; everything held stays held. The
        change-over ends the move; given up, its successors are let go.

        Asked again it finds the move it began; with another spec it begins that one instead. With `validate_only` the
        view is of the allocation as it would be in the end.
        """
        with self._store.transaction(dry=validate_only) as session:
            self.ledger.open(session)
            allocation = self._living(session, name)
            request = self._elsewhere(session, allocation, request)
            if request.spec_dict() != allocation.moving_to:
                check_request(session, name, request, allocation.spec())
            ranks = self._moves.begin(session, allocation, request)
            if validate_only:
                self._cut_over(session, allocation, request, ranks)
            self._reconcile(session, allocation)
            if validate_only:
                return allocation.view()
        return allocation.shown()

    @decision
    def relocate(self, name: str, request: RelocateRequest) -> AllocationView:
        """Take a successor for one member on a node that is named. `change_over` and `stay` end it, as a move."""
        with self._store.transaction() as session:
            self.ledger.open(session)
            allocation = self._living(session, name)
            self._relocations.begin(session, allocation, request)
            self._reconcile(session, allocation)
        return allocation.shown()

    @decision
    def cut_over(self, name: str, request: AllocationRequest) -> AllocationView:
        """Successors become members, and who they follow is let go, all at once. Raises Conflict before all are ready.

        Asked again it changes nothing: nobody has a successor any more.
        """
        with self._store.transaction() as session:
            self.ledger.open(session)
            allocation = self._living(session, name)
            request = self._elsewhere(session, allocation, request)
            self._moves.check_under_way(allocation, request)
            members = self.ledger.placement_request(request).nodes
            self._cut_over(session, allocation, request, self._moves.ready(session, allocation, members))
            self._reconcile(session, allocation)
        return allocation.shown()

    def abort_move(self, name: str) -> AllocationView:
        """Give a move up: its successors are let go."""
        with self._store.transaction() as session:
            self.ledger.open(session)
            allocation = self._store.allocation(session, name)
            self._moves.give_up(session, allocation)
            self._reconcile(session, allocation)
        return allocation.shown()

    @decision
    def replace(self, name: str, node: NodeName, reason: str) -> AllocationView:
        """Give up one member and let a spare, else a free node, take its rank; the rest stay where they are.

        Asked again for a node that is no longer a member, it changes nothing. Raises InsufficientCapacity when there
        is neither spare nor free node; the member is then kept.
        """
        with self._store.transaction() as session:
            self.ledger.open(session)
            allocation = self._living(session, name)
            if self._steps_in.for_node(session, allocation, node):
                allocation.generation += 1
                self._bind_again(allocation)
                allocation.labels = {**allocation.labels, REPLACEMENT_LABEL: f"{node}.{reason}"[:63]}
                self._steps_in.refill(session, allocation)
                self._reconcile(session, allocation)
        return allocation.shown()

    def replenish(self) -> int:
        """Take free nodes for allocations short of spares; returns how many. Run when nodes come back."""
        taken = 0
        with self._store.transaction() as session:
            self.ledger.open(session)
            for allocation in self._store.allocations(session):
                if allocation.state != "Releasing":
                    taken += self._steps_in.refill(session, allocation)
                    self._reconcile(session, allocation)
        return taken

    @decision
    def release(self, name: str) -> AllocationView | None:
        """Let everything go: agents clean, then the nodes are free and the allocation is gone (None)."""
        with self._store.transaction() as session:
            allocation = self._store.allocation(session, name)
            self._release(session, allocation)
            gone = self._reconcile(session, allocation)
        return None if gone else allocation.shown()

    def expire(self) -> int:
        """Release what has outlived its lease; returns how many."""
        now = self._clock.now()
        with self._store.transaction() as session:
            standing = [row for row in self._store.allocations(session) if row.state != "Releasing"]
            ended = [row for row in standing if row.expires_at is not None and row.expires_at <= now]
            for allocation in ended:
                allocation.set_condition("Expired", True, "LeaseEnded", "its lease has ended", now)
                self._release(session, allocation)
                self._reconcile(session, allocation)
        return len(ended)

    def cordon(self, name: NodeName, cordoned: bool, by: str = ADMIN) -> NodeView:
        """Keep new work off a node, or let it come again, but for others who keep it off; what runs there continues."""
        with self._store.transaction() as session:
            node = self._store.node(session, name)
            node.cordon(by, cordoned)
        return node.view()

    def cordon_all(self, names: Sequence[NodeName], cabinets: Sequence[CabinetName], by: str) -> list[NodeName]:
        """Keep new work off these nodes, and off all of these cabinets, in one transaction; the names of those that
        exist, in order. Raises NotFound where none does."""
        with self._store.transaction() as session:
            within = [name for cabinet in cabinets for name in self._store.names_in(session, cabinet)]
            nodes = self._store.nodes(session, list(dict.fromkeys([*names, *within])))
            if not nodes:
                asked = [str(name) for name in (*names, *cabinets)]
                listed = ", ".join(asked[:5]) + (f" and {len(asked) - 5} more" if len(asked) > 5 else "")
                raise NotFound(f"there is no node of {listed}", field="nodes" if names else "cabinets")
            for node in nodes:
                node.cordon(by, True)
        return [node.node_name for node in nodes]

    def reconcile(self, session: Session, names: set[str]) -> None:
        """Move allocations on after their nodes' reports changed."""
        for name in sorted(names):
            allocation = session.get(AllocationRow, name)
            if allocation is not None:
                self._reconcile(session, allocation)

    # -- parts of verbs ------------------------------------------------------------------------------------------

    def _living(self, session: Session, name: str) -> AllocationRow:
        allocation = self._store.allocation(session, name)
        if allocation.state == "Releasing":
            raise Conflict(f"allocation {name!r} is being released; wait until it is gone")
        return allocation

    def _reserved(self, session: Session, name: str, request: AllocationRequest) -> AllocationRow:
        now = self._clock.now()
        allocation_request = self.ledger.placement_request(request, now)
        quotas.check(session, request)
        preempted: list[str] = []
        if request.reservation is not None:
            place: Placement | None
            place = self.reservations.claim(session, request.reservation, name, allocation_request, now)
        else:
            if (row := session.get(ReservationRow, name)) is not None and row.promised:
                raise Conflict(f"{name!r} is a reservation; take from it by saying so once it is held", field="name")
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
            self._preempted(session, self._store.allocation(session, victim), allocation, place)
        apply_placement(session, self._store, self._assignments, self.ledger, allocation, place)
        return allocation

    def _preempted(self, session: Session, victim: AllocationRow, by: AllocationRow, place: Placement) -> None:
        """What the newcomer takes changes hands at once, its agents clean before they deploy; the rest is the victim's
        until it has been cleaned."""
        message = f"{by.name} of higher priority took its place"
        victim.set_condition("Preempted", True, "Preempted", message, self._clock.now())
        self._release(session, victim)
        yield_place(session, self._store, self.ledger, victim, place)
        if not self._reconcile(session, victim):
            self.ledger.refresh(session, victim)

    def _resized(self, session: Session, allocation: AllocationRow, request: AllocationRequest) -> None:
        if allocation.state == "Releasing":
            raise Conflict(f"allocation {allocation.name!r} is being released; wait until it is gone")
        before = allocation.spec()
        for field in FIXED:
            if getattr(request, field) != getattr(before, field):
                name = "npusPerNode" if field == "npus_per_node" else field
                raise Conflict(f"{name} does not change in place; an allocation moves by PUT .../move", field=name)
        allocation.labels = {**request.labels, **system_labels(allocation.labels)}
        same = request.spec_dict() == allocation.request
        if allocation.moving_to is not None and not (same and allocation.moving_to == allocation.request):
            self._moves.give_up(session, allocation)  # a relocation leaves the spec as it is
        if same:
            return
        now, expires_at = self._clock.now(), allocation.expires_at  # as renewed, or as long as a reservation has it
        if request.lease_s != before.lease_s:  # another lease than before starts now
            expires_at = None if request.lease_s is None else now + request.lease_s
        allocation_request = self.ledger.placement_request(request, now)
        allocation_request = changed_to(
            allocation_request,
            excluded_nodes=allocation_request.excluded_nodes | self.ledger.wiping(session, allocation.name),
            lease_end=NEVER if expires_at is None else expires_at,
        )
        quotas.check(session, request, allocation)
        if allocation_request.npus_per_node != self.ledger.ledger.allocations[allocation.name].request.npus_per_node:
            raise Conflict("the share of a node does not change in place", field="npus")
        roles = self._resizing.roles(session, allocation)
        place, preempted = self._resizing.place(session, allocation, allocation_request, request.exclude_nodes, now)
        if place is None:
            missing = self._resizing.missing(allocation, allocation_request)
            raise refusal(self._store.nodes(session), self.ledger, missing, allocation.name)
        for victim in preempted:
            self._preempted(session, self._store.allocation(session, victim), allocation, place)
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
            self._resizing.note(session, allocation, roles, now)
            self._bind_again(allocation)
        self.ledger.refresh(session, allocation)
        self._steps_in.refill(session, allocation)

    def _cut_over(
        self, session: Session, allocation: AllocationRow, request: AllocationRequest, ranks: Mapping[NodeName, int]
    ) -> None:
        allocation.labels = {**request.labels, **system_labels(allocation.labels)}
        if self._moves.cut_over(session, allocation, request, ranks):
            allocation.generation += 1
            self._bind_again(allocation)
        self._steps_in.refill(session, allocation)

    def _elsewhere(self, session: Session, allocation: AllocationRow, request: AllocationRequest) -> AllocationRequest:
        """A request to lie elsewhere, within the quota and with the lease there is: only `renew` and a spec in place
        change that."""
        if request.project != allocation.project:
            raise Conflict("an allocation stays in its project", field="project")
        quotas.check(session, request, allocation)
        return request.model_copy(update={"lease_s": allocation.spec().lease_s})

    def _release(self, session: Session, allocation: AllocationRow) -> None:
        if allocation.state == "Releasing":
            return
        allocation.move("Releasing")
        allocation.generation += 1
        for node in self._store.allocated_to(session, allocation.name):
            self._assignments.ask_clean(session, node)
        for part in self._store.parts(session, allocation.name):
            self._assignments.drop(session, part)

    def _bind_again(self, allocation: AllocationRow) -> None:
        if allocation.bound and allocation.state in ("Bound", "Degraded"):
            allocation.move("Binding")

    def _reconcile(self, session: Session, allocation: AllocationRow) -> bool:
        return self._status.reconcile(session, allocation, self._clock.now())
