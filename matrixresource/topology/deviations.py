"""Where the actual wiring differs from the graph, derived from what nodes report about their ports.

A node reports for each port who answers at the other end, or that nobody does. A port answered by someone unexpected is
a moved cable. Dark ports are explained by as few parts as possible: a switch in another cabinet has failed if every
node that reports finds all its ports towards it dark, an L1 switch if all its uplinks are dark; each remaining dark
port is a dark cable. Pure: the caller decides whose reports count, and since when.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from matrixresource.topology.layout import Link

WITNESSES_MIN = 2
"""A single node cannot tell a dark cable from a failed switch."""


class Wiring(Protocol):
    """Knows the links of each node."""

    def links(self, node: str) -> list[Link]: ...


@dataclass(frozen=True, slots=True)
class Deviation:
    """`part` is the name of the link or switch; `peer` the new neighbour of a moved cable."""

    kind: str
    part: str
    peer: str | None = None

    def wire(self) -> dict[str, str]:
        found = {"kind": self.kind, "part": self.part}
        return found | {"peer": self.peer} if self.peer is not None else found

    def qualified(self, supernode: str) -> Deviation:
        """The same in one supernode, for parts named without one."""
        peer = self.peer
        return replace(self, part=f"{supernode}-{self.part}", peer=peer and _qualify(supernode, peer))

    def unqualified(self, supernode: str) -> Deviation:
        """The inverse of `qualified`."""
        prefix = f"{supernode}-"
        return replace(self, part=self.part.removeprefix(prefix), peer=self.peer and self.peer.removeprefix(prefix))


def _qualify(supernode: str, peer: str) -> str:
    return peer if re.match(r"sn\d+-", peer) else f"{supernode}-{peer}"


def as_built(links: Iterable[Link]) -> dict[str, str]:
    """The neighbour at each port of a node with these links, wired as its graph says. The far end is the second of a
    link's `ends`."""
    return {link.port: link.ends[1] for link in links}


def find_deviations(
    supernode: Wiring, found: Mapping[str, Mapping[str, str | None]], connected: Collection[str]
) -> frozenset[Deviation]:
    """All deviations. `found` has, for every node that ever reported, the ports that are not as built (the peer, or
    None for dark; possibly no ports); `connected` are the nodes whose agents are currently trusted."""
    witnesses = {node for node in found if node in connected}
    if len(witnesses) < WITNESSES_MIN:
        witnesses = set(found)
    links = {node: supernode.links(node) for node in found}
    dark = {
        link.name: link
        for node, ports in found.items()
        for link in links[node]
        if link.port in ports and ports[link.port] is None
    }
    failed = _failed_far_switches(dark, [link for node in witnesses for link in links[node]])
    failed |= _failed_l1_switches(dark, failed, [link for each in links.values() for link in each])
    rest = [Deviation("CableDark", name) for name, link in dark.items() if not failed & set(link.ends)]
    moved = [
        Deviation("CableMoved", link.name, peer)
        for node, ports in found.items()
        for link in links[node]
        if (peer := ports.get(link.port)) is not None and peer != link.ends[1]
    ]
    return frozenset([*(Deviation("SwitchFailed", switch) for switch in failed), *rest, *moved])


def _failed_far_switches(dark: Mapping[str, Link], witnessed: Iterable[Link]) -> set[str]:
    """L2 switches, leaves and the VPC fabric that no reporting node can see any more."""
    suspects = {link.ends[1] for link in dark.values() if _leaves_node(link)}
    nodes: dict[str, set[str | None]] = defaultdict(set)
    cleared: set[str] = set()
    for link in witnessed:
        switch = link.ends[1]
        if switch in suspects:
            nodes[switch].add(link.node)
            if link.name not in dark:
                cleared.add(switch)
    return {switch for switch in suspects - cleared if len(nodes[switch]) >= WITNESSES_MIN}


def _failed_l1_switches(dark: Mapping[str, Link], failed: set[str], links: Iterable[Link]) -> set[str]:
    """L1 switches that have lost all their uplinks, unless each loss is explained by a failed L2 switch."""
    uplinks: dict[str, list[Link]] = defaultdict(list)
    for link in dark.values():
        if link.kind == "l1-l2":
            uplinks[link.ends[0]].append(link)
    drawn = Counter(link.ends[0] for link in links if link.kind == "l1-l2" and link.ends[0] in uplinks)
    return {
        l1
        for l1, links in uplinks.items()
        if len(links) == drawn[l1] and not {link.ends[1] for link in links} <= failed
    }


def _leaves_node(link: Link) -> bool:
    """Whether the far end is outside the node."""
    return link.kind in ("l1-l2", "die-leaf", "qingtian-fabric")
