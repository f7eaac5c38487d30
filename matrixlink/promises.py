"""Promises: the floors of all slices and the fabric's present condition, in memory beside the tables.

Every decision needs them, so they are not read from the tables each time; they can be at any moment (`load`), which is
what happens at start and after a transaction that failed once memory had changed. `changing()` is the transaction in
which memory and tables move together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from sqlalchemy.orm import Session

from matrixlink.admission import FloorClaim, admit, grantable, regrant, scaled
from matrixlink.fabric.link import Fabric, plane_of_port
from matrixlink.fabric.planes import PlaneModel, plane_models
from matrixlink.fabric.reservations import Ledger
from matrixlink.routing import Routes, choose_routes
from matrixlink.store import LinkStore, SliceRow
from matrixlink.views import slice_view
from matrixresource.vocabulary.errors import InsufficientBandwidth
from matrixresource.vocabulary.planes import Plane


class Promises:
    """What is promised of which link, and what each link has."""

    def __init__(self, store: LinkStore, fabric: Fabric) -> None:
        self._store = store
        self.fabric = fabric
        self.ledger = Ledger(lambda link: fabric.capacity(str(link)))
        self.planes: dict[Plane, PlaneModel] = plane_models(fabric.spec)
        self._stale = False
        self.on_load: list[Callable[[Session], None]] = []
        """Called whenever memory is read back from the tables: for what others keep of them."""
        self.load()

    # -- memory and tables ------------------------------------------------------------------------------------------

    @contextmanager
    def changing(self, dry: bool = False) -> Iterator[Session]:
        """A transaction after which memory and tables agree, whatever happened in it."""
        self._stale = False
        try:
            with self._store.transaction(dry) as session:
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
        with self._store.reading() as session:
            below: dict[str, dict[str, float]] = {node: {} for node in self.fabric.nodes()}
            for link in self._store.links(session):
                below.setdefault(link.node, {})[link.port] = link.gbps
            for node, ports in below.items():
                self.fabric.set_ports(node, ports)
            rows = self._store.slices(session)
            held = {row.name for row in rows}
            for owner in self.ledger.all_owners() - set(held):
                self.ledger.release(owner)
            self.regrant(rows)
            for load in self.on_load:
                load(session)
        self._stale = False

    # -- floors -----------------------------------------------------------------------------------------------------

    def routes(self, row: SliceRow) -> Routes:
        return choose_routes(self.fabric, Plane(row.plane), row.members)

    def claim(self, row: SliceRow) -> FloorClaim:
        routes = self.routes(row)
        rank = row.rank if row.admitted_order is not None else (0, 0)
        return FloorClaim(row.name, row.plane, routes.need, row.floor_gbps, routes.cut, rank)

    def book(self, wish: SliceRow, held: SliceRow | None, dry: bool) -> float:
        """Book the wish's floor in place of what the slice held; the part that is kept. Raises InsufficientBandwidth.

        A slice that asks for no higher a floor than it was promised may change its members while links are down: what
        the loss takes of it is shown, not refused.
        """
        claim = self.claim(wish)
        try:
            booked, kept = admit(self.ledger, claim), 1.0
        except InsufficientBandwidth:
            if held is None or wish.floor_gbps > held.floor_gbps:
                raise
            wanted = scaled(claim.need, claim.floor_gbps)
            if not self._fits_when_whole(wish.name, wanted):
                raise
            booked, kept = grantable(self.ledger, wish.name, wanted)
            kept = 0.0 if claim.cut else kept
        if not dry:
            self.mark_stale()
            self.ledger.put(wish.name, booked)
        return kept

    def _fits_when_whole(self, name: str, wanted: dict[str, float]) -> bool:
        held = self.ledger.held(name)
        return all(
            float(self.ledger.booked(link) - held.get(link, 0)) + min(amount, self.built(link))
            <= self.built(link) + 1e-6
            for link, amount in wanted.items()
        )

    def built(self, link: str) -> float:
        """What a link carries when it is whole, by its name."""
        return self.fabric.built.get(link.partition(".")[2], self.fabric.spec.rdma.leaf_spine_gbps)

    def release(self, name: str) -> None:
        self.mark_stale()
        self.ledger.release(name)

    def regrant(self, rows: list[SliceRow]) -> None:
        """Keep as much of each floor as there is, the better class first."""
        self.mark_stale()
        kept = regrant(self.ledger, [self.claim(row) for row in rows])
        for row in rows:
            row.kept = kept[row.name]

    def below(self, row: SliceRow) -> dict[str, dict[str, float]]:
        """The members' ports on this plane that are below their rate."""
        found = {
            node: {port: gbps for port, gbps in self.fabric.below(node).items() if plane_of_port(port) == row.plane}
            for node in row.members
        }
        return {node: ports for node, ports in found.items() if ports}

    def show(self, session: Session, plane: str, nodes: Iterable[str]) -> None:
        """Work out anew what every slice on these nodes may use; a view that changed is one generation on."""
        here, rows = set(nodes), [row for row in self._store.slices(session) if row.plane == plane]
        for row in rows:
            if here & set(row.members):
                shown = slice_view(row, rows, self.fabric, self.ledger, self.planes[Plane(plane)])
                if shown != row.fabric_view:
                    row.fabric_view, row.view_generation = shown, (row.view_generation or 0) + 1
