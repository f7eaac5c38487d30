"""The fabric of a trial with losses, or with a neighbour that sends traffic on the instance's nodes.

The bandwidth of the instance's flows is computed as on emulated ports (`matrixlink.fabric.contention`), on demand and
once per collective. A trial with a healthy fabric of its own builds none of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from infer_workload.experiments.trial import SHARES, Trial
from infer_workload.timing.calibration import Calibration
from infer_workload.timing.fabric import RDMA, UB, VPC
from matrixcommon.model.hardware_names import NPUS_PER_NODE
from matrixlink.fabric.contention.offers import Offer
from matrixlink.fabric.contention.port_groups import PortGroups, PortShape
from matrixlink.fabric.contention.ports_left import AvailablePorts
from matrixlink.fabric.contention.programs import PortCondition, Tenant
from matrixlink.fabric.contention.shared_ports import SharedPorts

OWN, NEIGHBOUR = "own", "neighbour"


def shape_of(machine: Calibration) -> PortShape:
    """The ports of a node, from the machine's file."""
    chips = max(1, round(machine.ub_uplink_gbps / machine.ub_port_gbps))
    return PortShape(
        machine.ub_sub_planes, chips, NPUS_PER_NODE, machine.dies_per_npu,
        machine.ub_port_gbps, machine.ub_port_gbps, machine.rdma_port_gbps, machine.vpc_node_gbps,
    )  # fmt: skip


class TrialContention:
    """The bandwidth of the instance's flows in a trial, on `nodes`; the neighbour is on all of them."""

    def __init__(self, trial: Trial, nodes: tuple[str, ...], machine: Calibration) -> None:
        self._trial, self._nodes, self._machine = trial, nodes, machine
        self._exchanges: dict[frozenset[str], float] = {}
        self._free_bandwidth: dict[str, Mapping[str, AvailablePorts]] = {}

    def exchange_gbps(self, nodes: frozenset[str]) -> float | None:
        if nodes not in self._exchanges:
            programs = self._condition.programs(self._tenant(UB, tuple(sorted(nodes))))
            self._exchanges[nodes] = self._ports.exchange_gbps(OWN, programs)
        return self._exchanges[nodes]

    def free_bandwidth(self, plane: str, node: str) -> AvailablePorts | None:
        if plane not in self._free_bandwidth:
            self._free_bandwidth[plane] = self._ports.left(
                OWN, self._condition.programs(self._tenant(plane, self._nodes))
            )
        return self._free_bandwidth[plane].get(node)

    @cached_property
    def _ports(self) -> SharedPorts:
        now, trial, offers = self._condition, self._trial, []
        if trial.neighbour_load:
            gbps = self._node_gbps(trial.neighbour_plane) * trial.neighbour_load
            programs = now.programs(Tenant(NEIGHBOUR, trial.neighbour_plane, self._nodes, trial.neighbour_weight))
            offers.append(Offer(NEIGHBOUR, "all-to-all", gbps / NPUS_PER_NODE, programs, self._nodes))
        return SharedPorts(PortGroups(now.shape, now.share, now.die_share), self._nodes, offers)

    @cached_property
    def _condition(self) -> PortCondition:
        """The damaged fabric: lost L2 chips, spread over the sub-planes round-robin, and nodes with half of their
        lanes."""
        made = PortCondition.whole(shape_of(self._machine), self._nodes)
        for lost in range(self._trial.lost_l2_chips):
            chip, plane = divmod(lost, made.shape.sub_planes)
            made.share[:, plane * made.shape.chips + chip] = 0.0
        made.share[: self._trial.half_lanes, : made.shape.uplinks] *= 0.5
        return made

    def _tenant(self, plane: str, members: tuple[str, ...]) -> Tenant:
        has = self._node_gbps(plane)
        share = getattr(self._trial, SHARES[plane])
        floor = self._trial.floor_share * has if plane == self._trial.neighbour_plane else 0.0
        return Tenant(OWN, plane, members, 1.0, floor, None if share == 1 else max(floor, share * has))

    def _node_gbps(self, plane: str) -> float:
        """Bandwidth of all ports of a healthy node on that plane, GB/s."""
        machine = self._machine
        return {
            UB: machine.ub_uplink_gbps * machine.ub_sub_planes,
            RDMA: machine.rdma_node_gbps,
            VPC: machine.vpc_node_gbps,
        }[plane]
