"""EmulatedTraffic: the load that workloads put on the emulated ports, the part that gets through, and port counters.

A load describes a workload's traffic: a rate from each NPU of a slice's members to the others, in a pattern. It follows
the tables in the switches, not what was requested: a node without a table sends nothing, stripes and detours select the
sub-planes and L2 chips, and a port that carries less than it reports shows in the byte counters. Rates come from the
fabric core: guarantee plus share, by the floors and weights in the tables (`matrixlink/fabric/contention`). UB and RoCE
are lossless: excess traffic waits at the sender, and only traffic into a port that carries nothing is dropped. For a
load that comes in bursts, `burst` gives the bandwidth of one burst beside the other traffic.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from matrixcommon.model.clock import Clock
from matrixcommon.model.hardware_names import NodeName
from matrixlink.fabric.condition.port_order import port_order
from matrixlink.fabric.contention.offers import Offer, Subflows
from matrixlink.fabric.contention.port_groups import PortGroups
from matrixlink.fabric.contention.shared_ports import SharedPorts
from matrixlink.ports import CounterSample
from matrixresource.agent.hardware import EmulatedNode
from matrixresource.topology.spec import SupernodeSpec
from services.node_agent.network.actual_ports import port_groups
from services.node_agent.network.traffic_patterns import Burst, BurstPorts, Load, Table

Floats = NDArray[np.float64]


@dataclass
class Rates:
    """Current rates in GB/s: by node and port, by slice and node (sent, received, dropped), and by offer (sent,
    dropped)."""

    sent: Floats
    received: Floats
    dropped: Floats
    slices: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    offers: list[tuple[float, float]] = field(default_factory=list)


class EmulatedTraffic:
    """The loads on these nodes by name, and the port counters that they produce in emulated time."""

    def __init__(self, nodes: Mapping[NodeName, EmulatedNode], spec: SupernodeSpec, clock: Clock) -> None:
        self.loads: dict[str, Load] = {}
        self._spec = spec
        self._clock = clock
        self._counted_until = clock.now()
        self._rates: Rates | None = None
        self._rates_state: object = None
        self._recompute_due = False
        self._ports: SharedPorts | None = None
        self._offered: dict[str, list[int]] = {}
        """Indices of each load's offers."""
        self._bursts: dict[str, Burst] = {}
        self._groups: tuple[object, PortGroups] | None = None
        """The last computed port groups, with the state of the nodes that they were computed from."""
        self._names: list[str] = []
        ports = len(port_order(spec).outward_ports)
        self._sent, self._received, self._dropped = (np.zeros((0, ports)) for _ in range(3))
        self._slices: dict[str, dict[int, list[float]]] = {}
        self._index_nodes(nodes)

    # -- nodes --------------------------------------------------------------------------------------------------------

    def change_nodes(self, nodes: Mapping[NodeName, EmulatedNode]) -> None:
        """Replace the set of nodes. Nodes that remain keep their counters."""
        self._advance_counters()
        self._index_nodes(nodes)
        self._rates = self._rates_state = None

    def _index_nodes(self, nodes: Mapping[NodeName, EmulatedNode]) -> None:
        before = {name: at for at, name in enumerate(self._names)}
        self._names, self._nodes = [str(name) for name in nodes], list(nodes.values())
        self._index = {name: at for at, name in enumerate(self._names)}
        self._groups = None
        stay = [(before[name], at) for name, at in self._index.items() if name in before]
        current, now = ([pair[side] for pair in stay] for side in (0, 1))
        for each in ("_sent", "_received", "_dropped"):
            counted = getattr(self, each)
            fresh = np.zeros((len(self._names), counted.shape[1]))
            fresh[now] = counted[current]
            setattr(self, each, fresh)
        moved = dict(stay)
        self._slices = {
            slice: {moved[at]: each for at, each in by_node.items() if at in moved}
            for slice, by_node in self._slices.items()
        }

    # -- loads --------------------------------------------------------------------------------------------------------

    def put(self, name: str, load: Load) -> None:
        self._advance_counters()
        self.loads[name] = load
        self.update()

    def remove(self, name: str) -> None:
        self._advance_counters()
        del self.loads[name]
        self.update()

    def tables_by_slice(self, load: Load) -> dict[str, dict[str, Table]]:
        """Return the tables of powered nodes, by each slice that the load uses."""
        current: dict[str, dict[str, Table]] = defaultdict(dict)
        only = None if load.members is None else {*load.members, *load.target_nodes()}
        for name, node in zip(self._names, self._nodes, strict=True):
            if only is not None and name not in only:
                continue
            for slice, table in node.tables.items() if node.powered else ():
                if load.matches(slice, table):
                    current[slice][name] = table
        return current

    # -- time ---------------------------------------------------------------------------------------------------------

    def update(self) -> None:
        """Update the counters up to now. Call it whenever something changes, at that moment; the new rates are computed
        once, after all changes of this moment."""
        self._advance_counters()
        if self._state() != self._rates_state:
            self._rates = None
            with suppress(RuntimeError):  # without an event loop, the next reader computes the rates
                if self.loads and not self._recompute_due:
                    asyncio.get_running_loop().call_soon(self._recompute)
                    self._recompute_due = True

    def _recompute(self) -> None:
        self._recompute_due = False
        self.rates()

    def rates(self) -> Rates | None:
        """Return the current rates, or None if there is no load."""
        self._recompute_due = False
        self._advance_counters()
        state = self._state()
        if state != self._rates_state:
            self._rates, self._rates_state = self._compute_rates() if self.loads else None, state
        return self._rates

    def _advance_counters(self) -> None:
        if self._recompute_due:
            return  # all changes at this moment count as one
        now = self._clock.now()
        if self._rates is None and self.loads:  # computed late: the rates apply since the last change
            self._rates, self._rates_state = self._compute_rates(), self._state()
        took_s, self._counted_until = now - self._counted_until, now
        rates = self._rates
        if rates is None or took_s <= 0:
            return
        self._sent += rates.sent * took_s
        self._received += rates.received * took_s
        self._dropped += rates.dropped * took_s
        for slice, by_node in rates.slices.items():
            current = self._slices.setdefault(slice, {})
            for node, each in by_node.items():
                before = current.setdefault(node, [0.0, 0.0, 0.0])
                current[node] = [had + gbps * took_s for had, gbps in zip(before, each, strict=True)]

    def _state(self) -> object:
        """Return everything that the rates depend on. It is cheap to compare, since tables are replaced, never
        mutated."""
        if not self.loads:
            return None
        return (
            tuple(self.loads.items()),
            tuple(
                (n.powered, tuple(n.ports.items()), tuple(n.unreported_losses.items()), tuple(n.tables.values()))
                for n in self._nodes
            ),
        )

    def read(self, node: str) -> CounterSample | None:
        """Return a node's current counters, or None if it never had any traffic."""
        self.rates()
        at = self._index[node]
        slices = {slice: current[at] for slice, current in self._slices.items() if at in current}
        if not slices and not any(each[at].any() for each in (self._sent, self._received, self._dropped)):
            return None
        return CounterSample(
            at=self._counted_until,
            sent_gb=self._sent[at].tolist(),
            received_gb=self._received[at].tolist(),
            dropped_gb=self._dropped[at].tolist(),
            slices={slice: (each[0], each[1], each[2]) for slice, each in slices.items()},
        )

    # -- rates --------------------------------------------------------------------------------------------------------

    def _compute_rates(self) -> Rates:
        self._bursts.clear()
        forwarded = {slice for node in self._nodes for slice in node.tables}
        self._slices = {slice: counted for slice, counted in self._slices.items() if slice in forwarded}
        self._offered, offers = {}, list[Offer]()
        for name, load in self.loads.items():
            for offer in self._offers(load):
                self._offered.setdefault(name, []).append(len(offers))
                offers.append(offer)
        ports = self._ports = SharedPorts(self._port_groups(), self._names, offers)
        groups = ports.groups
        shape = groups.carries.shape
        found = Rates(np.zeros(shape), np.zeros(shape), np.zeros(shape))
        moved = np.zeros((3, len(self._nodes), len(groups.groups)))
        for pieces, gbps in zip(ports.pieces, ports.moving(), strict=True):
            dropped = np.where(gbps > 0, 0.0, pieces.gbps)
            found.offers.append((float(gbps.sum()), float(dropped.sum())))
            self._accumulate(found.slices, moved, pieces, gbps, dropped, groups)
        for number, members in enumerate(groups.groups):
            for into, each in zip((found.sent, found.received, found.dropped), moved, strict=True):
                into[:, members] = each[:, [number]] / len(members)
        return found

    def _port_groups(self) -> PortGroups:
        """Return the current port groups, which depend neither on loads nor on tables."""
        condition = [
            (node.supernode, node.powered, tuple(node.ports.items()), tuple(node.unreported_losses.items()))
            for node in self._nodes
        ]
        if self._groups is None or self._groups[0] != condition:
            self._groups = condition, port_groups(self._spec, self._nodes)
        return self._groups[1]

    def _offers(self, load: Load) -> list[Offer]:
        """Return a load's offers, one for each slice."""
        senders = None if load.members is None else set(load.members)
        return [
            Offer(
                slice, load.pattern, load.gbps_per_npu, programs,
                [node for node in programs if senders is None or node in senders], load.target_nodes(),
            )
            for slice, programs in self.tables_by_slice(load).items()
        ]  # fmt: skip

    def load_rates(self, name: str) -> tuple[float, float]:
        """Return (sent, dropped) of a load over all of its senders now, in GB/s."""
        rates = self.rates()
        own = [rates.offers[number] for number in self._offered.get(name, ())] if rates is not None else []
        return sum(sent for sent, _ in own), sum(dropped for _, dropped in own)

    def burst(self, name: str) -> Burst | None:
        """Return the bandwidth that a burst of this load gets beside current traffic; None if it has no bursts."""
        load = self.loads[name]
        if not load.bursts:
            return None
        self.rates()
        if self._ports is None:
            return None
        if name not in self._bursts:
            self._bursts[name] = self._compute_burst(load, self._ports, self._offered.get(name, []))
        return self._bursts[name]

    def _compute_burst(self, load: Load, ports: SharedPorts, own: list[int]) -> Burst:
        found = Burst()
        exchanges = []
        for slice, programs in self.tables_by_slice(load).items():
            if load.pattern == "all-to-all" and load.is_complete(programs):
                exchanges.append(ports.exchange_gbps(slice, programs, own))
                found.gbps_per_die = min(exchanges)
            left = ports.left(slice, programs)
            found.ports |= {node: BurstPorts(**asdict(each)) for node, each in left.items()}
        return found

    @staticmethod
    def _accumulate(
        slices: dict[str, dict[int, list[float]]],
        moved: Floats,
        pieces: Subflows,
        gbps: Floats,
        dropped: Floats,
        groups: PortGroups,
    ) -> None:
        """Add a load's pieces to the traffic of their slice and of their port groups."""
        by_node = slices.setdefault(pieces.slice, {})
        from_dead = groups.group_gbps[pieces.source, pieces.group] <= 0
        dead = np.where(from_dead, pieces.source, pieces.target)
        np.add.at(moved[0], (pieces.source, pieces.group), gbps)
        np.add.at(moved[1], (pieces.target, pieces.group), gbps)
        np.add.at(moved[2], (dead, pieces.group), dropped)
        for row, (ends, values) in enumerate(((pieces.source, gbps), (pieces.target, gbps), (pieces.source, dropped))):
            sums = np.bincount(ends, values, len(moved[0]))
            for node in np.unique(ends).tolist():
                by_node.setdefault(node, [0.0, 0.0, 0.0])[row] += float(sums[node])
