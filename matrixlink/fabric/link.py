"""The links of the fabric as they are now: what each was built for and what it carries at the moment.

Built rates come from the topology and never change. What a link carries now is what the agents last reported of their
ports: a port that nobody reports below its rate is at its rate. The fabric knows ports by node and name; both ends of a
cable are one link, so a lost port takes the cable with it in both directions.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping

from matrixresource.topology import Link, Supernode
from matrixresource.topology.supernode import UnknownPart
from matrixresource.vocabulary.errors import InvalidField

UP, DEGRADED, DOWN = "Up", "Degraded", "Down"

Ports = Mapping[str, float]
"""GB/s each way of a node's ports that are below their built rate."""


def health(gbps: float, built_gbps: float) -> str:
    """Up, Degraded (some lanes left: a half or a quarter on this hardware) or Down."""
    return DOWN if gbps <= 0 else UP if gbps >= built_gbps else DEGRADED


class Fabric:
    """All links of some supernodes, with the ports that are below their rate."""

    def __init__(self, supernodes: Iterable[Supernode]) -> None:
        self.supernodes = {supernode.name: supernode for supernode in supernodes}
        self.spec = next(iter(self.supernodes.values())).spec
        self._nodes = {node: supernode for supernode in self.supernodes.values() for node in supernode.nodes()}
        self._below: dict[str, dict[str, float]] = {}

    # ---- what there is ----------------------------------------------------------------------------------------------

    def ensure_supernode(self, name: str) -> None:
        """Know a supernode of that name, of the shape that all of this fabric's have."""
        if name not in self.supernodes:
            supernode = self.supernodes[name] = Supernode(name, self.spec)
            self._nodes |= dict.fromkeys(supernode.nodes(), supernode)

    def forget_supernode(self, name: str) -> None:
        """Know it no longer, nor the condition of its ports."""
        for node in self.supernodes.pop(name).nodes():
            del self._nodes[node]
            self._below.pop(node, None)

    def nodes(self) -> list[str]:
        return list(self._nodes)

    def has(self, node: str) -> bool:
        return node in self._nodes

    def supernode_of(self, node: str) -> Supernode:
        if node not in self._nodes:
            raise UnknownPart(node)
        return self._nodes[node]

    def links(self, node: str | None = None, plane: str | None = None) -> list[Link]:
        """Links by name of plane and node; trunks between RDMA switches come with nobody's node."""
        if node is not None:
            return self.supernode_of(node).links(node, plane)
        return [link for supernode in self.supernodes.values() for link in supernode.links(None, plane)]

    def link(self, name: str) -> Link:
        supernode = self.supernodes.get(name.partition("-")[0])
        if supernode is None:
            raise UnknownPart(name)
        return supernode.link(name)

    @functools.cached_property
    def built(self) -> dict[str, float]:
        """Built rate of each port that a node has, by the port's name."""
        supernode = next(iter(self.supernodes.values()))
        return {link.port: link.capacity_gbps for link in supernode.links(supernode.nodes()[0])}

    # ---- how it is --------------------------------------------------------------------------------------------------

    def below(self, node: str) -> Ports:
        """The node's ports below their rate."""
        return self._below.get(node, {})

    def set_ports(self, node: str, ports: Ports) -> bool:
        """Take in which of a node's ports are below their rate. True when that is news."""
        kept = {port: gbps for port, gbps in ports.items() if gbps < self.built[port]}
        if kept == self._below.get(node, {}):
            return False
        if kept:
            self._below[node] = kept
        else:
            self._below.pop(node, None)
        return True

    def check_port(self, port: str, gbps: float, field: str) -> None:
        """InvalidField unless a node has that port and the rate is one it can have."""
        if port not in self.built:
            raise InvalidField(
                f"a node has no port {port[:40]!r}; it has ub-p3-k11, npu5-die1-p2 and so on", field=field
            )
        if not 0 <= gbps <= self.built[port]:
            raise InvalidField(f"{port} carries 0 to {self.built[port]:g} GB/s", field=field)

    def rate(self, node: str, port: str) -> float:
        return self.below(node).get(port, self.built[port])

    def capacity(self, link: str) -> float:
        """GB/s each way that a link carries now, by its name. Trunks between RDMA switches have no agent to report on
        them and count at their built rate."""
        owner, _, port = link.partition(".")
        if owner in self._nodes:
            return self.rate(owner, port)
        return self.spec.rdma.leaf_spine_gbps

    def share(self, node: str, port: str) -> float:
        """The part of its built rate that a port has, 0 to 1."""
        return self.rate(node, port) / self.built[port]


def plane_of_port(port: str) -> str:
    """The plane a node's port belongs to, by its name."""
    if port == "vpc":
        return "vpc"
    return "rdma" if port.startswith("rdma-") else "ub"


def switch_ports(switch: str) -> tuple[str, re.Pattern[str]] | None:
    """Which ports lead to a UB switch: the node it sits in (an L1) or an empty text for every node (an L2), and a
    pattern of port names. None for what is no UB switch."""
    if found := re.fullmatch(r"(sn\d+-c\d+-n\d+)-l1p(\d+)", switch):
        node, plane = found.groups()
        return node, re.compile(rf"ub-p{plane}-k\d+|npu\d+-die\d+-p{plane}|cpu\d+-p{plane}")
    if found := re.fullmatch(r"sn\d+-l2p(\d+)-k(\d+)", switch):
        plane, k = found.groups()
        return "", re.compile(rf"ub-p{plane}-k{k}")
    return None
