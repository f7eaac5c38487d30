"""UbTraffic: one supernode's UB plane as agents report it, with its forwarding tables and the flows over them.

It translates between names and numbers: nodes and endpoints in the order of the topology, ports as elements of the
tables. The condition of hardware comes from the fabric, and so do drains; `synchronise` brings tables and flows to
that, whatever came before, and remembers for each group what the newest event changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.forwarding.clos_shape import LINK_BLOCKS, NONE, ClosShape, Ints
from matrixlink.forwarding.element_state import ElementEvent, ElementState
from matrixlink.forwarding.forwarding_tables import ForwardingTables
from matrixlink.forwarding.live_flows import FlowChange, LiveFlows
from matrixlink.forwarding.paths import Floats, Paths
from matrixresource.topology import Supernode


@dataclass(frozen=True, slots=True, eq=False)
class GroupChange:
    """What the newest event that changed a group changed: flows, numbered within the group, with their paths and rates
    before and after."""

    event: int
    at: float
    ports: int
    repathed: int
    rerated: int
    flows: Ints
    path_before: Paths
    path_after: Paths
    rate_before: Floats
    rate_after: Floats


class UbTraffic:
    """Tables and flows of one supernode. `events` counts the changes of ports that were applied."""

    def __init__(self, supernode: Supernode, fabric: Fabric | None = None) -> None:
        self.shape = ClosShape.of(supernode.spec)
        self._fabric = fabric or Fabric([supernode])
        self.nodes = list(supernode.slots)
        """By number; nodes that are not drawn have no cables."""
        parts = Supernode(supernode.name, supernode.spec)
        self.ends = [end for node in self.nodes for end in (*parts.dies(node), *parts.cpus(node))]
        self.end_number = {name: number for number, name in enumerate(self.ends)}
        self._take(supernode)
        first = self.nodes[0]
        self._ports = [port[len(first) + 1 :] for port in parts.dies(first) + parts.cpus(first)]
        self._built = {link.port: link.capacity_gbps for link in parts.links(first, "ub")}
        self._element = {
            self.port(kind, plane, number): (kind, plane, number)
            for kind in ("end", "cable")
            for plane in range(self.shape.sub_planes)
            for number in range(self.shape.sizes[kind][2])
        }
        self.tables = ForwardingTables(self.shape, self.drawn())
        self.flows = LiveFlows(self.tables)
        self.changes: dict[str, GroupChange] = {}
        self.events = 0
        built = self._fabric.as_built()
        self._seen = {node: now for node in self.nodes if (now := self._impaired_ports(built, node))}

    def _take(self, supernode: Supernode) -> None:
        self.supernode = supernode
        switches = supernode.switches("ub")
        self.l1 = {(str(each.node), each.sub_plane or 0): each.name for each in switches if each.kind == "l1"}
        drawn = {each.name for each in switches if each.kind == "l2"}
        regular = enumerate(f"{supernode.name}-{local}" for local in self._fabric.ports.l2_switches)
        self.l2 = {divmod(number, self.shape.chips): name for number, name in regular if name in drawn}
        """By sub-plane and number in it."""

    def drawn(self) -> ElementState:
        """The plane as its graph has it: everything at full rate except cables and nodes that are not drawn."""
        state, built = ElementState(self.shape), self._fabric.as_built()
        for node, number in self.supernode.slots.items():
            for port, (gbps, _) in self._impaired_ports(built, node).items():
                if port in self._element:
                    kind, plane, element = self._element[port]
                    state.share[kind][plane, number, element] = self._share(port, gbps)
        return state

    def _share(self, port: str, gbps: float) -> float:
        """The share of its built rate; for a table, two cables to one chip count as one."""
        return min(gbps / self._built[port], 1.0)

    def _impaired_ports(self, fabric: Fabric, node: str) -> dict[str, tuple[float, bool]]:
        """By place, where a node's ports differ from full rate and in use."""
        if not fabric.has(node):
            return dict.fromkeys(self._built, (0.0, False))
        if node not in fabric.touched():
            return {}
        found = fabric.irregular_places(node, out=False)
        return {port: found[port] for port in found.keys() & self._built.keys()}

    # ---- names ------------------------------------------------------------------------------------------------------

    def port(self, kind: str, plane: int, number: int) -> str:
        """A node's port, by the element that it leads to."""
        if kind == "cable":
            return self._fabric.ports.uplinks[plane * self.shape.chips + number]
        return f"{self._ports[number]}-p{plane}"

    def cable(self, node: str, plane: int, chip: int) -> str:
        """The name of a node's cable to an L2 chip, whichever port it is plugged into."""
        place = self.port("cable", plane, chip)
        leading = [port for port, to in self.supernode.rewired.get(node, {}).items() if to == place]
        return f"{node}.{leading[0] if leading else place}"

    def path_names(self, path: Paths) -> list[str]:
        """The links of one path, in order."""
        return [self._link_name(int(link)) for link in path if link != NONE]

    def _link_name(self, link: int) -> str:
        plane, within = divmod(link, self.shape.links)
        block = [name for name in LINK_BLOCKS if self.shape.link_starts[name] <= within][-1]
        kind = block.partition("-")[0]
        node, number = divmod(within - self.shape.link_starts[block], self.shape.sizes[kind][2])
        if kind == "cable":
            return self.cable(self.nodes[node], plane, number)
        return f"{self.nodes[node]}.{self.port(kind, plane, number)}"

    # ---- following ---------------------------------------------------------------------------------------------------

    def synchronise(self, fabric: Fabric, at: float) -> FlowChange | None:
        """Bring tables and flows to the fabric's condition; None if nothing changed. `at`: seconds of the clock."""
        now = fabric.supernodes.get(self.supernode.name, self.supernode)
        if now.topology is not self.supernode.topology:
            self._take(now)
        events = list(self._news(fabric))
        if not events:
            return None
        change = self.flows.take(self.tables.take(events))
        self.events += 1
        for name in self.flows.groups:
            self._note(name, change, at, len(events))
        return change

    def _news(self, fabric: Fabric) -> Iterator[ElementEvent]:
        for number, node in enumerate(self.nodes):
            now = self._impaired_ports(fabric, node)
            seen = self._seen.get(node, {})
            if now == seen:
                continue
            self._seen[node] = now
            for port in sorted({*now, *seen}):
                if port in self._element and now.get(port) != seen.get(port):
                    kind, plane, element = self._element[port]
                    gbps, drained = now.get(port, (self._built[port], False))
                    share = self._share(port, gbps)
                    yield ElementEvent(kind, (plane, number, element), share=share, drained=drained)

    def _note(self, name: str, change: FlowChange, at: float, ports: int) -> None:
        flows = self.flows.flows_of(name)
        moved, rated = ((ids >= flows.start) & (ids < flows.stop) for ids in (change.repathed, change.rerated))
        if not moved.any() and not rated.any():
            return
        ids = np.union1d(change.repathed[moved], change.rerated[rated])
        paths, rates = self.flows.path[ids].copy(), self.flows.rate[ids].copy()
        before_paths, before_rates = paths.copy(), rates.copy()
        before_paths[np.searchsorted(ids, change.repathed[moved])] = change.path_before[moved]
        before_rates[np.searchsorted(ids, change.rerated[rated])] = change.rate_before[rated]
        self.changes[name] = GroupChange(
            self.events, at, ports, int(moved.sum()), int(rated.sum()), ids - flows.start,
            before_paths, paths, before_rates, rates,
        )  # fmt: skip
