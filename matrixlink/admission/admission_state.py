"""AdmissionState: the floors of all slices and the condition of the fabric, in memory.

Every decision needs them, so they are not read from the tables each time, although they can be at any moment (`load`).
`transaction()` is a transaction that changes memory and tables together; rows that it changes are applied to memory
before it commits.

There are two ledgers: who holds what of the links as they are now, and who would if all of them were healthy and in
use. A floor has to fit in both, so that no repair ever breaks a promise, and a protection lost to a failure is restored
when the failure is repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from sqlalchemy.orm import Session

from matrixcommon.model.errors import InsufficientBandwidth
from matrixcommon.model.planes import Plane
from matrixcommon.persistence.database_session import ResourceRow
from matrixcommon.persistence.derived_state import DerivedState
from matrixlink.admission.admission import BandwidthRequest, admit, grantable, reallocate
from matrixlink.admission.bandwidth_ledger import BandwidthLedger, Booking
from matrixlink.admission.node_shares import SubPlaneSums, node_ports
from matrixlink.admission.slice_index import SliceIndex, SliceState, slice_state_of
from matrixlink.fabric.condition.elements import merge_ports, remaining_ports
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.fabric.condition.planes import PlaneModel, plane_models
from matrixlink.model.slice_states import WITHDRAWN
from matrixlink.routing.routes import Routes
from matrixlink.routing.routing import choose_needs, choose_routes
from matrixlink.store.store import LinkStore
from matrixlink.store.tables import DrainRow, LinkRow, PeeringRow, SliceRow
from matrixresource.topology import Supernode

ImpairedPorts = dict[str, dict[str, float]]


class AdmissionState:
    """What is promised on each link, and each link's capacity."""

    def __init__(self, store: LinkStore, fabric: Fabric) -> None:
        self._store = store
        self.fabric = fabric
        self.undamaged_fabric = fabric.as_built()
        self.ledger = BandwidthLedger(fabric, fabric.usable_rates)
        self.healthy_ledger = BandwidthLedger(
            fabric, lambda plane, owner: self.undamaged_fabric.usable_rates(plane, owner)
        )
        self.slices = SliceIndex()
        self.planes: dict[Plane, PlaneModel] = plane_models(fabric.spec)
        self.unsettled: set[str] = set()
        """Slices whose rows do not yet reflect what memory computed when it was loaded."""
        self.peered_members: dict[str, tuple[str, ...]] = {}
        """By slice, the members of slices that it is peered with."""
        self.peering_keys: dict[str, set[int]] = {}
        self.on_load: list[Callable[[Session], None]] = []
        """Called whenever memory is loaded from the tables, for others that cache them."""
        self.fenced = True
        """Whether some node may still hold an ended slice and its key."""
        store.records.before_commit.append(self._apply_changes)
        self._derived_state = DerivedState(store.records, self._read, (SliceRow, LinkRow, DrainRow, PeeringRow))
        self.load()

    # -- memory and tables ------------------------------------------------------------------------------------------

    def transaction(self, dry: bool = False) -> AbstractContextManager[Session]:
        """A transaction after which memory and tables agree, whatever happens in it."""
        return self._derived_state.transaction(dry)

    def mark_stale(self) -> None:
        """Declare that this transaction changes memory: it is loaded again if the transaction is rolled back."""
        self._derived_state.invalidate()

    def load(self) -> None:
        """Load the fabric's condition and the floors from the tables."""
        self._derived_state.reload()

    def update_slice(self, row: SliceRow) -> None:
        """Apply a changed row to memory."""
        self.mark_stale()
        self.slices.put(slice_state_of(row))

    def apply_topology(self, supernode: Supernode) -> bool:
        """Apply a supernode's graph to floors, routes, shares and drains. Return True if it changed."""
        if not self.fabric.set_topology(supernode):
            return False
        self.undamaged_fabric = self.fabric.as_built()
        with self._store.transaction() as session:
            for drain in self._store.active_drains(session):
                ports = remaining_ports(self.fabric, drain.elements)
                now = {owner: sorted(names) for owner, names in sorted(ports.items())}
                if drain.ports != now:
                    drain.ports = now
        self.load()
        return True

    def _apply_changes(self, session: Session, rows: Sequence[ResourceRow], newest: int) -> None:
        for row in rows:
            if isinstance(row, SliceRow) and row.state != WITHDRAWN:
                self.slices.put(slice_state_of(row))

    def _read(self, session: Session) -> None:
        for supernode in self._store.supernodes(session):
            self.fabric.ensure_supernode(supernode)
        below: dict[str, dict[str, float]] = {node: {} for node in self.fabric.nodes()}
        for link in self._store.links(session):
            below.setdefault(link.node, {})[link.port] = link.gbps
        for node, ports in below.items():
            self.fabric.set_ports(node, ports)
        self.fabric.set_drained(merge_ports(drain.ports for drain in self._store.active_drains(session)))
        self.slices.clear()
        for owner in self.ledger.names() | self.healthy_ledger.names():
            self.ledger.release(owner)
            self.healthy_ledger.release(owner)
        for row in self._store.slices(session):
            terms = slice_state_of(row)
            self.slices.put(terms)
            self.healthy_ledger.put(terms.name, self.claim(terms, self.undamaged_fabric).booking())
        self.fenced = self._store.fenced(session)
        staying = [terms for terms in self.slices if not terms.withdrawing]
        if len(staying) < len(self.healthy_ledger.names()):
            self._book_withdrawing()
        found = reallocate(self.ledger, [self.claim(terms) for terms in staying], self.healthy_ledger)
        self.unsettled = set()
        for terms in staying:
            kept = found[terms.name]
            if (kept.part, kept.unprotected) != (terms.kept, terms.unprotected):
                self.slices.put(replace(terms, kept=kept.part, unprotected=kept.unprotected))
                self.unsettled.add(terms.name)
        for load in self.on_load:
            load(session)

    def _book_withdrawing(self) -> None:
        """Let slices that are being withdrawn keep what they had, less what was lost since: loading must not give
        anything back to them."""
        for terms in self.slices:
            booking = self.healthy_ledger.booking(terms.name)
            if booking is not None:
                self.ledger.put(terms.name, booking)
        for name, left in self._trimmed_bookings():
            self.ledger.put(name, left)

    # -- floors -----------------------------------------------------------------------------------------------------

    def routes(self, row: SliceRow) -> Routes:
        return choose_routes(self.fabric, Plane(row.plane), row.members)

    def claim(self, terms: SliceState, fabric: Fabric | None = None) -> BandwidthRequest:
        """What a slice requests of a fabric, by default of this one in its present condition."""
        needs = choose_needs(fabric or self.fabric, terms.plane, terms.members, terms.protection)
        return BandwidthRequest(terms.name, terms.plane, needs, terms.floor_gbps, terms.protection, terms.rank)

    def book(self, request: SliceState, current: SliceState | None, dry: bool) -> SliceState:
        """Book the spec's floor in place of what the slice held; return the spec with how much of it is kept. Raises
        InsufficientBandwidth.

        A slice whose floor does not rise may change its members while links are down: what the loss takes from it is
        shown, not refused.
        """
        claim = self.claim(request)
        broken = self.impaired_ports(request.plane, request.members)
        claim_when_whole = self.claim(request, self.undamaged_fabric) if broken else claim
        kept, unprotected, booking = 1.0, "", None
        try:
            booking = admit(self.ledger, claim)
        except InsufficientBandwidth:
            if (
                current is None
                or request.floor_gbps > current.floor_gbps
                or request.protection not in ("none", current.protection)
            ):
                raise
        when_whole = admit(self.healthy_ledger, claim_when_whole)
        if not dry:
            self.mark_stale()
            self.healthy_ledger.put(request.name, when_whole)
        if booking is not None:
            if not dry:
                self.ledger.put(request.name, booking)
        elif not dry:
            found = reallocate(self.ledger, [claim], self.healthy_ledger)[request.name]
            kept, unprotected = found.part, found.unprotected
        return replace(request, kept=kept, unprotected=unprotected)

    def release(self, name: str) -> None:
        self.mark_stale()
        self.ledger.release(name)
        self.healthy_ledger.release(name)
        self.slices.drop(name)

    def reallocate(self, rows: list[SliceRow]) -> None:
        """Keep as much of each floor as possible, better classes first, and protect what can be protected."""
        self.mark_stale()
        kept = reallocate(self.ledger, [self.claim(self.slices[row.name]) for row in rows], self.healthy_ledger)
        for row in rows:
            row.kept, row.unprotected = kept[row.name].part, kept[row.name].unprotected
            self.update_slice(row)

    def trim_withdrawing(self) -> None:
        """Reduce what slices being withdrawn have booked to what links still have: their routes no longer change, and
        nothing is given back to them."""
        for name, left in self._trimmed_bookings():
            self.mark_stale()
            self.ledger.put(name, left)

    def _trimmed_bookings(self) -> Iterator[tuple[str, Booking]]:
        """What slices being withdrawn may keep, for those that have more booked than there is."""
        for terms in self.slices:
            booking = self.ledger.booking(terms.name) if terms.withdrawing else None
            if booking is not None and self.ledger.overcommitted_ports(terms.plane, booking.whole, terms.name):
                granted, _ = grantable(self.ledger, terms.plane, booking.floors, terms.name)
                yield terms.name, Booking(terms.plane, granted, granted)

    def degraded_slices(self, plane: Plane) -> list[str]:
        """Slices of a plane that have less than they were promised."""
        return [name for name in sorted(self.slices.degraded) if self.slices[name].plane == plane]

    # -- the fabric as a slice meets it -------------------------------------------------------------------------------

    def impaired_ports(self, plane: Plane, members: Iterable[str], fabric: Fabric | None = None) -> ImpairedPorts:
        """The ports on this plane that routes among these members must avoid or use less: the members' own and, on
        RDMA, those of their leaves."""
        fabric = fabric or self.fabric
        found: ImpairedPorts = {}
        for owner in self.owners(plane, members):
            lacking = fabric.unavailable_ports(owner)
            ports = {port: gbps for port, gbps in lacking.items() if fabric.ports.plane_of[port] == plane}
            if ports:
                found[owner] = ports
        return found

    def impaired_ports_of(self, terms: SliceState, fabric: Fabric | None = None) -> ImpairedPorts:
        """The same for everything that a slice's routes lead to: its members and its peers."""
        return self.impaired_ports(terms.plane, self.reached(terms), fabric)

    def reached(self, terms: SliceState) -> list[str]:
        return list(dict.fromkeys([*terms.members, *self.peered_members.get(terms.name, ())]))

    def used_keys(self, isolation: str) -> set[int]:
        """Keys held by slices and peerings."""
        return {*self.slices.keys(isolation), *self.peering_keys.get(isolation, ())}

    def owners(self, plane: Plane, members: Iterable[str]) -> list[str]:
        """The owners of ports that routes among these members may use: the members and, on RDMA, their leaves."""
        nodes = list(members)
        if plane != Plane.RDMA:
            return nodes
        return nodes + list(dict.fromkeys(leaf for node in nodes for leaf in self.fabric.leaves_at(node)))

    def npus(self, terms: SliceState) -> int:
        return len(terms.members) * self.fabric.spec.node.npus

    def stale_routes(self) -> list[str]:
        """Slices whose routes were made for another condition of ports than the present one."""
        return [
            terms.name for terms in self.slices if not terms.withdrawing and self.impaired_ports_of(terms) != terms.seen
        ]

    def count_avoided_ports(self, row: SliceRow) -> tuple[int, int]:
        """How many of its members' ports a slice's routes avoid: those that are broken or held down after flapping, and
        those that are drained or not drawn."""
        seen = row.ports_seen or {}
        owners = [each for each in self.owners(Plane(row.plane), row.members) if each in seen] if seen else []
        broken = sum(len(seen[each].keys() & self.fabric.degraded_ports(each).keys()) for each in owners)
        return broken, sum(len(seen[each]) for each in owners) - broken

    def publish_shares(
        self, session: Session, plane: Plane, nodes: Iterable[str], known: SliceRow | None = None
    ) -> None:
        """Work out again what every slice on these nodes may use there; a changed view gets the next generation. Reads
        only the rows concerned, except one that is given."""
        news: dict[str, dict[str, object]] = {}
        sums = SubPlaneSums(self.fabric, plane)
        for node in dict.fromkeys(nodes):
            here = self.slices.on(plane, node)
            found = node_ports(node, here, self.fabric, self.ledger, sums) if here else []
            for terms, ports in zip(here, found, strict=True):
                if ports != terms.view.get(node):
                    news.setdefault(terms.name, {})[node] = ports
        if known is not None and not set(self.slices[known.name].view) <= set(known.members):
            news.setdefault(known.name, {})  # some member has left, which changes nobody else's part
        at_hand = [known] if known is not None and known.name in news else []
        others = self._store.slices_named(session, news.keys() - {row.name for row in at_hand})
        for row in [*at_hand, *others]:
            terms = self.slices[row.name]
            view = {**terms.view, **news[row.name]}
            shown = {node: view[node] for node in sorted(row.members)}
            row.fabric_view = {"nodes": shown, "latencyUs": self.planes[plane].latency_us}
            row.view_generation = (row.view_generation or 0) + 1
            self.mark_stale()
            self.slices.put(replace(terms, view=shown))
