"""Allocator: reserve, bind, resize, replace, release. Who holds what is decided here and nowhere else.

Every verb is idempotent: asked twice with the same wish it finds what it did. A verb is one transaction, so it happens
whole or not at all; what the agents then do is watched, and `settle` moves states on as reports come in. Where
something comes to lie is the ledger's choice (`capacity`), kept in step with the tables by the books.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as changed_to

from sqlalchemy.orm import Session

from matrixresource import quotas
from matrixresource.books import Books
from matrixresource.capacity import preempting
from matrixresource.capacity.wishes import Place, Wish
from matrixresource.contract import AllocationRequest, AllocationView, NodeView
from matrixresource.decisions import Decision, decision
from matrixresource.defragmentation_contract import RelocateRequest
from matrixresource.layout_changes import carry_out
from matrixresource.moving import Moves
from matrixresource.refusals import refusal
from matrixresource.relocating import Relocations
from matrixresource.reservations import ReservationRow
from matrixresource.reserving import Reservations
from matrixresource.roster import Roster
from matrixresource.standing import Standing
from matrixresource.stepping_in import StepsIn
from matrixresource.store import AllocationRow, ResourceStore
from matrixresource.topology_history import HeadRow, checked_version, current_version
from matrixresource.vocabulary.clock import Clock
from matrixresource.vocabulary.errors import Conflict, InvalidField
from matrixresource.vocabulary.keeping import Keep
from matrixresource.vocabulary.names import NodeName, checked_resource_name
from matrixresource.vocabulary.quantities import timestamp
from matrixresource.vocabulary.records import check_etag
from matrixresource.vocabulary.wire import condition
from matrixresource.wishing import cycle_of, size_of

FIXED = ("project", "npus_per_node", "placement", "near", "apart")
"""What of a wish cannot change in place: an allocation moves to another placement, and is made anew for the others."""


class Allocator:
    """The verbs over nodes and allocations."""

    def __init__(self, store: ResourceStore, clock: Clock, policy: str = "best") -> None:
        self._store = store
        self._clock = clock
        self.records = store.records
        store.records.keep(Keep(quotas.QuotaRow), Keep(ReservationRow), Keep(HeadRow))
        self.books = Books(store, policy)
        self._roster = Roster(store)
        self._standing = Standing(store, self._roster)
        self._moves = Moves(store, self.books, self._roster)
        self.reservations = Reservations(store, self.books, self._roster, self._standing, clock)
        self.decided: list[Callable[[Decision], None]] = []
        """Told of every decision."""
        self._relocations = Relocations(store, self.books, self._roster)
        self._steps_in = StepsIn(store, self.books, self._roster)

    # -- verbs ---------------------------------------------------------------------------------------------------

    @decision
    def reserve(
        self, name: str, request: AllocationRequest, *, if_match: str | None = None, validate_only: bool = False
    ) -> AllocationView:
        """Hold what is asked for `name`, or grow and shrink what it holds. Raises InsufficientCapacity, Conflict.

        With `validate_only` the view shows where it would lie and, under `preempts`, whom it would put out; otherwise
        `preempts` are those it has put out who have not come back.
        """
        checked_resource_name(name)
        with self._store.transaction(dry=validate_only) as session:
            self.books.open(session)
            held = session.get(AllocationRow, name)
            check_etag(held, if_match)
            before = [] if held is None else held.preempts
            self._check(session, name, request)
            if held is None:
                held = self._reserved(session, name, request)
            else:
                self._resized(session, held, request)
            self._settle(session, held)
            if validate_only:
                tried = held.view()
                tried.preempts = [other for other in tried.preempts if other not in before]
                return tried
        return held.shown()

    def bind(self, name: str) -> AllocationView:
        """Ask the agents of all members to deploy, and of all spares to stand ready."""
        with self._store.transaction() as session:
            held = self._living(session, name)
            held.bound = True
            if held.state == "Reserved":
                held.move("Binding")
            for node in self._store.held_by(session, name):
                self._roster.ask(session, node, held)
            for part in self._store.parts(session, name):
                if not part.going:
                    self._roster.ask_part(session, self._store.node(session, NodeName(part.node)), part)
            self._settle(session, held)
        return held.shown()

    def renew(self, name: str, lease_s: float) -> AllocationView:
        """Let an allocation's lease start again, for this long. Raises Conflict where what it holds is promised to
        somebody before that."""
        with self._store.transaction() as session:
            ledger = self.books.open(session)
            held = self._living(session, name)
            until = self._clock.now() + lease_s
            self.books.touched()
            if not ledger.extend(name, until):
                raise Conflict(f"what {name!r} holds is promised to a reservation before {timestamp(until)}")
            held.expires_at = until
            self._settle(session, held)
        return held.shown()

    @decision
    def move(self, name: str, request: AllocationRequest, *, validate_only: bool = False) -> AllocationView:
        """Take successors for the members that would lie elsewhere under `request`; everything held stays held.

        Asked again it finds the move it began; with another wish it begins that one instead. With `validate_only` the
        view is of the allocation as it would be in the end.
        """
        with self._store.transaction(dry=validate_only) as session:
            self.books.open(session)
            held = self._living(session, name)
            self._check(session, name, request)
            request = self._elsewhere(session, held, request)
            ranks = self._moves.begin(session, held, request)
            if validate_only:
                self._change_over(session, held, request, ranks)
            self._settle(session, held)
            if validate_only:
                return held.view()
        return held.shown()

    @decision
    def relocate(self, name: str, request: RelocateRequest) -> AllocationView:
        """Take a successor for one member on a node that is named. `change_over` and `stay` end it, as a move."""
        with self._store.transaction() as session:
            self.books.open(session)
            held = self._living(session, name)
            self._relocations.begin(session, held, request)
            self._settle(session, held)
        return held.shown()

    @decision
    def change_over(self, name: str, request: AllocationRequest) -> AllocationView:
        """Successors become members, and who they follow is let go, all at once. Raises Conflict before all are ready.

        Asked again it changes nothing: nobody has a successor any more.
        """
        with self._store.transaction() as session:
            self.books.open(session)
            held = self._store.allocation(session, name)
            request = self._elsewhere(session, held, request)
            self._change_over(session, held, request, self._moves.ready(session, held, size_of(request)[0]))
            self._settle(session, held)
        return held.shown()

    def stay(self, name: str) -> AllocationView:
        """Give a move up: its successors are let go."""
        with self._store.transaction() as session:
            self.books.open(session)
            held = self._store.allocation(session, name)
            self._moves.give_up(session, held)
            self._settle(session, held)
        return held.shown()

    @decision
    def replace(self, name: str, node: NodeName, reason: str) -> AllocationView:
        """Give up one member and let a spare, else a free node, take its rank; the rest stay where they are.

        Asked again for a node that is no longer a member, it changes nothing. Raises InsufficientCapacity when there
        is neither spare nor free node; the member is then kept.
        """
        with self._store.transaction() as session:
            self.books.open(session)
            held = self._living(session, name)
            if self._steps_in.for_node(session, held, node):
                held.generation += 1
                self._bind_again(held)
                held.labels = {**held.labels, "cloudmatrix.io/last-replacement": f"{node}.{reason}"[:63]}
                self._steps_in.refill(session, held)
                self._settle(session, held)
        return held.shown()

    def replenish(self) -> int:
        """Take free nodes for allocations short of spares; returns how many. Run when nodes come back."""
        taken = 0
        with self._store.transaction() as session:
            self.books.open(session)
            for held in self._store.allocations(session):
                if held.state != "Releasing":
                    taken += self._steps_in.refill(session, held)
                    self._settle(session, held)
        return taken

    @decision
    def release(self, name: str, *, if_match: str | None = None) -> AllocationView | None:
        """Let everything go: agents clean, then the nodes are free and the allocation is gone (None)."""
        with self._store.transaction() as session:
            held = self._store.allocation(session, name)
            check_etag(held, if_match)
            self._release(session, held)
            gone = self._settle(session, held)
        return None if gone else held.shown()

    def expire(self) -> int:
        """Release what has outlived its lease; returns how many."""
        now, ended = self._clock.now(), 0
        with self._store.transaction() as session:
            for held in self._store.allocations(session):
                if held.expires_at is not None and held.expires_at <= now and held.state != "Releasing":
                    self._note(held, "Expired", "LeaseEnded", "its lease has ended")
                    self._release(session, held)
                    self._settle(session, held)
                    ended += 1
        return ended

    def cordon(self, name: NodeName, cordoned: bool, *, if_match: str | None = None) -> NodeView:
        """Keep new work off a node, or let it come again; what runs there goes on."""
        with self._store.transaction() as session:
            node = self._store.node(session, name)
            check_etag(node, if_match)
            node.cordoned = cordoned
        return node.view()

    def settle(self, session: Session, names: set[str]) -> None:
        """Move allocations on after their nodes' reports changed."""
        for name in sorted(names):
            held = session.get(AllocationRow, name)
            if held is not None:
                self._settle(session, held)

    # -- parts of verbs ------------------------------------------------------------------------------------------

    def _living(self, session: Session, name: str) -> AllocationRow:
        held = self._store.allocation(session, name)
        if held.state == "Releasing":
            raise Conflict(f"allocation {name!r} is being released; wait until it is gone")
        return held

    def _check(self, session: Session, name: str, request: AllocationRequest) -> None:
        """What can be said of a request before anything is chosen."""
        checked_version(session, request.topology_version)
        near = request.near.allocations if request.near else []
        apart = request.apart.allocations if request.apart else []
        for field, others in (("near", near), ("apart", apart)):
            if name in others:
                raise InvalidField(f"{name} cannot be {field} itself", field=f"{field}.allocations")
        missing = [other for other in near if session.get(AllocationRow, other) is None]
        if missing and request.near and request.near.required:
            raise InvalidField(f"there is no allocation {missing[0]!r} to be near to", field="near.allocations")
        if request.near and request.apart and request.near.level == request.apart.level and set(near) & set(apart):
            both = sorted(set(near) & set(apart))[0]
            raise InvalidField(f"near and apart both name {both} at the same level", field="apart.allocations")
        way = cycle_of(name, near, lambda other: self._near(session, other))
        if way:
            raise InvalidField(
                f"{' is near '.join(way)}: affinity that goes round in a circle", field="near.allocations"
            )

    def _near(self, session: Session, name: str) -> list[str]:
        row = session.get(AllocationRow, name)
        near = row.request_held().near if row is not None else None
        return near.allocations if near else []

    def _reserved(self, session: Session, name: str, request: AllocationRequest) -> AllocationRow:
        now = self._clock.now()
        wish = self.books.wish(request, now)
        quotas.check(session, request)
        preempted: list[str] = []
        if request.reservation is not None:
            place: Place | None = self.reservations.claim(session, request.reservation, name, wish, now)
        else:
            if (row := session.get(ReservationRow, name)) is not None and row.promised:
                raise Conflict(f"{name!r} is a reservation; take from it by saying so once it is held", field="name")
            place, preempted = self.books.allocate(name, wish, now)
        if place is None:
            raise refusal(self._store.nodes(session), self.books, wish)
        held = AllocationRow(
            name=name,
            project=request.project,
            labels=request.labels,
            state="Reserved",
            nodes=wish.nodes,
            npus=wish.npus,
            spares=request.spares,
            request=request.kept(),
            expires_at=None if request.lease_s is None else now + request.lease_s,
            topology_version=current_version(session),
            bound=False,
            generation=1,
            conditions=[],
            members=[],
            preempts=preempted,
        )
        for other in self.books.who_put_out(name):
            winner = self._store.allocation(session, other)
            winner.preempts = [each for each in winner.preempts if each != name]
        session.add(held)
        for victim in preempted:
            self._preempted(session, self._store.allocation(session, victim), held, place)
        carry_out(session, self._store, self._roster, self.books, held, place)
        return held

    def _preempted(self, session: Session, victim: AllocationRow, by: AllocationRow, place: Place) -> bool:
        """What the newcomer takes changes hands at once, its agents clean before they deploy; the rest is cleaned.
        True when there is no rest."""
        taken = {*self.books.nodes(place), *self.books.spares(place)}
        parts = self.books.parts(place)
        self._note(victim, "Preempted", "Preempted", f"{by.name} of higher priority took its place")
        self._release(session, victim)
        for node in self._store.held_by(session, victim.name):
            if node.node_name in taken or node.node_name in parts:  # the rest takes nobody until it has been cleaned
                node.holder = node.role = node.rank = None
        for part in self._store.parts(session, victim.name):
            if part.node in taken:
                part.dies = 0
            elif (new := parts.get(NodeName(part.node))) is not None:
                part.dies &= ~new.dies
                part.cpus, part.memory_gib = (0, 0) if new.cpus or new.memory_gib else (part.cpus, part.memory_gib)
        return self._settle(session, victim)

    def _resized(self, session: Session, held: AllocationRow, request: AllocationRequest) -> None:
        if held.state == "Releasing":
            raise Conflict(f"allocation {held.name!r} is being released; wait until it is gone")
        before = held.request_held()
        for field in FIXED:
            if getattr(request, field) != getattr(before, field):
                name = "npusPerNode" if field == "npus_per_node" else field
                raise Conflict(f"{name} does not change in place; an allocation moves by PUT .../move", field=name)
        held.labels = {**held.labels, **request.labels}
        if held.moving_to is not None:
            self._moves.give_up(session, held)
        if request.kept() == held.request:
            return
        wish = self.books.wish(request, self._clock.now())
        wish = changed_to(wish, avoid=wish.avoid | self.books.wiping(session, held.name))
        quotas.check(session, request, held)
        if wish.per != self.books.ledger.held[held.name].wish.per:
            raise Conflict("the share of a node does not change in place", field="npus")
        place, preempted = self._resized_place(session, held, wish, request.exclude_nodes)
        if place is None:
            raise refusal(self._store.nodes(session), self.books, self._missing(held, wish))
        victims = [self._store.allocation(session, victim) for victim in preempted]
        leaving = [victim for victim in victims if not self._preempted(session, victim, held, place)]
        held.preempts = [*held.preempts, *preempted]
        self._lease(held, request)
        held.nodes, held.npus, held.spares, held.request = wish.nodes, wish.npus, request.spares, request.kept()
        if carry_out(session, self._store, self._roster, self.books, held, place):
            held.generation += 1
            self._bind_again(held)
        for each in (held, *leaving):  # what a victim still has is not free until it is cleaned
            self.books.refresh(session, each)
        self._steps_in.refill(session, held)

    def _resized_place(
        self, session: Session, held: AllocationRow, wish: Wish, excluded: Sequence[NodeName]
    ) -> tuple[Place | None, list[str]]:
        """Who stays keeps its place; where there are to be fewer, those excluded go first, then the last ranks. And
        whom it puts out."""
        self.books.touched()
        ledger, before = self.books.ledger, self.books.ledger.held[held.name].wish
        ranked = [node.node_name for node in self._store.held_by(session, held.name) if node.role == "member"]
        ranked += [
            NodeName(part.node) for part in self._store.parts(session, held.name) if part.dies and not part.going
        ]
        if wish.nodes < before.nodes:
            ranked = sorted(ranked, key=lambda node: node in excluded)[: wish.nodes]
        keep = [self.books.numbers[name] for name in ranked]
        return preempting.resize(ledger, held.name, wish, keep, self._clock.now())

    def _missing(self, held: AllocationRow, wish: Wish) -> Wish:
        """What is asked beyond what is held, for the refusal to speak of."""
        before = self.books.ledger.held[held.name].wish
        return changed_to(
            wish,
            nodes=max(0, wish.nodes - before.nodes),
            spares=max(0, wish.spares - before.spares),
            cpus=max(0, wish.cpus - before.cpus),
            mem=max(0, wish.mem - before.mem),
        )

    def _change_over(
        self, session: Session, held: AllocationRow, request: AllocationRequest, ranks: Mapping[NodeName, int]
    ) -> None:
        held.labels = {**held.labels, **request.labels}
        if self._moves.change_over(session, held, request, ranks):
            held.generation += 1
            self._bind_again(held)
        self._steps_in.refill(session, held)

    def _elsewhere(self, session: Session, held: AllocationRow, request: AllocationRequest) -> AllocationRequest:
        """A wish to lie elsewhere, within the quota and with the lease there is: only `renew` and a wish in place
        change that."""
        if request.project != held.project:
            raise Conflict("an allocation stays in its project", field="project")
        quotas.check(session, request, held)
        return request.model_copy(update={"lease_s": held.request_held().lease_s})

    def _release(self, session: Session, held: AllocationRow) -> None:
        if held.state == "Releasing":
            return
        held.move("Releasing")
        held.generation += 1
        for node in self._store.held_by(session, held.name):
            self._roster.ask_clean(session, node)
        for part in self._store.parts(session, held.name):
            self._roster.drop(session, part)

    def _lease(self, held: AllocationRow, request: AllocationRequest) -> None:
        """Another lease than before starts now."""
        if request.lease_s != held.request_held().lease_s:
            held.expires_at = None if request.lease_s is None else self._clock.now() + request.lease_s

    def _bind_again(self, held: AllocationRow) -> None:
        if held.bound and held.state in ("Bound", "Degraded"):
            held.move("Binding")

    def _note(self, held: AllocationRow, type: str, reason: str, message: str) -> None:
        held.conditions = condition(
            held.conditions or [], type, True, reason, message, generation=held.generation, now=self._clock.now()
        )

    def _settle(self, session: Session, held: AllocationRow) -> bool:
        return self._standing.settle(session, held, self._clock.now())
