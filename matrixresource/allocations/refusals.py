"""Refusals: why a spec does not fit, told so that the caller can do something about it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable
from dataclasses import replace as changed_to
from math import inf
from typing import Any

from matrixcommon.model.errors import ExceedsDomain, InsufficientCapacity
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.quantities import pluralized
from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.allocations.reservation_conflicts import conflicting_reservations, promised_nodes
from matrixresource.contract.nodes import MAINTENANCE_PREFIX
from matrixresource.nodes.states import AVAILABLE, PREPARATION_STATES
from matrixresource.scheduler.changes.advance_reservation import departures
from matrixresource.scheduler.model.request import PlacementRequest
from matrixresource.scheduler.placement.named_memory import memory_shortages
from matrixresource.store.tables import NodeRow

DOMAINS_SHOWN = 64


def refusal(
    rows: Iterable[NodeRow],
    ledger: LedgerSync,
    request: PlacementRequest,
    name: str = "",
    reserved_from: float = -inf,
) -> InsufficientCapacity:
    """The error to raise: the constraint that is in the way and, per cabinet, what blocks its nodes; for memory of
    named nodes, each node that is short. `name` is the requesting allocation, if it holds something already;
    `reserved_from` the start of a reservation."""
    rows = list(rows)
    if request.mem_by_node:
        return _memory_refusal(ledger, request, name)
    start = does_not_fit(request, ledger.ledger.shape.npus)
    shown = blocking_cabinets(rows, promised_nodes(ledger, request, reserved_from))
    if rows and (limit := exceeded_domain(ledger, request)):
        several = "allow several: `placement.level: supernode` without `required`"
        instead = "make the placement preferred" if request.required_domain == "cabinet" else several
        return ExceedsDomain(f"{start}: {limit}; {instead}", field="placement.level", blocking=shown)
    if name and ledger.ledger.choose(request) is not None:  # its constraints apply to old and new members together
        why = "there is room, but its placement or reservations prevent adding it to what it holds; "
        why += "PUT .../move can move the whole allocation"
    else:
        why = blocking_constraint(ledger, request, reserved_from)
    text = f"{start}: {why}{_preparation_note(rows)}{_maintenance_note(rows)}"
    return InsufficientCapacity(text, blocking=shown)


def blocking_constraint(ledger: LedgerSync, request: PlacementRequest, reserved_from: float = -inf) -> str:
    """The constraint, as the end of a sentence: a domain that is too small, reservations, or the first constraint
    without which it would fit."""
    found = exceeded_domain(ledger, request) or conflicting_reservations(ledger, request, reserved_from)
    if not found:
        with departures(ledger.ledger) as gone:
            gone.advance_to(reserved_from)
            found = violated_constraint(ledger, request)
    return found


def exceeded_domain(ledger: LedgerSync, request: PlacementRequest) -> str:
    """The size of the required domain, as the end of a sentence, if that is too small for the request even when
    free."""
    shape, domain = ledger.ledger.shape, request.required_domain
    if not domain or request.npus_per_node < shape.npus:
        return ""
    most, requested = shape.size_of(domain), request.nodes + request.spares
    if requested <= most:
        return ""
    return f"a {domain} has {pluralized(most, 'node')}, but {requested} are required in one"


def _memory_refusal(ledger: LedgerSync, request: PlacementRequest, name: str) -> InsufficientCapacity:
    current = ledger.ledger.allocations.get(name)
    short = memory_shortages(ledger.ledger.index, request, None if current is None else current.place)
    if not short:
        return InsufficientCapacity("memory of these nodes is promised to a reservation", field="memoryGibByNode")
    blocking = [
        {"domain": ledger.name(node), "needsGib": requested, "hasGib": available}
        for node, (requested, available) in short.items()
    ]
    first, (requested, available) = next(iter(short.items()))
    more = f", and {len(short) - 1} more nodes are short" if len(short) > 1 else ""
    closed = "" if ledger.ledger.index.up[first] else " (it is closed to new work)"
    return InsufficientCapacity(
        f"{ledger.name(first)} has {available} GiB of memory to give, but {requested} GiB are requested{closed}{more}",
        field=f"memoryGibByNode.{ledger.name(first)}",
        blocking=blocking[:DOMAINS_SHOWN],
    )


def describe_obstacle(node: NodeRow) -> str | None:
    """What blocks a node, as shown to whoever requests nodes: for a node under maintenance, which maintenance."""
    why = node.obstacle()
    owners = [owner for owner in node.cordoned_by or () if owner.startswith(MAINTENANCE_PREFIX)]
    if why in (None, "Held", "PartlyHeld") or not owners:
        return why
    return f"maintenance {owners[0].removeprefix(MAINTENANCE_PREFIX)}"


def _preparation_note(rows: Iterable[NodeRow]) -> str:
    """How many nodes will be Available by themselves, as the end of a sentence."""
    wanted = (row for row in rows if row.desired_state in (None, AVAILABLE) and row.fault() is None)
    found = Counter(row.state for row in wanted if row.state in PREPARATION_STATES)
    if not found:
        return ""
    states = ", ".join(f"{count} {state}" for state, count in found.most_common())
    return f"; {_nodes_are(found.total())} being prepared for use ({states})"


def _maintenance_note(rows: Iterable[NodeRow]) -> str:
    """How many nodes are out for which maintenance, as the end of a sentence."""
    found = Counter(why for row in rows if (why := describe_obstacle(row)) and why.startswith("maintenance "))
    return "".join(f"; {_nodes_are(count)} in {why}" for why, count in sorted(found.items()))


def _nodes_are(count: int) -> str:
    return f"{pluralized(count, 'node')} {'is' if count == 1 else 'are'}"


def describe_request(request: PlacementRequest, node_npus: int) -> str:
    """A request in words: "3 nodes and 1 spare", "2 NPUs", "4 CPU sockets and 512 GiB". A whole node has `node_npus`
    NPUs."""
    terms = []
    if request.nodes and request.npus_per_node == node_npus:
        terms.append(pluralized(request.nodes, "node"))
    elif request.nodes == 1:
        npus = "a die" if request.npus_per_node < 1 else f"{pluralized(request.npus_per_node, 'NPU')} on one node"
        terms.append(npus)
    elif request.nodes:
        terms.append(f"{pluralized(request.nodes, 'node')} with {pluralized(request.npus_per_node, 'NPU')} each")
    if request.spares:
        terms.append(pluralized(request.spares, "spare") if request.nodes or request.spares > 1 else "a spare")
    if request.cpus:
        terms.append(pluralized(request.cpus, "CPU socket"))
    if request.mem:
        terms.append(f"{request.mem} GiB")
    return " and ".join(terms) or "nothing"


def does_not_fit(request: PlacementRequest, node_npus: int) -> str:
    """The beginning of a refusal: "3 nodes and 1 spare do not fit", "1 node does not fit"."""
    asked = describe_request(request, node_npus)
    one = asked.startswith(("1 ", "a ")) and " and " not in asked
    return f"{asked} {'does' if one else 'do'} not fit"


def violated_constraint(ledger_sync: LedgerSync, request: PlacementRequest) -> str:
    """The constraint in the way: the first without which it would fit, or else how much is free."""
    ledger = ledger_sync.ledger
    for rule, relaxed in _relaxations(request):
        if ledger.choose(relaxed) is not None:
            return _DESCRIPTIONS[rule](ledger_sync, request)
    index = ledger.index
    if request.cpus and sum(n for n, up in zip(index.cpus, index.up, strict=True) if up) < request.cpus:
        free = sum(n for n, up in zip(index.cpus, index.up, strict=True) if up)
        return f"{free} CPU sockets are free"
    if request.mem and sum(n for n, up in zip(index.mem, index.up, strict=True) if up) < request.mem:
        free = sum(n for n, up in zip(index.mem, index.up, strict=True) if up)
        return f"{free} GiB are free"
    if request.npus_per_node == ledger.shape.npus:
        return f"no supernode has more than {pluralized(index.most_whole_nodes(), 'free node')}"
    nodes_with_room = sum(free >= request.npus_per_node for free in index.free)
    most = max((free for free in index.free if free > 0), default=0)
    if request.nodes > 1:
        verb = "has" if nodes_with_room == 1 else "have"
        return f"{pluralized(nodes_with_room, 'node')} {verb} {pluralized(request.npus_per_node, 'NPU')} free"
    return f"no node has more than {pluralized(most, 'free NPU')}"


def _relaxations(request: PlacementRequest) -> Iterable[tuple[str, PlacementRequest]]:
    """The spec without one of its constraints at a time."""
    if request.required_domain == "cabinet":
        yield "cabinet", changed_to(request, required_domain="supernode")
    if request.spread is not None:
        yield "spread", changed_to(request, spread=None)
    if request.affinity is not None:
        yield "affinity", changed_to(request, affinity=None)
    if request.anti_affinity is not None:
        yield "anti_affinity", changed_to(request, anti_affinity=None)
    if request.cabinet_block > 1:
        yield "cell", changed_to(request, cabinet_block=1)
    if request.supernode_block > 1:
        yield "block", changed_to(request, supernode_block=1)
    if request.excluded_nodes:
        yield "avoid", changed_to(request, excluded_nodes=frozenset())
    if request.spares:
        yield "spares", changed_to(request, spares=0)
    if request.required_domain == "supernode":
        yield "supernode", changed_to(request, required_domain="")


def _describe_cabinet(ledger: LedgerSync, request: PlacementRequest) -> str:
    largest = max((mask.bit_count() for mask in ledger.ledger.index.whole), default=0)
    if request.npus_per_node < ledger.ledger.shape.npus:
        nodes = f"{pluralized(request.nodes, 'node')} with {pluralized(request.npus_per_node, 'free NPU')}"
        return f"no single cabinet has {nodes}; make the placement preferred"
    return (
        f"no single cabinet has {pluralized(request.nodes + request.spares, 'free node')} (the largest has {largest}); "
        "make the placement preferred"
    )


def _describe_spread(ledger: LedgerSync, request: PlacementRequest) -> str:
    assert request.spread is not None
    free = sum(ledger.ledger.index.whole_counts)
    return (
        f"they cannot be spread with at most {request.spread.most} per {request.spread.over} ({free} nodes are free); "
        "make the placement preferred"
    )


def _describe_affinity(ledger: LedgerSync, request: PlacementRequest) -> str:
    assert request.affinity is not None
    others = " and ".join(request.affinity.others)
    return f"there is no room for them in any {request.affinity.over} used by {others} (affinity)"


def _describe_anti_affinity(ledger: LedgerSync, request: PlacementRequest) -> str:
    assert request.anti_affinity is not None
    others = " or ".join(request.anti_affinity.others)
    return f"there is no room for them in any {request.anti_affinity.over} without {others} (antiAffinity)"


def _describe_supernode(ledger: LedgerSync, request: PlacementRequest) -> str:
    if request.npus_per_node == ledger.ledger.shape.npus:
        return f"no supernode has more than {pluralized(ledger.ledger.index.most_whole_nodes(), 'free node')}"
    return "no single supernode has room for all of them"


_DESCRIPTIONS: dict[str, Any] = {
    "cabinet": _describe_cabinet,
    "spread": _describe_spread,
    "affinity": _describe_affinity,
    "anti_affinity": _describe_anti_affinity,
    "cell": lambda ledger, request: f"no supernode has room for them in blocks of {request.cabinet_block} per cabinet",
    "block": lambda ledger, request: (
        f"they cannot be divided into blocks of {request.supernode_block} that each fit in one supernode"
    ),
    "avoid": lambda ledger, request: "they would only fit on nodes that excludeNodes rules out",
    "spares": lambda ledger, request: f"the members fit, but not together with {pluralized(request.spares, 'spare')}",
    "supernode": _describe_supernode,
}


def blocking_cabinets(rows: Iterable[NodeRow], promised: Container[NodeName] = ()) -> list[dict[str, Any]]:
    """Per cabinet: its nodes, how many are entirely free, and what blocks the others. Only the freest cabinets are
    listed. `promised`: nodes that a reservation will have during that time."""

    def obstacle(node: NodeRow) -> str | None:
        return describe_obstacle(node) or ("Promised" if node.node_name in promised else None)

    cabinets: dict[str, list[NodeRow]] = defaultdict(list)
    for row in rows:
        cabinets[row.node_name.cabinet].append(row)
    rows_by_cabinet = [
        {
            "domain": cabinet,
            "nodes": len(nodes),
            "free": sum(obstacle(node) is None for node in nodes),
            "obstacles": dict(sorted(Counter(why for node in nodes if (why := obstacle(node))).items())),
        }
        for cabinet, nodes in sorted(cabinets.items())
    ]
    if len(rows_by_cabinet) > DOMAINS_SHOWN:
        rows_by_cabinet = sorted(rows_by_cabinet, key=lambda each: -int(str(each["free"])))[:DOMAINS_SHOWN]
    return rows_by_cabinet
