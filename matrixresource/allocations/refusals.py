"""Why a wish does not fit, said so that somebody can do something about it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace as changed_to
from typing import Any

from matrixcommon.model.errors import InsufficientCapacity
from matrixresource.allocations.ledger_sync import Books
from matrixresource.scheduler.model.request import Wish
from matrixresource.store.tables import NodeRow

DOMAINS_TOLD = 64


def refusal(rows: Iterable[NodeRow], books: Books, wish: Wish) -> InsufficientCapacity:
    """The error: which constraint is in the way, and per cabinet what stands on its nodes."""
    return InsufficientCapacity(f"{asked(wish)} do not fit: {why(books, wish)}", blocking=blocking(rows))


def asked(wish: Wish) -> str:
    """What was asked, in words: "3 nodes and 1 spare", "2 NPUs", "4 CPU sockets and 512 GiB"."""
    told = []
    if wish.nodes and wish.per == 8:
        told.append(f"{wish.nodes} nodes")
    elif wish.nodes == 1:
        told.append("a die" if wish.per < 1 else f"{wish.per:g} NPUs on one node")
    elif wish.nodes:
        told.append(f"{wish.nodes} nodes with {wish.per:g} NPUs each")
    if wish.spares:
        told.append(f"{wish.spares} spares" if wish.nodes or wish.spares > 1 else "a spare")
    if wish.cpus:
        told.append(f"{wish.cpus} CPU sockets")
    if wish.mem:
        told.append(f"{wish.mem} GiB")
    return " and ".join(told) or "nothing"


def why(books: Books, wish: Wish) -> str:
    """The constraint in the way: the first without which it would fit, else how much there is."""
    ledger = books.ledger
    for rule, without in _looser(wish):
        if ledger.choose(without) is not None:
            return _RULES[rule](books, wish)
    index = ledger.index
    if wish.cpus and sum(n for n, up in zip(index.cpus, index.up, strict=True) if up) < wish.cpus:
        free = sum(n for n, up in zip(index.cpus, index.up, strict=True) if up)
        return f"{free} CPU sockets are free"
    if wish.mem and sum(n for n, up in zip(index.mem, index.up, strict=True) if up) < wish.mem:
        free = sum(n for n, up in zip(index.mem, index.up, strict=True) if up)
        return f"{free} GiB are free"
    if wish.per == ledger.shape.npus:
        return f"the most one supernode has free is {index.most_left()} nodes"
    having = sum(free >= wish.per for free in index.free)
    most = max((free for free in index.free if free > 0), default=0)
    if wish.nodes > 1:
        return f"{having} nodes have {wish.per:g} NPUs free"
    return f"the most one node has free is {most} NPUs"


def _looser(wish: Wish) -> Iterable[tuple[str, Wish]]:
    """The wish without one of its rules at a time."""
    if wish.within == "cabinet":
        yield "cabinet", changed_to(wish, within="supernode")
    if wish.spread is not None:
        yield "spread", changed_to(wish, spread=None)
    if wish.near is not None:
        yield "near", changed_to(wish, near=None)
    if wish.apart is not None:
        yield "apart", changed_to(wish, apart=None)
    if wish.cell > 1:
        yield "cell", changed_to(wish, cell=1)
    if wish.block > 1:
        yield "block", changed_to(wish, block=1)
    if wish.avoid:
        yield "avoid", changed_to(wish, avoid=frozenset())
    if wish.spares:
        yield "spares", changed_to(wish, spares=0)
    if wish.within == "supernode":
        yield "supernode", changed_to(wish, within="")


def _cabinet(books: Books, wish: Wish) -> str:
    largest = max((mask.bit_count() for mask in books.ledger.index.whole), default=0)
    if wish.per < books.ledger.shape.npus:
        return f"no single cabinet has {wish.nodes} nodes with {wish.per:g} free NPUs; make the placement preferred"
    return (
        f"no single cabinet has {wish.nodes + wish.spares} free nodes (the largest has {largest}); "
        "make the placement preferred"
    )


def _spread(books: Books, wish: Wish) -> str:
    assert wish.spread is not None
    free = sum(books.ledger.index.left)
    return (
        f"they cannot be spread with at most {wish.spread.most} in a {wish.spread.over} ({free} nodes are free); "
        "make the placement preferred"
    )


def _near(books: Books, wish: Wish) -> str:
    assert wish.near is not None
    return f"there is no room for them in a {wish.near.over} that {' and '.join(wish.near.others)} use (near)"


def _apart(books: Books, wish: Wish) -> str:
    assert wish.apart is not None
    return f"there is no room for them in a {wish.apart.over} without {' or '.join(wish.apart.others)} (apart)"


def _supernode(books: Books, wish: Wish) -> str:
    if wish.per == books.ledger.shape.npus:
        return f"the most one supernode has free is {books.ledger.index.most_left()} nodes"
    return "no single supernode has room for all of them"


_RULES: dict[str, Any] = {
    "cabinet": _cabinet,
    "spread": _spread,
    "near": _near,
    "apart": _apart,
    "cell": lambda books, wish: f"no supernode has them in blocks of {wish.cell} in a cabinet",
    "block": lambda books, wish: f"they cannot be cut into blocks of {wish.block} that lie in one supernode each",
    "avoid": lambda books, wish: "they would only fit on nodes that excludeNodes rules out",
    "spares": lambda books, wish: f"the members fit, {wish.spares} spares beside them do not",
    "supernode": _supernode,
}


def blocking(rows: Iterable[NodeRow]) -> list[dict[str, Any]]:
    """Per cabinet: its nodes, those entirely free, and what stands in the way on the others. The freest are told."""
    cabinets: dict[str, list[NodeRow]] = defaultdict(list)
    for row in rows:
        cabinets[row.node_name.cabinet].append(row)
    told = [
        {
            "domain": cabinet,
            "nodes": len(nodes),
            "free": sum(node.obstacle() is None for node in nodes),
            "obstacles": dict(sorted(Counter(node.obstacle() for node in nodes if node.obstacle()).items())),
        }
        for cabinet, nodes in sorted(cabinets.items())
    ]
    if len(told) > DOMAINS_TOLD:
        told = sorted(told, key=lambda each: -int(str(each["free"])))[:DOMAINS_TOLD]
    return told
