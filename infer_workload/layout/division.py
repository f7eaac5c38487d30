"""Which nodes of an instance each of its deployments has: none is two deployments'.

NPUs are given out whole and to one at a time, as Kubernetes gives out extended resources. A size that a deployment asks
for is its request; one without a size has what the others leave, the same as others without one. Who serves is not put
out: it keeps what it asked for, and without a size at least what its model needs. What it has beyond that it hands over
when others lack it, once nothing runs there any more. What nobody asked for lies ready with those that are there: nodes
that begin beside others, as in a move, are to have loaded before these leave. Pure, and the same after every restart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from infer_workload.layout.deployment import Pools

NOTHING = Pools((), (), ())


@dataclass(frozen=True)
class Claim:
    """What one deployment asks for, and has."""

    name: str
    size: int | None
    """Nodes that it asks for; None: what others leave."""
    least: int
    """Nodes without which it cannot begin, or serve on."""
    pools: Pools = NOTHING
    """Where it computes, or did before the process ended."""
    running: bool = False
    assigned: frozenset[str] = frozenset()
    """Nodes it had besides: they load, or lie ready."""
    settling: bool = False
    """Whether something has to end there before it can hand anything over."""
    yields: frozenset[str] = frozenset()
    """What it hands over meanwhile."""
    keeps: int = 0
    """Of those where it computes it hands no more over: requests that it has taken would be too long for fewer."""

    @property
    def wanted(self) -> int:
        return self.least if self.size is None else self.size

    def kept(self, count: int, usable: Collection[str]) -> list[str]:
        """So many of its nodes that may be used: decode nodes and whole prefill instances in the proportion it has."""
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
    """The nodes that one deployment has, and those of them that it is to hand over."""

    nodes: frozenset[str]
    yields: frozenset[str] = field(default_factory=frozenset)


def divide(
    nodes: Collection[str],
    claims: Sequence[Claim],
    leaving: Collection[str] = (),
    follows: Mapping[str, str] | None = None,
) -> dict[str, Part]:
    """The part of each, by name. `claims` are in the order in which they were made; nodes that are `leaving` the
    instance stay whose they are and are given to nobody. A node that `follows` another, in whose place it is to be,
    is that one's deployment's, beside what it has."""
    if len(claims) == 1:
        return {claims[0].name: Part(frozenset(nodes))}
    plays = _plays(set(nodes), claims)
    coming = _coming(set(nodes), plays, follows or {})
    stands_in = {node for node, before in (follows or {}).items() if before in leaving}
    usable = set(nodes).difference(leaving, *(there - stands_in for there in coming.values()))
    present = {name: (there | coming[name]) & usable for name, there in plays.items()}
    counts = _counts(len(usable), claims, {name: len(there) for name, there in present.items()})
    parts, short = dict[str, Part](), dict[str, int]()
    for claim in claims:
        name, there = claim.name, plays[claim.name] | coming[claim.name]
        stays = present[name] & coming[name]
        kept = stays.union(claim.kept(max(0, counts[name] - len(stays)), present[name] - stays))
        if claim.settling:  # it loses nothing of what it had before it has settled
            kept = present[name].difference(claim.yields)
            taken = set[str]().union(*plays.values(), *coming.values(), *(part.nodes for part in parts.values()))
            there |= set(nodes).intersection(claim.assigned) - taken
        if claim.running:
            parts[name] = Part(frozenset(there), frozenset((present[name] & plays[name]) - kept))
        else:
            parts[name] = Part(frozenset(kept | coming[name]))
        short[name] = counts[name] - len(kept)
    free = usable.difference(*coming.values(), *(part.nodes for part in parts.values()))
    for claim in claims:
        elsewhere = {node for each in claims if each is not claim for node in each.assigned}
        order = sorted(free, key=lambda node: (node not in claim.assigned, node in elsewhere, node))
        given = order[: max(0, short[claim.name])]
        free.difference_update(given)
        part = parts[claim.name]
        parts[claim.name] = Part(part.nodes.union(given), part.yields)
    return parts


def entitled(nodes: Collection[str], claims: Sequence[Claim], leaving: Collection[str] = ()) -> dict[str, int]:
    """How many nodes each is to have, by name, once whoever has more has handed them over."""
    usable = set(nodes).difference(leaving)
    if len(claims) == 1:
        return {claims[0].name: len(usable)}
    plays = _plays(set(nodes), claims)
    return _counts(len(usable), claims, {name: len(there & usable) for name, there in plays.items()})


def _plays(nodes: set[str], claims: Sequence[Claim]) -> dict[str, set[str]]:
    """Where each computes; a node that two claim, as those of an older version did, is the first one's."""
    found, taken = dict[str, set[str]](), set[str]()
    for claim in claims:
        found[claim.name] = nodes.intersection(claim.pools.nodes) - taken
        taken |= found[claim.name]
    return found


def _coming(nodes: set[str], plays: Mapping[str, set[str]], follows: Mapping[str, str]) -> dict[str, set[str]]:
    """The successors of members where each computes."""
    taken = set[str]().union(*plays.values())
    return {
        name: {node for node, before in follows.items() if node in nodes - (taken - there) and before in there}
        for name, there in plays.items()
    }


def _counts(nodes: int, claims: Sequence[Claim], plays: Mapping[str, int]) -> dict[str, int]:
    counts = {claim.name: min(plays[claim.name], max(claim.wanted, claim.keeps)) for claim in claims}
    left = nodes - sum(counts.values())
    for claim in sorted(claims, key=lambda each: not plays[each.name]):  # who serves first, else in their order
        most = max(counts[claim.name], min(claim.wanted, counts[claim.name] + left))
        if counts[claim.name] or most >= claim.least:
            left -= most - counts[claim.name]
            counts[claim.name] = most
    there = [claim for claim in claims if counts[claim.name]]
    growing = [claim for claim in there if claim.size is None] or there
    for _ in range(left if growing else 0):
        fewest = min(growing, key=lambda each: counts[each.name] - (each.size or 0))
        counts[fewest.name] += 1
    return counts
