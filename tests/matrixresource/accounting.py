"""What must be true of MatrixResource's tables at any moment, counted from the tables alone.

`account` raises AssertionError with what is wrong; `contents` is all that the tables say, to be compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import astuple
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from benchmarks.allocator.ledger_verbs import rebuild_index
from matrixcommon.persistence.database_session import Database
from matrixcommon.persistence.table_cache import mapping_of
from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.allocations.quotas import QUOTA_RESOURCES, QuotaRow
from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.request import Placement
from matrixresource.store.allocation_tables import AllocationRow, AssignmentRow
from matrixresource.store.reservations import ReservationRow, active_reservations
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import Base, NodeRow, PartitionRow

DIES, SOCKETS, GIB = 16, 4, 2048
"""Of a node of the built-in supernode."""

ALL_DIES = (1 << DIES) - 1


def table_contents(session: Session) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table."""
    tables = Base.metadata.sorted_tables
    return {table.name: sorted(map(repr, session.execute(select(table)))) for table in tables}


class Accounting:
    """The tables as they are at one moment."""

    def __init__(self, session: Session) -> None:
        self.nodes = {row.name: row for row in session.scalars(select(NodeRow))}
        self.specs = {row.name: row for row in session.scalars(select(AssignmentRow))}
        self.parts = list(session.scalars(select(PartitionRow)))
        self.allocations = {row.name: row for row in session.scalars(select(AllocationRow))}
        self.promised = [row for row in active_reservations(session) if row.promised]
        self.promises = [row for row in self.promised if row.state == "Promised"]
        self.whole: dict[str, list[NodeRow]] = defaultdict(list)
        for node in self.nodes.values():
            if node.holder is not None:
                self.whole[node.holder].append(node)
        self.shares: dict[str, list[PartitionRow]] = defaultdict(list)
        for part in self.parts:
            self.shares[part.allocation].append(part)

    def check(self) -> None:
        self.check_no_double_allocation()
        for name in self.whole.keys() | self.shares.keys():
            assert name in self.allocations, f"{name} holds something and is not there"
        for row in self.allocations.values():
            self.check_request_fulfilled(row)
        self.check_assignments()
        self.check_reservations()

    def check_allocations(self) -> tuple[dict[str, int], Counter[str], Counter[str]]:
        """By node: dies, sockets, GiB."""
        dies = {name: ALL_DIES if node.holder else 0 for name, node in self.nodes.items()}
        sockets: Counter[str] = Counter()
        gib: Counter[str] = Counter()
        for part in self.parts:
            assert not dies[part.node] & part.dies, f"a die of {part.node} is held twice"
            dies[part.node] |= part.dies
            sockets[part.node] += part.cpus
            gib[part.node] += part.memory_gib
        return dies, sockets, gib

    def check_no_double_allocation(self) -> None:
        dies, sockets, gib = self.check_allocations()
        for name, node in self.nodes.items():
            assert dies[name] <= ALL_DIES
            assert sockets[name] <= SOCKETS, f"{sockets[name]} sockets of {name}"
            assert gib[name] <= GIB, f"{gib[name]} GiB of {name}"
            assert node.shared_by == sum(part.node == name for part in self.parts), name
            assert (node.holder is None) == (node.role is None), name

    def check_request_fulfilled(self, row: AllocationRow) -> None:
        if row.state == "Releasing":
            return
        request, name = row.spec(), row.name
        shares = [part for part in self.shares[name] if not part.releasing]
        roles = Counter(node.role for node in self.whole[name])
        sizes = [DIES] * roles["member"] + [part.dies.bit_count() for part in shares if part.dies]
        assert len(sizes) == row.nodes, f"{name}: {row.nodes} members asked, {sizes} held"
        assert sum(sizes) == 2 * row.npus, f"{name}: {row.npus} NPUs asked, {sizes} held"
        assert roles["spare"] <= row.spares, f"{name}: {row.spares} spares asked, {roles} held"
        assert sum(part.cpus for part in shares) == request.cpus, f"{name}: sockets"
        assert sum(part.memory_gib for part in shares) == request.memory_gib, f"{name}: GiB"
        ranks = sorted(node.rank for node in self.whole[name] if node.role == "member")
        ranks += sorted(part.rank for part in shares if part.dies)
        assert ranks == list(range(row.nodes)), f"{name}: ranks {ranks}"
        follow = [node.rank for node in self.whole[name] if node.role == "successor"]
        assert len(set(follow)) == len(follow), f"{name}: two follow one"
        assert not follow or row.moving_to is not None, f"{name}: successors without a move"

    def check_assignments(self) -> None:
        asked: dict[str, set[str]] = {}
        for name, desired in self.specs.items():
            node = self.nodes[name]
            assert (desired.desired_role, desired.generation) == (node.desired_role, node.assignment_generation), name
            asked[name] = {part["allocation"] for part in desired.parts or []}
            if desired.desired_role != "Clean":
                assert desired.allocation == node.holder, (
                    f"{name} is requested {desired.allocation}, held by {node.holder}"
                )
                assert desired.rank == node.rank, name
            dies = ALL_DIES if desired.desired_role != "Clean" else 0
            for part in desired.parts or []:
                mine = sum(1 << die for die in part["dies"])
                assert not dies & mine, f"a die of {name} is requested twice"
                dies |= mine
            if node.holder is not None and self.allocations[node.holder].state != "Releasing":
                bound = self.allocations[node.holder].bound
                assert (desired.desired_role != "Clean") == bound, f"{name}: {desired.desired_role}, bound: {bound}"
        for part in self.parts:
            row = self.allocations[part.allocation]
            spec = row.bound and not part.releasing and row.state != "Releasing"
            assert (part.allocation in asked[part.node]) == spec, f"{part.allocation} on {part.node}"
            if spec:
                assert part.desired().wire() in self.specs[part.node].parts
        shared = {(part.node, part.allocation) for part in self.parts}
        for name, names in asked.items():
            assert {(name, each) for each in names} <= shared, f"{name} is asked for a part that nobody holds"

    def check_reservations(self) -> None:
        """Who holds any of a promised place says to leave by then, or is leaving."""
        for number, row in enumerate(self.promises):
            mine = dies_of(row)
            for other in self.promises[number + 1 :]:
                if other.starts_at < row.ends_at and row.starts_at < other.ends_at:
                    theirs = dies_of(other)
                    assert not any(mine[node] & theirs[node] for node in mine), f"{row.name} and {other.name}"
            for name, allocation in self.allocations.items():
                leaves = allocation.state == "Releasing" or (
                    allocation.expires_at is not None and allocation.expires_at <= row.starts_at
                )
                if leaves:
                    continue
                for node in self.whole[name]:
                    assert not mine[node.name], f"{name} stays on {node.name}, which {row.name} is promised"
                for part in self.shares[name]:
                    assert part.releasing or not mine[part.node] & part.dies, (
                        f"{name} stays on {row.name}'s {part.node}"
                    )

    def used(self) -> dict[str, Counter[str]]:
        """By project what it holds or is promised: NPUs, sockets, GiB. What is being let go does not count."""
        used: dict[str, Counter[str]] = defaultdict(Counter)
        for name, row in self.allocations.items():
            if row.state != "Releasing":
                mine = used[row.project]
                mine["npus"] += 8 * sum(node.role != "successor" for node in self.whole[name])
                for part in self.shares[name]:
                    if not part.releasing:
                        mine.update(npus=part.dies.bit_count() / 2, cpus=part.cpus, memory_gib=part.memory_gib)
        for promise in self.promised:
            mine = used[promise.project]
            mine["npus"] += sum(dies.bit_count() for dies in dies_of(promise).values()) / 2
            mine["cpus"] += sum(amount for _, amount in promise.place["cpus"])
            mine["memory_gib"] += sum(amount for _, amount in promise.place["mem"])
        return used


def dies_of(row: ReservationRow) -> Counter[str]:
    """By node the dies that a reservation is promised."""
    dies: Counter[str] = Counter({name: ALL_DIES for kind in ("whole", "spares") for name, _ in row.place[kind]})
    dies.update(dict(row.place["parts"]))
    return dies


def projects_above_quota(session: Session, used: dict[str, Counter[str]], before: dict[str, Counter[str]]) -> list[str]:
    """What projects have got above their limits since `before`; what they held already may stay."""
    found = []
    for row in session.scalars(select(QuotaRow)):
        for counted in QUOTA_RESOURCES:
            limit = row.limits.get({"memory_gib": "memoryGib"}.get(counted, counted))
            if limit is not None and used[row.name][counted] > max(limit, before[row.name][counted]):
                found.append(f"{row.name}: {used[row.name][counted]} {counted} of {limit}")
    return found


def check_ledger_matches_tables(session: Session, ledger_sync: LedgerSync, store: ResourceStore) -> None:
    """The ledger say what they would say had they been made anew."""
    ledger = ledger_sync.open(session)
    assert ledger.index.state() == rebuild_index(ledger).state()
    anew = LedgerSync(store)
    fresh = anew.open(session)
    store.records.before_commit.pop()
    store.records.after_transaction.pop()
    assert ledger_contents(ledger) == ledger_contents(fresh)
    assert ledger.tenants == fresh.tenants
    assert ledger_sync.preempted_by == anew.preempted_by
    dies, sockets, gib = Accounting(session).check_allocations()
    for number, name in enumerate(ledger_sync.names):
        if name is not None:
            index = ledger.index
            free = index.dies[number] | index.idle_faulty.get(number, 0)
            assert free == ALL_DIES & ~dies[name], (name, bin(free), bin(dies[name]))
            assert (index.cpus[number], index.mem[number]) == (SOCKETS - sockets[name], GIB - gib[name]), name


def check_cache_matches_tables(session: Session, records: Database) -> None:
    """What is kept in memory is what the tables say, where it is still thought to be."""
    if records._warm_cache is None or records._warm_cache[1] != records.latest():
        return
    kept = records._warm_cache[0]
    for kind in records._cached_tables:
        shape = mapping_of(kind)
        current = {shape.key(row): shape.values(row) for row in kept.all(kind)}
        there = {shape.key(row): shape.values(row) for row in session.scalars(select(kind))}
        assert current.keys() == there.keys(), kind
        for key, values in there.items():
            differ = {
                column: (current[key][column], value)
                for column, value in values.items()
                if current[key][column] != value
            }
            assert not differ, f"{kind.__name__} {key}: (kept, written) {differ}"
    for part in kept.all(PartitionRow):
        assert part in kept.where(PartitionRow, "node", [part.node])
    for node in kept.all(NodeRow):
        assert node in kept.where(NodeRow, "holder", [node.holder])


def ledger_contents(ledger: Ledger) -> dict[str, Any]:
    """All that a ledger knows, to be compared."""
    current = {
        name: (astuple(each.request), sorted_entries(each.place), each.since)
        for name, each in ledger.allocations.items()
    }
    promised = {
        name: (astuple(each.request), each.start, each.end, sorted_entries(each.place), each.holds)
        for name, each in ledger.reservations.items()
    }
    index = ledger.index
    amounts = {"cpus": index.cpus, "mem": index.mem, "up": index.up, "broken": index.faulty_dies}
    return {"held": current, "promised": promised, "index": index.state()} | amounts


def sorted_entries(place: Placement) -> list[list[tuple[int, int]]]:
    return [sorted(entries) for entries in astuple(place)]
