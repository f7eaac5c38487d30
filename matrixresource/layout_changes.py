"""carry_out: what an allocation holds, changed in the tables to the place that the ledger has chosen for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from sqlalchemy.orm import Session

from matrixresource.books import Books
from matrixresource.capacity.wishes import Place
from matrixresource.roster import Roster
from matrixresource.store import AllocationRow, PartRow, ResourceStore
from matrixresource.vocabulary.names import NodeName


def carry_out(
    session: Session, store: ResourceStore, roster: Roster, books: Books, held: AllocationRow, place: Place
) -> bool:
    """Take what is new, let go what is no longer there; who stays keeps its rank, unless lower ones left before it.
    True when anything changed.

    Newcomers take the lowest ranks that nobody has, in the order of their nodes, so that the ranks of a block lie
    together. Successors of a move are left alone.
    """
    rows = store.held_by(session, held.name)
    current = {node.node_name: node for node in rows if node.role != "successor"}
    coming = {node.node_name for node in rows} - set(current)
    members, spares = [name for name in books.nodes(place) if name not in coming], set(books.spares(place))
    changed = False
    for name, node in current.items():
        if name not in spares and name not in members:
            roster.let_go(session, node)
            changed = True
    ranked = {name: node.rank for name, node in current.items() if node.role == "member"}
    staying = {name for name in members if name in ranked and _within(ranked[name], len(members))}
    ranks = _free_ranks(ranked[name] for name in staying)
    for name in members:
        if name not in staying:
            roster.take(session, held, name, "member", next(ranks))
            changed = True
    for name in sorted(spares):
        if name not in current or current[name].role != "spare":
            roster.take(session, held, name, "spare", None)
            changed = True
    parts = {part.node: part for part in store.parts(session, held.name) if not part.going}
    changed |= _parts(session, store, roster, held, parts, books.parts(place))
    return changed


def _parts(
    session: Session,
    store: ResourceStore,
    roster: Roster,
    held: AllocationRow,
    current: Mapping[str, PartRow],
    wanted: Mapping[NodeName, PartRow],
) -> bool:
    changed = False
    for name, part in current.items():
        if name not in wanted:
            roster.drop(session, part)
            changed = True
    size = sum(bool(new.dies) for new in wanted.values())
    ranked = {name: part.rank for name, part in current.items() if part.dies and _within(part.rank, size)}
    ranks = _free_ranks(rank for name, rank in ranked.items() if name in wanted)
    for name, new in wanted.items():
        old = current.get(name)
        rank = None if not new.dies else ranked[name] if name in ranked else next(ranks)
        if old is None:
            new.rank = rank
            roster.share(session, held, new)
            changed = True
        elif (old.dies, old.cpus, old.memory_gib, old.rank) != (new.dies, new.cpus, new.memory_gib, rank):
            old.dies, old.cpus, old.memory_gib, old.rank = new.dies, new.cpus, new.memory_gib, rank
            if held.bound:
                roster.ask_part(session, store.node(session, name), old)
            changed = True
    return changed


def _within(rank: int | None, size: int) -> bool:
    return rank is not None and rank < size


def _free_ranks(taken: Iterable[int | None]) -> Iterator[int]:
    used = set(taken)
    return (rank for rank in count() if rank not in used)
