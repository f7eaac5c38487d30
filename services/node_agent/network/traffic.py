"""EmulatedTraffic: the load that workloads put on the emulated ports, what of it gets through, and the ports' counters.

A load is what a workload does: so much from each NPU of a slice's members to the others, in a pattern. It goes by what
is in the switches' tables, not by what anybody requested: a node without a table sends nothing, stripes and detours say
over which sub-planes and L2 chips, and a port that carries less than it says is found out by the bytes. Rates are
the fabric core's, guarantee plus share by the floors and weights in the tables
(`matrixlink/fabric/sharing/max_min_arrays.py`). UB and RoCE are lossless: what is too much waits at the sender, and
only what goes into a port that carries nothing is dropped.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from matrixcommon.model.clock import Clock
from matrixcommon.model.hardware_names import NodeName
from matrixlink.fabric.condition.port_order import port_order
from matrixlink.fabric.sharing.max_min_arrays import fair_rates, on_links
from matrixlink.fabric.sharing.traffic import traffic
from matrixlink.ports import CounterSample
from matrixresource.agent.hardware import EmulatedNode
from matrixresource.topology.spec import SupernodeSpec
from services.node_agent.network.port_groups import PortGroups
from services.node_agent.network.traffic_patterns import Load, Table, demands

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a member's load that takes one way: through a group of ports out of one node and into another."""

    slice: str
    source: int
    target: int
    out: int
    into: int
    gbps: float
    """Offered."""
    part: float
    """Of all that its source offers on the slice."""


@dataclass
class Rates:
    """What moves now, GB/s: by node and port, and by slice and node (sent, received, dropped)."""

    sent: Floats
    received: Floats
    dropped: Floats
    slices: dict[str, dict[int, list[float]]] = field(default_factory=dict)


class EmulatedTraffic:
    """Loads by name on these nodes, and their counters on the emulated clock."""

    def __init__(self, nodes: Mapping[NodeName, EmulatedNode], spec: SupernodeSpec, clock: Clock) -> None:
        self.loads: dict[str, Load] = {}
        self._spec = spec
        self._clock = clock
        self._until = clock.now()
        self._rates: Rates | None = None
        self._seen: object = None
        self._due = False
        self._names: list[str] = []
        ports = len(port_order(spec).outward)
        self._sent, self._received, self._dropped = (np.zeros((0, ports)) for _ in range(3))
        self._slices: dict[str, dict[int, list[float]]] = {}
        self._lay_out(nodes)

    # -- nodes --------------------------------------------------------------------------------------------------------

    def change_nodes(self, nodes: Mapping[NodeName, EmulatedNode]) -> None:
        """Other nodes from now on; those that stay go on counting."""
        self._count()
        self._lay_out(nodes)
        self._rates = self._seen = None

    def _lay_out(self, nodes: Mapping[NodeName, EmulatedNode]) -> None:
        before = {name: at for at, name in enumerate(self._names)}
        self._names, self._nodes = [str(name) for name in nodes], list(nodes.values())
        self._index = {name: at for at, name in enumerate(self._names)}
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
        self._count()
        self.loads[name] = load
        self.settle()

    def remove(self, name: str) -> None:
        self._count()
        del self.loads[name]
        self.settle()

    def loads_of(self, load: Load) -> dict[str, dict[str, Table]]:
        """By slice that a load goes by, the tables of the nodes that have power."""
        current: dict[str, dict[str, Table]] = defaultdict(dict)
        only = None if load.members is None else set(load.members)
        for name, node in zip(self._names, self._nodes, strict=True):
            if only is not None and name not in only:
                continue
            for slice, table in node.tables.items() if node.powered else ():
                if load.means(slice, table):
                    current[slice][name] = table
        return current

    # -- time ---------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Count what moved up to now. To be called when anything changed, at the moment it did; what moves from now on
        is worked out once when all that changes in this moment has."""
        self._count()
        if self._state() != self._seen:
            self._rates = None
            with suppress(RuntimeError):  # without a loop whoever asks next works it out
                if self.loads and not self._due:
                    asyncio.get_running_loop().call_soon(self._work_due)
                    self._due = True

    def _work_due(self) -> None:
        self._due = False
        self.rates()

    def rates(self) -> Rates | None:
        """What moves now; None where nobody offers anything."""
        self._due = False
        self._count()
        state = self._state()
        if state != self._seen:
            self._rates, self._seen = self._work_out() if self.loads else None, state
        return self._rates

    def _count(self) -> None:
        if self._due:
            return  # everything that changes in this moment counts as one change
        now = self._clock.now()
        if self._rates is None and self.loads:  # worked out late: it holds since the last change
            self._rates, self._seen = self._work_out(), self._state()
        took_s, self._until = now - self._until, now
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
        """All that rates depend on, cheap to compare: tables are replaced and never changed."""
        if not self.loads:
            return None
        return (
            tuple(self.loads.items()),
            tuple(
                (n.powered, tuple(n.ports.items()), tuple(n.silent.items()), tuple(n.tables.values()))
                for n in self._nodes
            ),
        )

    def read(self, node: str) -> CounterSample | None:
        """A node's counters now; None where nothing ever moved."""
        self.rates()
        at = self._index[node]
        slices = {slice: current[at] for slice, current in self._slices.items() if at in current}
        if not slices and not self._dropped[at].any():
            return None
        return CounterSample(
            at=self._until,
            sent_gb=self._sent[at].tolist(),
            received_gb=self._received[at].tolist(),
            dropped_gb=self._dropped[at].tolist(),
            slices={slice: (each[0], each[1], each[2]) for slice, each in slices.items()},
        )

    # -- rates --------------------------------------------------------------------------------------------------------

    def _work_out(self) -> Rates:
        groups = PortGroups(self._spec, self._nodes)
        pieces = [piece for load in self.loads.values() for piece in self._pieces(load, groups)]
        shape = groups.carries.shape
        found = Rates(np.zeros(shape), np.zeros(shape), np.zeros(shape))
        if not pieces:
            return found
        got = _shared(pieces, groups, self._terms)
        moved = np.zeros((3, len(self._nodes), len(groups.groups)))
        for piece, gbps in zip(pieces, got.tolist(), strict=True):
            self._put_down(found.slices, moved, piece, gbps, groups)
        for number, ports in enumerate(groups.groups):
            for into, each in zip((found.sent, found.received, found.dropped), moved, strict=True):
                into[:, ports] = each[:, [number]] / len(ports)
        return found

    def _pieces(self, load: Load, groups: PortGroups) -> Iterator[Piece]:
        known: dict[int, list[tuple[int, float]]] = {}
        for slice, tables in self.loads_of(load).items():
            offered = load.gbps_per_npu * self._spec.node.npus
            for source, target, gbps in demands(load.pattern, sorted(tables), offered, load.target):
                table = tables[source]
                if target not in table["peers"] or table["isolation_key"] != tables[target]["isolation_key"]:
                    continue  # no route, or a key that the other side does not let in
                stripes = table["detours"].get(target, table["stripes"])
                a, b = self._index[source], self._index[target]
                ways = known.get(id(stripes))
                if ways is None:
                    ways = known[id(stripes)] = list(groups.ways(table["plane"], stripes))
                for group, part in ways:
                    yield Piece(slice, a, b, group, group, gbps * part, gbps * part / offered)

    def _terms(self, piece: Piece) -> tuple[float, float, float]:
        """Weight, floor and ceiling of a piece, by its source's table: its part of the node's."""
        table = self._nodes[piece.source].tables[piece.slice]
        ceiling = table.get("ceiling_gbps")
        most = piece.gbps if ceiling is None else min(piece.gbps, ceiling * piece.part)
        return table["weight"] * piece.part, min(most, table["floor_gbps"] * piece.part), most

    @staticmethod
    def _put_down(
        slices: dict[str, dict[int, list[float]]], moved: Floats, piece: Piece, gbps: float, groups: PortGroups
    ) -> None:
        """Add a piece to what its slice and its groups of ports carry."""
        by_node = slices.setdefault(piece.slice, {})
        sender = by_node.setdefault(piece.source, [0.0, 0.0, 0.0])
        receiver = by_node.setdefault(piece.target, [0.0, 0.0, 0.0])
        if gbps > 0:
            moved[0, piece.source, piece.out] += gbps
            moved[1, piece.target, piece.into] += gbps
            sender[0] += gbps
            receiver[1] += gbps
            return
        dead = piece.source if groups.group_gbps[piece.source, piece.out] <= 0 else piece.target
        moved[2, dead, piece.out] += piece.gbps
        sender[2] += piece.gbps


def _shared(
    pieces: Sequence[Piece], groups: PortGroups, terms: Callable[[Piece], tuple[float, float, float]]
) -> Floats:
    """GB/s of each piece. Links are: a node's groups of ports out, the same in, its dies out and in by sub-plane."""
    nodes, count = groups.group_gbps.shape
    planes = groups.spec.ub.sub_planes
    dies_out = 2 * nodes * count
    dies_in = dies_out + nodes * planes
    capacity = np.concatenate(
        [groups.group_gbps.ravel(), groups.group_gbps.ravel(), groups.dies_gbps.ravel(), groups.dies_gbps.ravel()]
    )
    paths = np.full((len(pieces), 4), -1, np.int64)
    for at, piece in enumerate(pieces):
        p = groups.sub_plane(piece.out)
        paths[at, :2] = piece.source * count + piece.out, nodes * count + piece.target * count + piece.into
        if p is not None:
            paths[at, 2:] = dies_out + piece.source * planes + p, dies_in + piece.target * planes + p
    weight, floor, ceiling = (np.array(each) for each in zip(*map(terms, pieces), strict=True))
    made = traffic(capacity, paths, weight=weight, floor=_fitting(capacity, paths, floor), ceiling=ceiling)
    return fair_rates(made)


def _fitting(capacity: Floats, paths: NDArray[np.int64], floor: Floats) -> Floats:
    """Floors as far as the ports carry them: they were promised by the hose model and on links that were whole; where
    more is asked of a port, all floors over it yield alike."""
    booked = on_links(traffic(capacity, paths, ceiling=np.inf), floor)
    fits = np.ones(len(capacity))
    np.divide(capacity, booked, out=fits, where=booked > capacity)
    scale = np.where(paths >= 0, fits[np.maximum(paths, 0)], 1.0).min(axis=1)
    return floor * scale * (1 - 1e-12)
