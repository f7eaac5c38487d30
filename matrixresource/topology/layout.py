"""Builder of the regular machine: the vertices and links of a supernode by name, from the counts of its spec.

Only `graph.py` and the compiler use these records; decisions read the compiled graph. A sub-plane has one L1 switch in
every node and 16 L2 switches in the communication cabinets; an L1 switch has one link to each die and CPU of its node
and one uplink to each L2 switch of its sub-plane. An NPU's two dies reach the RDMA plane through leaves of different
subnets; a node's Qingtian card reaches the VPC plane.

A link is named after the node it belongs to and its port there: `sn0-c03-n2.ub-p3-k11` is the uplink of sub-plane 3 to
L2 switch 11, `sn0-c03-n2.npu5-die1-p2` a die's link, `sn0-c03-n2.cpu0-p2` a CPU's, `sn0-c03-n2.rdma-npu5-die0` an RDMA
port, `sn0-c03-n2.vpc` the Qingtian card's, `sn0-c03-n2.npu5-d2d` the link between the dies of one package. Links
between RDMA switches belong to the leaf: `sn0-c03-leaf1.spine4`. Every link is full duplex, at its rate each way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from matrixresource.topology.spec import SupernodeSpec


@dataclass(frozen=True, slots=True)
class Vertex:
    """A piece of hardware. `plane` and `sub_plane` are set on switches, `node` on parts inside a node."""

    name: str
    kind: str  # npu, die, cpu, l1, l2, leaf, spine, qingtian, fabric
    cabinet: str | None = None
    node: str | None = None
    plane: str | None = None
    sub_plane: int | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A full-duplex link between two vertices. `capacity_gbps` is GB/s each way, `latency_us` microseconds one way;
    `node` is None between switches."""

    name: str
    kind: str  # npu-l1, die-l1, cpu-l1, l1-l2, die-die, die-leaf, npu-leaf, leaf-spine, qingtian-fabric
    ends: tuple[str, str]
    capacity_gbps: float
    latency_us: float
    plane: str
    sub_plane: int | None = None
    node: str | None = None

    @property
    def port(self) -> str:
        """The link's name on its own node or leaf, such as `ub-p3-k11`."""
        return self.name.partition(".")[2]


@dataclass(frozen=True, slots=True)
class Layout:
    """Names and links of the supernode `name` built to `spec`."""

    spec: SupernodeSpec
    name: str = "sn0"

    # ---- names ------------------------------------------------------------------------------------------------------

    def compute_cabinets(self) -> list[str]:
        return [self._cabinet(c) for c in range(self.spec.supernode.compute_cabinets)]

    def communication_cabinets(self) -> list[str]:
        first = self.spec.supernode.compute_cabinets
        return [self._cabinet(first + c) for c in range(self.spec.supernode.communication_cabinets)]

    def _cabinet(self, number: int) -> str:
        """All cabinets have the same number of digits, at least two, so that names sort in the order of the machine."""
        digits = max(2, len(str(self.spec.supernode.cabinets - 1)))
        return f"{self.name}-c{number:0{digits}d}"

    def nodes(self, cabinet: str | None = None) -> list[str]:
        cabinets = self.compute_cabinets() if cabinet is None else [cabinet]
        return [f"{c}-n{n}" for c in cabinets for n in range(self.spec.cabinet.nodes)]

    def npus(self, node: str) -> list[str]:
        return [f"{node}-npu{k}" for k in range(self.spec.node.npus)]

    def dies(self, node: str) -> list[str]:
        return [f"{npu}-die{d}" for npu in self.npus(node) for d in range(self.spec.npu.dies)]

    def cpus(self, node: str) -> list[str]:
        return [f"{node}-cpu{k}" for k in range(self.spec.node.cpus)]

    def l1(self, node: str, sub_plane: int) -> str:
        return f"{node}-l1p{sub_plane}"

    def l2(self, sub_plane: int, index: int) -> str:
        return f"{self.name}-l2p{sub_plane}-k{index:02d}"

    def leaf(self, cabinet: str, subnet: int) -> str:
        return f"{cabinet}-leaf{subnet}"

    def l2_cabinet(self, sub_plane: int, index: int) -> str:
        """The communication cabinet of an L2 switch: each cabinet holds the same share of every sub-plane."""
        device = index // self.spec.ub.bus_device_l2_switches
        cabinets = self.communication_cabinets()
        return cabinets[device % len(cabinets)]

    def bus_device(self, sub_plane: int, index: int) -> str:
        """The bus device that contains an L2 switch, for example `sn0-c13-bus4`: numbered within its cabinet, sub-plane
        by sub-plane."""
        cabinets = self.spec.supernode.communication_cabinets
        per_plane = self.spec.ub.bus_devices_per_sub_plane // cabinets
        device = index // self.spec.ub.bus_device_l2_switches
        return f"{self.l2_cabinet(sub_plane, index)}-bus{sub_plane * per_plane + device // cabinets}"

    # ---- vertices ---------------------------------------------------------------------------------------------------

    def endpoints(self) -> Iterator[Vertex]:
        """The dies, then the CPUs, node by node."""
        for cabinet in self.compute_cabinets():
            for node in self.nodes(cabinet):
                for name in self.dies(node):
                    yield Vertex(name, "die", cabinet, node)
                for name in self.cpus(node):
                    yield Vertex(name, "cpu", cabinet, node)

    def ub_switches(self) -> Iterator[Vertex]:
        for cabinet in self.compute_cabinets():
            for node in self.nodes(cabinet):
                for plane in range(self.spec.ub.sub_planes):
                    yield Vertex(self.l1(node, plane), "l1", cabinet, node, "ub", plane)
        for plane in range(self.spec.ub.sub_planes):
            for k in range(self.spec.ub.l2_per_sub_plane):
                yield Vertex(self.l2(plane, k), "l2", self.l2_cabinet(plane, k), None, "ub", plane)

    def rdma_switches(self) -> Iterator[Vertex]:
        for cabinet in self.compute_cabinets():
            for subnet in range(self.spec.rdma.subnets):
                yield Vertex(self.leaf(cabinet, subnet), "leaf", cabinet, None, "rdma", subnet)
        for spine in range(self.spec.rdma.spines):
            yield Vertex(f"{self.name}-spine{spine}", "spine", None, None, "rdma")

    def vpc_vertices(self) -> Iterator[Vertex]:
        for cabinet in self.compute_cabinets():
            for node in self.nodes(cabinet):
                yield Vertex(f"{node}-qingtian", "qingtian", cabinet, node, "vpc")
        yield Vertex(f"{self.name}-fabric", "fabric", None, None, "vpc")

    # ---- links ------------------------------------------------------------------------------------------------------

    def ub_links(self, node: str) -> Iterator[Link]:
        """A node's links of the UB plane: endpoints to L1, L1 to L2, and between the two dies of a package."""
        spec = self.spec
        for plane in range(spec.ub.sub_planes):
            l1 = self.l1(node, plane)
            for npu in range(spec.node.npus):
                for die in range(spec.npu.dies):
                    ends = (f"{node}-npu{npu}-die{die}", l1)
                    name = f"{node}.npu{npu}-die{die}-p{plane}"
                    yield self._link(name, "die-l1", ends, spec.die.ub_link_gbps, "ub", plane, node)
            for cpu in range(spec.node.cpus):
                ends = (f"{node}-cpu{cpu}", l1)
                yield self._link(f"{node}.cpu{cpu}-p{plane}", "cpu-l1", ends, spec.cpu.ub_link_gbps, "ub", plane, node)
            for k in range(spec.ub.l2_per_sub_plane):
                ends = (l1, self.l2(plane, k))
                yield self._link(f"{node}.ub-p{plane}-k{k:02d}", "l1-l2", ends, spec.ub.uplink_gbps, "ub", plane, node)
        for npu in range(self.spec.node.npus if spec.npu.dies > 1 else 0):
            ends = (f"{node}-npu{npu}-die0", f"{node}-npu{npu}-die1")
            yield self._link(f"{node}.npu{npu}-d2d", "die-die", ends, spec.die.die_to_die_gbps, "ub", None, node)

    def rdma_links(self, node: str) -> Iterator[Link]:
        """A node's links to the RDMA leaves of its cabinet; each die of a package to a subnet of its own."""
        cabinet = node.rpartition("-")[0]
        for npu in range(self.spec.node.npus):
            for die in range(self.spec.npu.dies):
                ends = (f"{node}-npu{npu}-die{die}", self.leaf(cabinet, die))
                name = f"{node}.rdma-npu{npu}-die{die}"
                yield self._link(name, "die-leaf", ends, self.spec.die.rdma_gbps, "rdma", die, node)

    def rdma_trunks(self) -> Iterator[Link]:
        """Links between RDMA leaves and spines, an assumption of the spec."""
        for cabinet in self.compute_cabinets():
            for subnet in range(self.spec.rdma.subnets):
                leaf = self.leaf(cabinet, subnet)
                for k in range(self.spec.rdma.spines):
                    ends = (leaf, f"{self.name}-spine{k}")
                    yield self._link(
                        f"{leaf}.spine{k}", "leaf-spine", ends, self.spec.rdma.leaf_spine_gbps, "rdma", subnet
                    )

    def vpc_links(self, node: str) -> Iterator[Link]:
        ends = (f"{node}-qingtian", f"{self.name}-fabric")
        yield self._link(f"{node}.vpc", "qingtian-fabric", ends, self.spec.node.vpc_gbps, "vpc", None, node)

    def _link(
        self,
        name: str,
        kind: str,
        ends: tuple[str, str],
        capacity_gbps: float,
        plane: str,
        sub_plane: int | None = None,
        node: str | None = None,
    ) -> Link:
        """With the latency of its kind."""
        return Link(name, kind, ends, capacity_gbps, self.spec.latency.of(kind), plane, sub_plane, node)
