"""The links of the fabric in their present condition: their built rates and what they carry now.

Built rates come from the supernodes' graphs and change with them (`set_topology`). What a link carries now is what
agents last reported of their ports; a port that nobody reports below its rate has its full rate. The fabric identifies
ports by node and name; both ends of a cable are one link, so a lost port takes the cable with it in both directions.
Trunks belong to their RDMA leaf.

Arrays over ports have a place for every switch that a node can reach. On a regular machine that is the port's own
number. Where a graph lacks a cable its place is empty, and a cable that leads to another switch of its plane counts in
that switch's place (`Supernode.rewired`). So drawings by users and findings of agents result in the same vectors.

What may be used is separate from what links carry: links being drained for maintenance carry traffic until the last
route has left them, but no new route uses them.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.port_order import port_order
from matrixresource.topology import Link, Supernode
from matrixresource.topology.supernode import UnknownPart

UP, DEGRADED, DOWN = "Up", "Degraded", "Down"

Ports = Mapping[str, float]
"""By port, the rate in GB/s each way of a node's ports that are below their built rate."""


def health(gbps: float, built_gbps: float) -> str:
    """Up, Degraded (some lanes left: a half or a quarter on this hardware) or Down."""
    return DOWN if gbps <= 0 else UP if gbps >= built_gbps else DEGRADED


class Fabric:
    """All links of some supernodes, with the ports that are below their rate."""

    def __init__(self, supernodes: Iterable[Supernode]) -> None:
        self.supernodes = {supernode.name: supernode for supernode in supernodes}
        self.spec = next(iter(self.supernodes.values())).spec
        self._nodes: dict[str, Supernode] = {}
        self._leaves: dict[str, Supernode] = {}
        self._rewired: dict[str, dict[str, str | None]] = {}
        self.wirings = 0
        """Increases whenever the topology changes, but not with its condition."""
        for supernode in self.supernodes.values():
            self._add_supernode(supernode)
        self.ports = port_order(self.spec)
        self._below: dict[str, dict[str, float]] = {}
        self._drained: dict[str, frozenset[str]] = {}
        self._usable: dict[tuple[Plane, str], NDArray[np.float64]] = {}
        self._whole: dict[tuple[Plane, bool], NDArray[np.float64]] = {}
        orders = [(plane, False, ports) for plane, ports in self.ports.nodes.items()]
        for plane, of_leaf, ports in [*orders, (Plane.RDMA, True, self.ports.trunks)]:
            rates = np.array([self.full(port) for port in ports])
            rates.flags.writeable = False
            self._whole[plane, of_leaf] = rates

    def copy(self) -> Fabric:
        """An independent copy in the same condition."""
        other = object.__new__(Fabric)
        other.__dict__.update(self.__dict__)
        other._below = {owner: dict(ports) for owner, ports in self._below.items()}
        other._drained = dict(self._drained)
        other._usable = dict(self._usable)
        return other

    def as_built(self) -> Fabric:
        """The same fabric with everything at full rate and in use."""
        other = self.copy()
        other._below, other._drained, other._usable = {}, {}, {}
        return other

    # ---- what there is ----------------------------------------------------------------------------------------------

    def _add_supernode(self, supernode: Supernode) -> None:
        self.wirings += 1
        self.supernodes[supernode.name] = supernode
        self._nodes |= dict.fromkeys(supernode.nodes(), supernode)
        self._leaves |= {leaf: supernode for leaves in supernode.leaves.values() for leaf in leaves}
        self._rewired |= supernode.rewired

    def ensure_supernode(self, name: str) -> None:
        """Add a supernode of that name, with the shape that all supernodes of this fabric have."""
        if name not in self.supernodes:
            self._add_supernode(Supernode(name, self.spec))

    def set_topology(self, supernode: Supernode) -> bool:
        """Adopt a supernode's graph. Return True if it differs from the one before."""
        before = self.supernodes.get(supernode.name)
        if before is not None and before.topology is supernode.topology:
            return False
        if supernode.spec.fingerprint != self.spec.fingerprint:
            text = f"{supernode.name} has another spec than this fabric"
            raise InvalidField(text, field="spec")
        gone = set() if before is None else {*before.nodes(), *before.rewired}
        for owner in gone:
            self._nodes.pop(owner, None)
            self._rewired.pop(owner, None)
            self._forget(owner)
        self._add_supernode(supernode)
        for owner in supernode.rewired:
            self._forget(owner)
        return True

    def forget_supernode(self, name: str) -> None:
        """Remove a supernode and the condition of its ports."""
        gone = self.supernodes.pop(name)
        self.wirings += 1
        for of_owner in (self._nodes, self._leaves, self._rewired, self._below, self._drained):
            for owner in [owner for owner in of_owner if gone.owns(owner)]:
                del of_owner[owner]
        self._usable = {key: rates for key, rates in self._usable.items() if not gone.owns(key[1])}

    def nodes(self) -> list[str]:
        return list(self._nodes)

    def has(self, node: str) -> bool:
        return node in self._nodes

    def supernode_of(self, node: str) -> Supernode:
        if node not in self._nodes:
            raise UnknownPart(node)
        return self._nodes[node]

    def supernode_name(self, node: str) -> str:
        """The supernode of a node; empty for a node that is no longer in any graph."""
        return self._nodes[node].name if node in self._nodes else ""

    def supernode_of_part(self, part: str) -> Supernode | None:
        """The supernode that a part of that name belongs to."""
        return next((each for each in self.supernodes.values() if each.owns(part)), None)

    def cabinet_of(self, node: str) -> str:
        return self._nodes[node].cabinet_of(node) if node in self._nodes else ""

    def leaves_at(self, node: str) -> tuple[str, ...]:
        """The leaves that a node is connected to, one per subnet."""
        return self._nodes[node].leaves[self.cabinet_of(node)] if node in self._nodes else ()

    def is_leaf(self, owner: str) -> bool:
        """Whether the owner of a link is an RDMA leaf and not a node."""
        return owner in self._leaves

    def links(self, node: str | None = None, plane: str | None = None) -> list[Link]:
        """Links by plane and node; trunks between RDMA switches belong to no node."""
        if node is not None:
            return self.supernode_of(node).links(node, plane)
        return [link for supernode in self.supernodes.values() for link in supernode.links(None, plane)]

    def link_names_after(self, after: str, plane: str | None = None) -> Iterator[str]:
        """The names of links, of one plane if given, that come after this one in order."""
        for supernode in sorted(self.supernodes.values(), key=lambda each: f"{each.name}-"):
            yield from supernode.link_names_after(after, plane)

    def has_link(self, node: str, port: str) -> bool:
        """Whether the graph has a cable at this port of a node."""
        supernode = self._nodes.get(node)
        return supernode is not None and supernode.has_link(f"{node}.{port}")

    def link(self, name: str) -> Link:
        owner = name.partition(".")[0]
        supernode = self._nodes.get(owner) or self._leaves.get(owner)
        if supernode is None:
            raise UnknownPart(name)
        return supernode.link(name)

    @functools.cached_property
    def built(self) -> dict[str, float]:
        """The built rate of each port that a node has, by port name."""
        node = Supernode(spec=self.spec)
        return {link.port: link.capacity_gbps for link in node.links(node.nodes()[0])}

    def full(self, port: str) -> float:
        """The built rate of a port of a node or leaf."""
        return self.built.get(port, self.spec.rdma.leaf_spine_gbps)

    # ---- how it is --------------------------------------------------------------------------------------------------

    def degraded_ports(self, node: str) -> Ports:
        """The ports of a node (or leaf) that carry less than their rate."""
        return self._below.get(node, {})

    def set_ports(self, node: str, ports: Ports) -> bool:
        """Set which of a node's (or leaf's) ports are below their rate. Return True if that changes anything."""
        kept = {port: gbps for port, gbps in ports.items() if gbps < self.full(port)}
        if kept == self._below.get(node, {}):
            return False
        if kept:
            self._below[node] = kept
        else:
            self._below.pop(node, None)
        self._forget(node)
        return True

    def check_port(self, port: str, gbps: float, field: str) -> None:
        """Raises InvalidField unless a node has that port and the port can have that rate."""
        if port not in self.built:
            raise InvalidField(
                f"a node has no port {port[:40]!r}; it has ub-p3-k11, npu5-die1-p2 and so on", field=field
            )
        if not 0 <= gbps <= self.built[port]:
            raise InvalidField(f"{port} must carry from 0 to {self.built[port]:g} GB/s", field=field)

    def rate(self, node: str, port: str) -> float:
        return self.degraded_ports(node).get(port, self.built[port])

    def capacity(self, link: str) -> float:
        """GB/s each way that a link carries now, by its name. Trunks between RDMA switches have no agent to report on
        them: they have their built rate, except in what-ifs."""
        owner, _, port = link.partition(".")
        return self.degraded_ports(owner).get(port, self.full(port))

    # ---- what may be used -------------------------------------------------------------------------------------------

    def drained(self, owner: str) -> frozenset[str]:
        """The ports of a node or leaf that are out of use or being drained."""
        return self._drained.get(owner, frozenset())

    def all_drained(self) -> dict[str, frozenset[str]]:
        """All of these, by node or leaf."""
        return dict(self._drained)

    def touched(self) -> set[str]:
        """Nodes and leaves with anything below its rate, drained, or wired irregularly."""
        return {*self._below, *self._drained, *self._rewired}

    def set_drained(self, links: Mapping[str, Collection[str]]) -> bool:
        """Set which ports, by node or leaf, are out of use; all others are in use. Return True if that changes
        anything."""
        wanted = {owner: frozenset(ports) for owner, ports in links.items() if ports}
        if wanted == self._drained:
            return False
        for owner in {*self._drained, *wanted}:
            if self._drained.get(owner) != wanted.get(owner):
                self._forget(owner)
        self._drained = wanted
        return True

    def unavailable_ports(self, owner: str) -> Ports:
        """The places of a node or leaf in which new routes do not have exactly one port at full rate, with the rate
        they have there, by the port of a regular machine: below its rate, drained, without a cable, or with two."""
        if owner in self._rewired:
            found = self.irregular_places(owner)
            return {port: gbps for port, (gbps, _) in found.items() if gbps != self.full(port)}
        drained = self._drained.get(owner)
        return (
            self.degraded_ports(owner)
            if not drained
            else {**self.degraded_ports(owner), **dict.fromkeys(sorted(drained), 0.0)}
        )

    def irregular_places(self, owner: str, out: bool = True) -> dict[str, tuple[float, bool]]:
        """For places that differ from a regular machine's: GB/s there, and whether all of it is drained. `out`: do not
        count drained ports."""
        rewired = self._rewired.get(owner, {})
        below, drained = self.degraded_ports(owner), self.drained(owner)
        ports = {*below, *drained, *rewired, *(to for to in rewired.values() if to)}
        there: dict[str, list[str]] = {port: [] for port in sorted(ports)}
        for port in sorted(ports):
            to = rewired.get(port, port)
            if to is not None:
                there[to].append(port)
        return {
            place: (
                sum(below.get(port, self.full(port)) for port in found if not (out and port in drained)),
                bool(found) and drained.issuperset(found),
            )
            for place, found in there.items()
        }

    def place(self, owner: str, port: str) -> tuple[Plane, int] | None:
        """The plane and place of a port in vectors; None for a port without one, or whose cable leads nowhere."""
        to = self._rewired.get(owner, {}).get(port, port)
        return None if to is None else self.ports.place(to)

    def link_names(self, plane: Plane, owner: str) -> list[str]:
        """By place, the name of the link there: the first if there are two, the regular one if there is none."""
        names = [f"{owner}.{port}" for port in self.ports.of(plane, self.is_leaf(owner))]
        for port, to in self._rewired.get(owner, {}).items():
            place = self.ports.place(to) if to is not None and to != port else None
            if place is not None and place[0] == plane and self._rewired[owner].get(str(to), to) != to:
                names[place[1]] = f"{owner}.{port}"
        return names

    def usable_rates(self, plane: Plane, owner: str) -> NDArray[np.float64]:
        """GB/s each way that routes may use in each place of a node or leaf, in the order of `PortOrder`."""
        found = self._usable.get((plane, owner))
        if found is None:
            found = self.whole(plane, self.is_leaf(owner))
            if lacking := self.unavailable_ports(owner):
                found = found.copy()
                for port, gbps in lacking.items():
                    place = self.ports.place(port)
                    if place is not None and place[0] == plane:
                        found[place[1]] = gbps
                found.flags.writeable = False
            self._usable[plane, owner] = found
        return found

    def whole(self, plane: Plane, of_leaf: bool = False) -> NDArray[np.float64]:
        """The rates of a regular machine in that order."""
        return self._whole[plane, of_leaf]

    def share(self, owner: str, port: str) -> float:
        """The share of a port's built rate that routes may use, 0 to 1."""
        return self.unavailable_ports(owner).get(port, self.full(port)) / self.full(port)

    def _forget(self, owner: str) -> None:
        for plane in Plane:
            self._usable.pop((plane, owner), None)
