"""LedgerSync: keeps the ledger consistent with the database.

The tables are authoritative; the ledger holds the same state in a form that makes decisions fast. A deciding
transaction opens the ledger under the change log's lock. If anything was committed that the ledger has not seen (by
another replica, or because a transaction of this process was rolled back), the tables are read again. Commits of this
process are applied row by row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.persistence.database_session import ResourceRow
from matrixcommon.persistence.searches import SearchRequired, search
from matrixresource.allocations.cluster_index import cluster_shape, node_numbers
from matrixresource.allocations.request_mapping import NEVER, map_request
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.nodes.fault_rules import unusable_dies
from matrixresource.scheduler.changes import advance_reservation as ledger_reserving
from matrixresource.scheduler.changes import preemption
from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.best_fit import POLICIES
from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.free_capacity_index import EVEN
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.model.reservations import Reservation
from matrixresource.scheduler.model.state import HeldAllocation
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.reservations import (
    ReservationRow,
    active_reservations,
    placement_from_json,
    placement_to_json,
)
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow, PartitionRow, SupernodeRow
from matrixresource.store.topology_versions import supernodes

NEVER_SYNCED = -1
RELEASING_PRIORITY = 1 << 40
"""The priority of an allocation that is being released: it cannot be preempted."""

WIPED_PARTS_NAME = "{} (being wiped)"
"""The name under which the ledger holds parts that an allocation has given up, until its agents have wiped them."""


class LedgerSync:
    """One ledger over all supernodes."""

    def __init__(self, store: ResourceStore, policy: str = "best") -> None:
        """`policy`: how the ledger chooses among placements that fit, one of `POLICIES`."""
        self._store = store
        self._policy = POLICIES[policy]
        self._synced_change = NEVER_SYNCED
        """The newest change that the ledger includes."""
        self._visible_to: Session | None = None
        """The session that sees this state; None once it is committed and everybody sees it."""
        self._opened_by: object = None
        """The verb that opened the ledger last. Sessions outlive verbs, so a session does not identify one."""
        self._with_wiped_parts: set[str] = set()  # allocations with parts that are waiting to be wiped
        self.preempted_by: dict[str, list[str]] = {}
        """By allocation, those it has preempted that have not been granted capacity again."""
        self.ledger = Ledger(ClusterShape(1, 1, 1))
        self._npus_have_dies = True
        """Whether an NPU has more than one die and can be allocated in parts."""
        self.names: list[NodeName | None] = []
        self.numbers: dict[str, int] = {}
        store.records.before_commit.append(self._apply_changes)
        store.records.after_transaction.append(self._transaction_ended)

    def open(self, session: Session) -> Ledger:
        """The ledger with the present state of the tables, which is locked until this transaction ends."""
        newest: int = session.info.get("newest") or self._store.records.lock(session)
        if newest != self._synced_change or self._visible_to not in (None, session):
            self._rebuild(session)
            self._synced_change, self._visible_to = newest, session if "unit" in session.info else None
        self._opened_by = session.info.get("unit")
        return self.ledger

    def invalidate(self) -> None:
        """Call before the ledger is changed: unless the transaction commits, it is read again."""
        self._synced_change = NEVER_SYNCED

    def allocate(self, name: str, request: PlacementRequest, now: float) -> tuple[Placement | None, list[str]]:
        """Place a new allocation; return the placement and whom it preempts. A refusal changes nothing."""
        with self.invalidated_on_error():
            preempted = partial(self.victims, name, request, [], now)
            place, victims = self.ledger.allocate(name, request, now, preempted)
        if place is not None or victims:
            self.invalidate()
        return place, victims

    def resize(
        self, name: str, request: PlacementRequest, keep: list[int], now: float, warm: Sequence[int] = ()
    ) -> tuple[Placement | None, list[str]]:
        """Place an allocation in another size, using its `warm` spares before free nodes; return the placement and whom
        it preempts. A refusal changes nothing."""
        with self.invalidated_on_error():
            preempted = partial(self.victims, name, request, keep, now)
            place, victims = preemption.resize(self.ledger, name, request, keep, preempted, warm)
        if place is not None or victims:
            self.invalidate()
        return place, victims

    def victims(self, name: str, request: PlacementRequest, keep: list[int], now: float) -> list[str] | None:
        """Whom to preempt for a new allocation, or for an existing one that keeps nodes `keep`."""
        find = partial(preemption.victims, request=request, now=now)
        if name in self.ledger.allocations:
            find = partial(preemption.growth_victims, name=name, request=request, keep=keep, now=now)

        def is_current(found: list[str] | None) -> bool:
            return not found or preemption.are_sufficient(self.ledger, found, request, name, keep)

        return search("victims", find, self.ledger, is_current)

    @contextmanager
    def invalidated_on_error(self) -> Iterator[None]:
        """For code that leaves the ledger unchanged, even when it is interrupted to wait for a search."""
        synced_change, self._synced_change = self._synced_change, NEVER_SYNCED
        try:
            yield
        except SearchRequired:
            self._synced_change = synced_change
            raise
        self._synced_change = synced_change

    def refresh(self, session: Session, row: AllocationRow) -> None:
        """Update an allocation from its rows, in the middle of a transaction that changed them."""
        self.invalidate()
        kept = self.ledger.reservations.get(row.name)
        places = self._placements(session, row.name)
        for name in places:
            if name in self.ledger.allocations:
                self.ledger.release(name)
        self._put_allocation(row, places)
        if kept is not None:
            kept.place = places[row.name]
            self.ledger.reservations[row.name] = kept

    def preemptors(self, name: str) -> list[str]:
        """Existing allocations that preempted this one."""
        return [winner for winner, victims in self.preempted_by.items() if name in victims]

    def nodes_being_wiped(self, session: Session, name: str) -> frozenset[int]:
        """The nodes with parts that an allocation gave up and that wait to be wiped: until then it takes nothing
        there."""
        releasing = (self.numbers.get(part.node) for part in self._store.parts(session, name) if part.releasing)
        return frozenset(number for number in releasing if number is not None)

    # ---- names and numbers

    def number(self, name: NodeName) -> int | None:
        return self.numbers.get(name)

    def nodes(self, place: Placement) -> list[NodeName]:
        """The whole nodes of a placement, in order."""
        return self._node_names(place.whole)

    def spares(self, place: Placement) -> list[NodeName]:
        return self._node_names(place.spares)

    def _node_names(self, masks: Iterable[tuple[int, int]]) -> list[NodeName]:
        width, offsets = self.ledger.shape.nodes, self.ledger.index.offsets
        return [self.name(cabinet * width + offset) for cabinet, mask in sorted(masks) for offset in offsets(mask)]

    def name(self, number: int) -> NodeName:
        name = self.names[number]
        assert name is not None, f"node {number} is in no supernode"
        return name

    def parts(self, place: Placement) -> dict[NodeName, PartitionRow]:
        """Rows for the parts of nodes and for pooled sockets and memory, by node, without an owner; ranks follow node
        order."""
        found: dict[NodeName, PartitionRow] = {}
        for rank, (node, dies) in enumerate(sorted(place.parts)):
            found[self.name(node)] = PartitionRow(node=self.name(node), rank=rank, dies=dies, cpus=0, memory_gib=0)
        for field, amounts in (("cpus", place.cpus), ("memory_gib", place.mem)):
            for node, amount in amounts:
                row = found.setdefault(
                    self.name(node), PartitionRow(node=self.name(node), rank=None, dies=0, cpus=0, memory_gib=0)
                )
                setattr(row, field, amount)
        return found

    def placement_json(self, place: Placement) -> dict[str, list[list[Any]]]:
        """A placement by node names, for a table."""
        return placement_to_json(place, self.name, self.ledger.index.offsets, self.ledger.shape.nodes)

    def placement_request(self, request: AllocationRequest, now: float = 0.0) -> PlacementRequest:
        """Convert a request to the ledger's form. Raises InvalidField."""
        asked = map_request(request, self.ledger.shape, self.number, now)
        if asked.npus_per_node < 1 and not self._npus_have_dies:
            field = "npus" if request.npus_per_node is None else "npusPerNode"
            raise InvalidField(
                f"{asked.npus_per_node:g} NPUs cannot be allocated where an NPU is a single die: use 1 or more",
                field=field,
            )
        return asked

    # ---- in step

    def _rebuild(self, session: Session) -> None:
        """Rebuild everything from the tables."""
        rows = self._store.nodes(session)
        built = supernodes(session)
        shape = cluster_shape(built)
        self._npus_have_dies = any(each.spec.npu.dies > 1 for each in built.values())
        drawn = node_numbers(built, shape)
        old_chooser, old_shape = self.ledger.chooser, self.ledger.shape
        self.ledger = Ledger(shape, self._policy)
        if old_shape == shape:
            self.ledger.chooser.copy_statistics(old_chooser)
        self.names = [None] * shape.all_nodes
        self.numbers, self.preempted_by = {}, {}
        for row in rows:
            number = drawn.get(row.name)
            if number is not None:
                self.names[number], self.numbers[row.name] = row.node_name, number
        for number, name in enumerate(self.names):
            if name is None:
                self.ledger.set_up(number, False)
        current: dict[str, list[NodeRow]] = defaultdict(list)
        for row in rows:
            if row.holder is not None:
                current[row.holder].append(row)
        parts: dict[str, list[PartitionRow]] = defaultdict(list)
        for part in self._store.parts(session):
            parts[part.allocation].append(part)
        self._with_wiped_parts = {part.allocation for each in parts.values() for part in each if part.releasing}
        for allocation in self._store.allocations(session):
            owner = allocation.name
            self._put_allocation(allocation, self._split_wiped(owner, current[owner], parts[owner]))
        for row in rows:
            self._update_node(row)
        for reservation in active_reservations(session):
            self._put_reservation(reservation)

    def _put_allocation(self, row: AllocationRow, places: Mapping[str, Placement]) -> None:
        """Enter an allocation that holds these placements, or replace its entry."""
        self.preempted_by.pop(row.name, None)
        if row.preempts:
            self.preempted_by[row.name] = row.preempts
        for name, place in places.items():
            request = self.placement_request(row.spec()) if name == row.name else PlacementRequest(0)
            request.lease_end = NEVER if row.expires_at is None else row.expires_at
            if row.state == "Releasing" or name != row.name:
                request.priority = RELEASING_PRIORITY
            before = self.ledger.allocations.get(name)
            if before is not None:
                self.ledger.allocations[name] = HeldAllocation(request, place, before.since)
                continue
            # Taken without a check of eligibility: it keeps nodes that are closed to new work, too.
            self.ledger.add_usage(name, place, request.lease_end)
            self.ledger.allocations[name] = HeldAllocation(request, place, row.created_at or 0.0)

    def _placements(self, session: Session, name: str) -> dict[str, Placement]:
        return self._split_wiped(name, self._store.allocated_to(session, name), self._store.parts(session, name))

    def _split_wiped(self, name: str, nodes: Sequence[NodeRow], parts: Sequence[PartitionRow]) -> dict[str, Placement]:
        """What an allocation holds, and separately what waits to be wiped."""
        releasing = [part for part in parts if part.releasing]
        places = {name: self._placement_of(nodes, [part for part in parts if not part.releasing])}
        return places | ({WIPED_PARTS_NAME.format(name): self._placement_of([], releasing)} if releasing else {})

    def _put_reservation(self, row: ReservationRow) -> None:
        allocation = self.ledger.allocations.get(row.name)
        if allocation is None and row.state == "Active":
            return  # everything was taken or released; it is about to end
        place = (
            placement_from_json(row.place, self.numbers.get, self.ledger.shape.nodes)
            if allocation is None
            else allocation.place
        )
        request = self.placement_request(row.spec())
        request.lease_end = row.ends_at
        reservation = Reservation(request, row.starts_at, row.ends_at, place, holds=allocation is not None)
        ledger_reserving.add_reservation(self.ledger, row.name, reservation)

    def _placement_of(self, nodes: Iterable[NodeRow], parts: Iterable[PartitionRow]) -> Placement:
        width = self.ledger.shape.nodes
        whole: dict[int, int] = {}
        spares: dict[int, int] = {}
        for node in nodes:
            if node.name in self.numbers:
                cabinet, offset = divmod(self.numbers[node.name], width)
                masks = spares if node.role == "spare" else whole
                masks[cabinet] = masks.get(cabinet, 0) | 1 << offset
        place = Placement(sorted(whole.items()), spares=sorted(spares.items()))
        for part in sorted(parts, key=lambda each: each.node):
            number = self.numbers.get(part.node)
            if number is None:
                continue
            if part.dies:
                place.parts.append((number, part.dies))
            if part.cpus:
                place.cpus.append((number, part.cpus))
            if part.memory_gib:
                place.mem.append((number, part.memory_gib))
        return place

    def _update_node(self, row: NodeRow) -> None:
        """Update whether new work may use a node, and which of its dies."""
        number = self.numbers.get(row.name)
        if number is not None:
            present = (1 << 2 * row.npus) - 1
            unusable = unusable_dies(row)
            if not self._npus_have_dies:  # an NPU that is one die is unusable with it
                unusable |= (unusable & EVEN) << 1 | unusable >> 1 & EVEN
            self.ledger.index.set_faulty_dies(number, unusable | self.ledger.shape.dies & ~present)
            self.ledger.set_up(number, row.open)

    def _apply_changes(self, session: Session, rows: Sequence[ResourceRow], newest: int) -> None:
        """Apply what a verb of this process changed, before it is committed."""
        opened, self._opened_by = self._opened_by, None
        before, synced_change = (
            newest - len(rows),
            self._synced_change if self._visible_to in (None, session) else NEVER_SYNCED,
        )
        self._synced_change = NEVER_SYNCED
        if any(isinstance(row, (SupernodeRow, ReservationRow)) for row in rows):
            return
        if opened is not session.info["unit"] and synced_change != before:
            return
        changed = {row.name for row in rows if isinstance(row, AllocationRow)}
        if changed & self.ledger.reservations.keys():
            return
        changed |= {name for name in self._with_wiped_parts if name not in changed}
        found = {name: row for name in changed if (row := session.get(AllocationRow, name)) is not None}
        places = {name: self._placements(session, name) for name in found}
        for name in changed:
            self.preempted_by.pop(name, None)
            for each in (name, WIPED_PARTS_NAME.format(name)):
                allocation = self.ledger.allocations.get(each)
                if allocation is not None and allocation.place != places.get(name, {}).get(each):
                    self.ledger.release(each)
        for name, row in found.items():
            self._put_allocation(row, places[name])
            (self._with_wiped_parts.add if len(places[name]) > 1 else self._with_wiped_parts.discard)(name)
        self._with_wiped_parts &= found.keys()
        for node in rows:
            if isinstance(node, NodeRow):
                self._update_node(node)
        self._synced_change, self._visible_to = newest, session

    def _transaction_ended(self, committed: bool) -> None:
        """Confirm what was applied, or mark the ledger as outdated."""
        if self._visible_to is not None and not committed:
            self._synced_change = NEVER_SYNCED
        self._visible_to = None
