"""Consistency checks on the numbers of a supernode.

Each check states a relation as a sentence and compares a figure of the file with the one derived from others: cabinets
from nodes, rates from links, cables counted at both ends, optical modules against cables. `spec.py` refuses a file in
which one of them fails.
"""

from __future__ import annotations

from dataclasses import dataclass

from matrixresource.topology.spec import SupernodeSpec


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """One relation between the numbers: what the file states, and what follows from other figures."""

    field: str
    sentence: str
    stated: float
    derived: float

    @property
    def holds(self) -> bool:
        return abs(self.stated - self.derived) <= 1e-9 * max(abs(self.stated), 1.0)


def cross_checks(spec: SupernodeSpec) -> list[CrossCheck]:
    """Every relation, as a sentence with the stated and the derived number."""
    die, npu, node, cabinet, total, ub, rdma = (
        spec.die, spec.npu, spec.node, spec.cabinet, spec.supernode, spec.ub, spec.rdma,
    )  # fmt: skip
    leaf_down = node.npus * cabinet.nodes * die.rdma_gbps
    rdma_cables = 2 * rdma.subnets * rdma.leaves_per_subnet * rdma.spines * rdma.leaf_spine_gbps / npu.rdma_gbps
    return [*_uplink_checks(spec),
        CrossCheck("die.ub_links", "a die has one link to each sub-plane", die.ub_links, ub.sub_planes),
        CrossCheck("die.ub_gbps", "UB of a die", die.ub_gbps, die.ub_links * die.ub_link_gbps),
        CrossCheck("die.int8_tops", "INT8 is twice BF16", die.int8_tops, 2 * die.bf16_tflops),
        CrossCheck("npu.ub_gbps", "UB of an NPU", npu.ub_gbps, npu.dies * die.ub_gbps),
        CrossCheck("npu.rdma_gbps", "RDMA of an NPU", npu.rdma_gbps, npu.dies * die.rdma_gbps),
        CrossCheck("npu.bf16_tflops", "BF16 of an NPU", npu.bf16_tflops, npu.dies * die.bf16_tflops),
        CrossCheck("npu.int8_tops", "INT8 of an NPU", npu.int8_tops, npu.dies * die.int8_tops),
        CrossCheck("npu.hbm_gb", "HBM of an NPU", npu.hbm_gb, npu.dies * die.hbm_gb),
        CrossCheck("npu.hbm_tb_per_s", "HBM rate of an NPU", npu.hbm_tb_per_s, npu.dies * die.hbm_tb_per_s),
        CrossCheck("cpu.ub_links", "a CPU has one link to each L1 switch", spec.cpu.ub_links, node.l1_switches),
        CrossCheck("node.dies", "dies of a node", node.dies, node.npus * npu.dies),
        CrossCheck("node.l1_switches", "one L1 switch per sub-plane", node.l1_switches, ub.sub_planes),
        CrossCheck("node.ub_gbps", "NPUs of a node", node.ub_gbps, node.npus * npu.ub_gbps),
        CrossCheck("node.rdma_optical_ports", "one RDMA cable per NPU", node.rdma_optical_ports, node.npus),
        CrossCheck("cabinet.npus", "NPUs of a cabinet", cabinet.npus, cabinet.nodes * node.npus),
        CrossCheck("cabinet.l1_switches", "L1 switches of a cabinet", cabinet.l1_switches,
                   cabinet.nodes * node.l1_switches),
        CrossCheck("cabinet.ub_optical_links", "UB cables of a cabinet", cabinet.ub_optical_links,
                   cabinet.nodes * node.ub_optical_ports),
        CrossCheck("supernode.cabinets", "cabinets", total.cabinets,
                   total.compute_cabinets + total.communication_cabinets),
        CrossCheck("supernode.nodes", "nodes", total.nodes, total.compute_cabinets * cabinet.nodes),
        CrossCheck("supernode.npus", "NPUs", total.npus, total.nodes * node.npus),
        CrossCheck("supernode.dies", "dies", total.dies, total.nodes * node.dies),
        CrossCheck("supernode.cpus", "CPUs", total.cpus, total.nodes * node.cpus),
        CrossCheck("supernode.l1_switches", "L1 switches", total.l1_switches, total.nodes * node.l1_switches),
        CrossCheck("supernode.l2_switches", "L2 switches", total.l2_switches, ub.sub_planes * ub.l2_per_sub_plane),
        CrossCheck("supernode.optical_modules", "optical modules", total.optical_modules,
                   ub.optical_modules + rdma.optical_modules),
        CrossCheck("ub.l1_uplink_gbps", "uplinks of an L1 switch", ub.l1_uplink_gbps,
                   ub.l2_per_sub_plane * ub.uplink_gbps),
        CrossCheck("ub.bus_device_l2_switches", "L2 switches in bus devices", total.l2_switches,
                   ub.bus_devices * ub.bus_device_l2_switches),
        CrossCheck("ub.bus_devices_per_sub_plane", "bus devices by sub-plane", ub.bus_devices,
                   ub.sub_planes * ub.bus_devices_per_sub_plane),
        CrossCheck("ub.bus_devices_per_cabinet", "bus devices by cabinet", ub.bus_devices,
                   total.communication_cabinets * ub.bus_devices_per_cabinet),
        CrossCheck("ub.optical_links", "cables at the nodes", ub.optical_links,
                   total.nodes * node.ub_optical_ports),
        CrossCheck("ub.bus_device_ports", "cables at the bus devices", ub.optical_links,
                   ub.bus_devices * ub.bus_device_ports),
        CrossCheck("ub.optical_modules", "a module at each end of a cable", ub.optical_modules,
                   2 * ub.optical_links),
        CrossCheck("rdma.subnets", "the dies of an NPU in different subnets", rdma.subnets, npu.dies),
        CrossCheck("rdma.leaves_per_subnet", "one leaf per cabinet and subnet", rdma.leaves_per_subnet,
                   total.compute_cabinets),
        CrossCheck("rdma.leaf_spine_gbps", "a leaf is non-blocking", rdma.spines * rdma.leaf_spine_gbps,
                   leaf_down),
        CrossCheck("rdma.optical_modules", "modules of NPU and spine cables", rdma.optical_modules,
                   2 * total.npus + rdma_cables),
        CrossCheck("vpc.uplinks", "one VPC uplink per Qingtian card", spec.vpc.uplinks,
                   total.nodes * node.qingtian_cards),
    ]  # fmt: skip


def _uplink_checks(spec: SupernodeSpec) -> list[CrossCheck]:
    """Relations where the UB plane connects nodes."""
    node, ub = spec.node, spec.ub
    if not ub.between_nodes:
        return [CrossCheck("ub.uplink_gbps", "without L2 switches there are no uplinks", ub.uplink_gbps, 0)]
    return [
        CrossCheck("node.ub_gbps", "uplinks of a node", node.ub_gbps, ub.sub_planes * ub.l1_uplink_gbps),
        CrossCheck("node.ub_optical_port_gbps", "optics of a node", node.ub_gbps,
                   node.ub_optical_ports * node.ub_optical_port_gbps),
        CrossCheck("ub.l2_ports", "one port per node on an L2 switch", ub.l2_ports, spec.supernode.nodes),
    ]  # fmt: skip
