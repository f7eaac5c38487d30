"""Division of an instance's nodes among its deployments; no node belongs to two.

Nodes are assigned whole and exclusively, as Kubernetes assigns extended resources. A deployment with a size requests
that many; those without one share what the others leave. A serving deployment is not evicted: it keeps what it
requested or, without a size, at least what its model needs. Nodes beyond that are handed over when others lack them,
once idle. Nodes that nobody requested are kept ready by the present deployments: in a move, new nodes must have loaded
before the old ones leave. The division is pure, and the same after every restart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from infer_workload.layout.deployment import Pools

NO_POOLS = Pools((), (), ())


@dataclass(frozen=True)
class Claim:
    """What one deployment requests, and has."""

    name: str
    size: int | None
    """Number of nodes requested; None: what others leave."""
    nodes_min: int
    """The fewest nodes with which it can begin or continue to serve."""
    pools: Pools = NO_POOLS
    """The nodes on which it computes, or did before the process ended."""
    running: bool = False
    assigned: frozenset[str] = frozenset()
    """All nodes that it has, those loading or kept ready included."""
    handover_blocked: bool = False
    """Whether a drain or role change must end before it can hand over anything."""
    yields: frozenset[str] = frozenset()
    """Nodes that it is handing over."""
    kept_min: int = 0
    """Computing nodes that it always keeps: with fewer, requests that it has accepted would be too long."""

    @property
    def desired(self) -> int:
        return self.nodes_min if self.size is None else self.size

    def select_kept(self, count: int, usable: Collection[str]) -> list[str]:
        """`count` of its usable nodes: decode nodes and whole prefill instances, in their present proportion."""
        decode = [node for node in self.pools.decode if node in usable]
        instances = [nodes for nodes in self.pools.prefill if set(nodes) <= set(usable)]
        reading = [node for nodes in instances for node in nodes]
        share = round(count * len(reading) / max(1, len(reading) + len(decode)))
        kept = list[str]()
        for nodes in instances:
            if len(kept) + len(nodes) <= share or (not kept and len(nodes) < count):
                kept.extend(nodes)
        kept = kept or reading[:1]
        others = [node for nodes in self.pools.prefill for node in nodes if node in usable]
        return list(dict.fromkeys([*kept, *decode[: count - len(kept)], *others, *decode]))[:count]


@dataclass(frozen=True)
class Part:
    """The nodes of one deployment, and those of them that it has to hand over."""

    nodes: frozenset[str]
    yields: frozenset[str] = field(default_factory=frozenset)


def divide(
    nodes: Collection[str],
    claims: Sequence[Claim],
    leaving: Collection[str] = (),
    predecessors: Mapping[str, str] | None = None,
) -> dict[str, Part]:
    """The part of each deployment, by name. `claims` are in order of creation. Nodes `leaving` the instance stay with
    their deployment and are not assigned to another. A node that `predecessors` another, as its successor, goes to that
    one's deployment in addition to its count."""
    if len(claims) == 1:
        return {claims[0].name: Part(frozenset(nodes))}
    computing = _computing_nodes(set(nodes), claims)
    successors = _successors(set(nodes), computing, predecessors or {})
    replaced_by = {node for node, before in (predecessors or {}).items() if before in leaving}
    usable = set(nodes).difference(leaving, *(there - replaced_by for there in successors.values()))
    present = {name: (there | successors[name]) & usable for name, there in computing.items()}
    counts = _counts(len(usable), claims, {name: len(there) for name, there in present.items()})
    parts, short = dict[str, Part](), dict[str, int]()
    for claim in claims:
        name, there = claim.name, computing[claim.name] | successors[claim.name]
        stays = present[name] & successors[name]
        kept = stays.union(claim.select_kept(max(0, counts[name] - len(stays)), present[name] - stays))
        if claim.handover_blocked:  # until it has settled it keeps all that it had
            kept = present[name].difference(claim.yields)
            taken = set[str]().union(
                *computing.values(), *successors.values(), *(part.nodes for part in parts.values())
            )
            there |= set(nodes).intersection(claim.assigned) - taken
        if claim.running:
            parts[name] = Part(frozenset(there), frozenset((present[name] & computing[name]) - kept))
        else:
            parts[name] = Part(frozenset(kept | successors[name]))
        short[name] = counts[name] - len(kept)
    free = usable.difference(*successors.values(), *(part.nodes for part in parts.values()))
    for claim in claims:
        elsewhere = {node for each in claims if each is not claim for node in each.assigned}
        order = sorted(free, key=lambda node: (node not in claim.assigned, node in elsewhere, node))
        given = order[: max(0, short[claim.name])]
        free.difference_update(given)
        part = parts[claim.name]
        parts[claim.name] = Part(part.nodes.union(given), part.yields)
    return parts


def entitlements(nodes: Collection[str], claims: Sequence[Claim], leaving: Collection[str] = ()) -> dict[str, int]:
    """The number of nodes due to each, by name, once surplus nodes have been handed over."""
    usable = set(nodes).difference(leaving)
    if len(claims) == 1:
        return {claims[0].name: len(usable)}
    computing = _computing_nodes(set(nodes), claims)
    return _counts(len(usable), claims, {name: len(there & usable) for name, there in computing.items()})


def _computing_nodes(nodes: set[str], claims: Sequence[Claim]) -> dict[str, set[str]]:
    """The nodes on which each computes; one claimed twice, as by older versions, belongs to the first."""
    found, taken = dict[str, set[str]](), set[str]()
    for claim in claims:
        found[claim.name] = nodes.intersection(claim.pools.nodes) - taken
        taken |= found[claim.name]
    return found


def _successors(
    nodes: set[str], computing: Mapping[str, set[str]], predecessors: Mapping[str, str]
) -> dict[str, set[str]]:
    """The successors of the nodes on which each computes."""
    taken = set[str]().union(*computing.values())
    return {
        name: {node for node, before in predecessors.items() if node in nodes - (taken - there) and before in there}
        for name, there in computing.items()
    }


def _counts(nodes: int, claims: Sequence[Claim], computing: Mapping[str, int]) -> dict[str, int]:
    counts = {claim.name: min(computing[claim.name], max(claim.desired, claim.kept_min)) for claim in claims}
    left = nodes - sum(counts.values())
    for claim in sorted(
        claims, key=lambda each: not computing[each.name]
    ):  # serving ones first, then in order of creation
        most = max(counts[claim.name], min(claim.desired, counts[claim.name] + left))
        if counts[claim.name] or most >= claim.nodes_min:
            left -= most - counts[claim.name]
            counts[claim.name] = most
    there = [claim for claim in claims if counts[claim.name]]
    growing = [claim for claim in there if claim.size is None] or there
    for _ in range(left if growing else 0):
        fewest = min(growing, key=lambda each: counts[each.name] - (each.size or 0))
        counts[fewest.name] += 1
    return counts
