"""UbTraffic: one supernode's UB plane as agents report it, with its forwarding tables and the flows over them.

Names on one side, numbers on the other: nodes and endpoints in the order of the topology, ports as elements of the
tables. What it knows of the hardware is what the fabric was reported, and of drains what is asked of it; `follow`
brings tables and flows to that, whatever came before, and remembers of each group what the newest event changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.forwarding.clos_shape import LINK_BLOCKS, NONE, ClosShape, Ints
from matrixlink.forwarding.element_state import ElementEvent
from matrixlink.forwarding.forwarding_tables import ForwardingTables
from matrixlink.forwarding.live_flows import FlowChange, LiveFlows
from matrixlink.forwarding.paths import Floats, Paths
from matrixresource.topology import Supernode


@dataclass(frozen=True, slots=True, eq=False)
class GroupChange:
    """What the newest event that changed a group changed: flows counted from the group's first, with their paths and
    rates before and after."""

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
    """Tables and flows of one supernode. `events` counts the changes of ports that were followed."""

    def __init__(self, supernode: Supernode) -> None:
        self.supernode = supernode
        self.shape = ClosShape.of(supernode.spec)
        self.nodes = supernode.nodes()
        self.ends = [end for node in self.nodes for end in (*supernode.dies(node), *supernode.cpus(node))]
        self.end_number = {name: number for number, name in enumerate(self.ends)}
        self.tables = ForwardingTables(self.shape)
        self.flows = LiveFlows(self.tables)
        self.changes: dict[str, GroupChange] = {}
        self.events = 0
        self._seen: dict[str, dict[str, tuple[float, bool]]] = {}
        first = self.nodes[0]
        self._ports = [port[len(first) + 1 :] for port in self.supernode.dies(first) + self.supernode.cpus(first)]
        self._built = {link.port: link.capacity_gbps for link in supernode.links(first, "ub")}
        self._element = {
            self.port(kind, plane, number): (kind, plane, number)
            for kind in ("end", "cable")
            for plane in range(self.shape.sub_planes)
            for number in range(self.shape.sizes[kind][2])
        }

    # ---- names ------------------------------------------------------------------------------------------------------

    def port(self, kind: str, plane: int, number: int) -> str:
        """A node's port, by the element that it leads to."""
        return f"ub-p{plane}-k{number:02d}" if kind == "cable" else f"{self._ports[number]}-p{plane}"

    def path_names(self, path: Paths) -> list[str]:
        """The links of one path, in order."""
        return [self._link_name(int(link)) for link in path if link != NONE]

    def _link_name(self, link: int) -> str:
        plane, within = divmod(link, self.shape.links)
        block = [name for name in LINK_BLOCKS if self.shape.link_starts[name] <= within][-1]
        kind = block.partition("-")[0]
        node, number = divmod(within - self.shape.link_starts[block], self.shape.sizes[kind][2])
        return f"{self.nodes[node]}.{self.port(kind, plane, number)}"

    # ---- following ---------------------------------------------------------------------------------------------------

    def synchronise(self, fabric: Fabric, at: float) -> FlowChange | None:
        """Bring tables and flows to what the fabric knows; None when that is no news. `at`: seconds of the clock."""
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
            below, out = fabric.degraded_ports(node), fabric.drained(node)
            now = {
                port: (below.get(port, self._built[port]), port in out) for port in {*below, *out} & self._built.keys()
            }
            seen = self._seen.get(node, {})
            if now == seen:
                continue
            self._seen[node] = now
            for port in sorted({*now, *seen}):
                if port in self._element and now.get(port) != seen.get(port):
                    kind, plane, element = self._element[port]
                    gbps, drained = now.get(port, (self._built[port], False))
                    yield ElementEvent(kind, (plane, number, element), share=gbps / self._built[port], drained=drained)

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
