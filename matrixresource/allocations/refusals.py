"""Why a wish does not fit, said so that somebody can do something about it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace as changed_to
from typing import Any

from matrixcommon.model.errors import InsufficientCapacity
from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.scheduler.model.request import PlacementRequest
from matrixresource.store.tables import NodeRow

DOMAINS_SHOWN = 64


def refusal(rows: Iterable[NodeRow], books: LedgerSync, wish: PlacementRequest) -> InsufficientCapacity:
    """The error: which constraint is in the way, and per cabinet what stands on its nodes."""
    return InsufficientCapacity(
        f"{describe_request(wish)} do not fit: {blocking_domains(books, wish)}", blocking=blocking(rows)
    )


def describe_request(wish: PlacementRequest) -> str:
    """What was asked, in words: "3 nodes and 1 spare", "2 NPUs", "4 CPU sockets and 512 GiB"."""
    told = []
    if wish.nodes and wish.npus_per_node == 8:
        told.append(f"{wish.nodes} nodes")
    elif wish.nodes == 1:
        told.append("a die" if wish.npus_per_node < 1 else f"{wish.npus_per_node:g} NPUs on one node")
    elif wish.nodes:
        told.append(f"{wish.nodes} nodes with {wish.npus_per_node:g} NPUs each")
    if wish.spares:
        told.append(f"{wish.spares} spares" if wish.nodes or wish.spares > 1 else "a spare")
    if wish.cpus:
        told.append(f"{wish.cpus} CPU sockets")
    if wish.mem:
        told.append(f"{wish.mem} GiB")
    return " and ".join(told) or "nothing"


def blocking_domains(books: LedgerSync, wish: PlacementRequest) -> str:
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
    if wish.npus_per_node == ledger.shape.npus:
        return f"the most one supernode has free is {index.most_left()} nodes"
    having = sum(free >= wish.npus_per_node for free in index.free)
    most = max((free for free in index.free if free > 0), default=0)
    if wish.nodes > 1:
        return f"{having} nodes have {wish.npus_per_node:g} NPUs free"
    return f"the most one node has free is {most} NPUs"


def _looser(wish: PlacementRequest) -> Iterable[tuple[str, PlacementRequest]]:
    """The wish without one of its rules at a time."""
    if wish.required_domain == "cabinet":
        yield "cabinet", changed_to(wish, required_domain="supernode")
    if wish.spread is not None:
        yield "spread", changed_to(wish, spread=None)
    if wish.affinity is not None:
        yield "affinity", changed_to(wish, affinity=None)
    if wish.anti_affinity is not None:
        yield "anti_affinity", changed_to(wish, anti_affinity=None)
    if wish.cabinet_block > 1:
        yield "cell", changed_to(wish, cabinet_block=1)
    if wish.supernode_block > 1:
        yield "block", changed_to(wish, supernode_block=1)
    if wish.excluded_nodes:
        yield "avoid", changed_to(wish, excluded_nodes=frozenset())
    if wish.spares:
        yield "spares", changed_to(wish, spares=0)
    if wish.required_domain == "supernode":
        yield "supernode", changed_to(wish, required_domain="")


def _cabinet(books: LedgerSync, wish: PlacementRequest) -> str:
    largest = max((mask.bit_count() for mask in books.ledger.index.whole), default=0)
    if wish.npus_per_node < books.ledger.shape.npus:
        return f"no single cabinet has {wish.nodes} nodes with {wish.npus_per_node:g} free NPUs; make the placement preferred"
    return (
        f"no single cabinet has {wish.nodes + wish.spares} free nodes (the largest has {largest}); "
        "make the placement preferred"
    )


def _spread(books: LedgerSync, wish: PlacementRequest) -> str:
    assert wish.spread is not None
    free = sum(books.ledger.index.left)
    return (
        f"they cannot be spread with at most {wish.spread.most} in a {wish.spread.over} ({free} nodes are free); "
        "make the placement preferred"
    )


def _near(books: LedgerSync, wish: PlacementRequest) -> str:
    assert wish.affinity is not None
    return f"there is no room for them in a {wish.affinity.over} that {' and '.join(wish.affinity.others)} use (near)"


def _apart(books: LedgerSync, wish: PlacementRequest) -> str:
    assert wish.anti_affinity is not None
    return f"there is no room for them in a {wish.anti_affinity.over} without {' or '.join(wish.anti_affinity.others)} (apart)"


def _supernode(books: LedgerSync, wish: PlacementRequest) -> str:
    if wish.npus_per_node == books.ledger.shape.npus:
        return f"the most one supernode has free is {books.ledger.index.most_left()} nodes"
    return "no single supernode has room for all of them"


_RULES: dict[str, Any] = {
    "cabinet": _cabinet,
    "spread": _spread,
    "affinity": _near,
    "anti_affinity": _apart,
    "cell": lambda books, wish: f"no supernode has them in blocks of {wish.cabinet_block} in a cabinet",
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
    if len(told) > DOMAINS_SHOWN:
        told = sorted(told, key=lambda each: -int(str(each["free"])))[:DOMAINS_SHOWN]
    return told
