"""Telemetry by link, switch, node, plane, slice or project.

Rates of ports are summed along the fabric; capacities and promises come from the same Fabric and ledger that admission
uses. Headroom is what could still be promised: capacity minus floors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from matrixcommon.model.planes import Plane
from matrixcommon.model.quantities import timestamp
from matrixlink.contract.telemetry import LinkMatrixView, TelemetryView
from matrixlink.link_health.fault_localisation import FaultLocaliser
from matrixlink.slices.slice_controller import SliceController
from matrixlink.store.tables import SliceRow
from matrixlink.telemetry.matrix import link_matrix
from matrixlink.telemetry.rates import PortRates
from matrixresource.topology.compiled import CompiledTopology

GROUPS = ("link", "switch", "node", "plane", "slice", "project")


@dataclass
class Aggregate:
    """The sums for one object."""

    name: str
    plane: str | None
    sent: float = 0.0
    received: float = 0.0
    dropped: float = 0.0
    capacity: float = 0.0
    floors: float = 0.0
    latencies: list[float] = field(default_factory=list)
    at: float | None = None
    project: str | None = None

    def add(self, part: Aggregate) -> None:
        """Add a part of it."""
        self.sent, self.received = self.sent + part.sent, self.received + part.received
        self.dropped, self.capacity = self.dropped + part.dropped, self.capacity + part.capacity
        self.floors += part.floors
        self.latencies += part.latencies
        self.at = max(self.at or 0.0, part.at or 0.0) or None

    def view(self, by: str) -> TelemetryView:
        busiest = max(self.sent, self.received)
        return TelemetryView(
            name=self.name,
            by=by,
            plane=None if self.plane is None else Plane(self.plane),
            project=self.project,
            sent_gbps=round(self.sent, 4),
            received_gbps=round(self.received, 4),
            dropped_gbps=round(self.dropped, 4),
            capacity_gbps=round(self.capacity, 4),
            utilisation=round(busiest / self.capacity, 4) if self.capacity > 0 else None,
            floors_gbps=round(self.floors, 4),
            headroom_gbps=round(max(0.0, self.capacity - self.floors), 4),
            latency_us=round(sum(self.latencies) / len(self.latencies), 3) if self.latencies else None,
            sampled_at=None if self.at is None else timestamp(self.at),
        )


class Telemetry:
    """Answers `by` any of GROUPS."""

    def __init__(self, slice_controller: SliceController, rates: PortRates, diagnosis: FaultLocaliser) -> None:
        self.rates = rates
        self._slice_controller = slice_controller
        self._fabric = slice_controller.fabric
        self._diagnosis = diagnosis
        self._by: dict[str, Callable[[], Iterable[Aggregate]]] = {
            "link": self._links, "switch": self._switches, "node": self._nodes, "plane": self._planes,
            "slice": self._slices, "project": self._projects,
        }  # fmt: skip
        self._planes_of = [self._fabric.ports.plane_of[port] for port in rates.ports]
        self._ends: dict[str, tuple[CompiledTopology, dict[str, list[str]]]] = {}

    def by(self, group: str) -> list[TelemetryView]:
        return [found.view(group) for found in self._by[group]()]

    def matrix(self, plane: str, supernode: str) -> LinkMatrixView:
        """Raises NotFound, InvalidField."""
        return link_matrix(self._fabric, self.rates, plane, supernode)

    # -- ports --------------------------------------------------------------------------------------------------------

    def _links(self) -> list[Aggregate]:
        """Every uplink, RDMA port and card of nodes whose rates are known, including idle ones."""
        ledger, found = self._slice_controller.promises.ledger, []
        for node, gbps in self.rates.nodes().items():
            latency_us, at = self._diagnosis.latency_us.get(node, {}), self.rates.at(node)
            for number, port in enumerate(self.rates.ports):
                plane = self._planes_of[number]
                name = f"{node}.{port}"
                each = Aggregate(name, plane, capacity=self._fabric.rate(node, port), at=at)
                each.sent, each.received, each.dropped = gbps[:, number].tolist()
                each.floors = float(ledger.booked(name))
                if plane in latency_us:
                    each.latencies.append(latency_us[plane])
                found.append(each)
        return found

    def _added(self, keys: Callable[[str, str, str], Iterable[tuple[str, str | None]]]) -> list[Aggregate]:
        """All links summed under the keys (name, plane) that a link's node, port and plane map to."""
        sums: dict[str, Aggregate] = {}
        for link in self._links():
            node, _, port = link.name.partition(".")
            for name, plane in keys(node, port, str(link.plane)):
                sums.setdefault(name, Aggregate(name, plane)).add(link)
        return list(sums.values())

    def _planes(self) -> list[Aggregate]:
        return self._added(lambda node, port, plane: [(plane, plane)])

    def _nodes(self) -> list[Aggregate]:
        return self._added(lambda node, port, plane: [(f"{node}.{plane}", plane)])

    def _switches(self) -> list[Aggregate]:
        """L1 and L2 chips by what nodes' uplinks send into and receive from them, leaves by the RDMA ports."""

        def ends(node: str, port: str, plane: str) -> list[tuple[str, str | None]]:
            known = self._switches_at(node) if self._fabric.has(node) else {}
            return [(switch, plane) for switch in known.get(f"{node}.{port}", ())]

        return self._added(ends)

    def _switches_at(self, node: str) -> dict[str, list[str]]:
        """By link, the switches at its ends, for the supernode of a node; read from its graph once."""
        supernode = self._fabric.supernode_of(node)
        known = self._ends.get(supernode.name)
        if known is None or known[0] is not supernode.topology:
            switches = {each.name for each in supernode.switches()}
            ends = {link.name: [end for end in link.ends if end in switches] for link in supernode.links()}
            known = self._ends[supernode.name] = supernode.topology, ends
        return known[1]

    # -- slices -------------------------------------------------------------------------------------------------------

    def _rows(self) -> list[SliceRow]:
        with self._slice_controller.store.reading() as session:
            return self._slice_controller.store.slices(session)

    def _slices(self) -> list[Aggregate]:
        """What each slice moves over all its members; its capacity is what its members may use of their uplinks
        according to their FabricView."""
        moving, found = self.rates.slices(), []
        for row in self._rows():
            each = Aggregate(row.name, row.plane, project=row.project)
            for node, rates in moving.get(row.name, {}).items():
                each.add(Aggregate(node, None, *rates, at=self.rates.at(node)))
            nodes = (row.fabric_view or {}).get("nodes", {})
            each.capacity = sum(sum(ports["uplinkGbps"]) for ports in nodes.values())
            each.floors = row.floor_gbps * row.kept * self._fabric.spec.node.npus * len(row.members)
            each.latencies = [
                us for node in row.members if (us := self._diagnosis.latency_us.get(node, {}).get(row.plane))
            ]
            found.append(each)
        return found

    def _projects(self) -> list[Aggregate]:
        """A project's slices together, by plane."""
        sums: dict[str, Aggregate] = {}
        for each in self._slices():
            name = f"{each.project}.{each.plane}"
            sums.setdefault(name, Aggregate(name, each.plane, project=each.project)).add(each)
        return list(sums.values())
