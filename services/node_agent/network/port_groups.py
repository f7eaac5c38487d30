"""The ports of all nodes as they truly are, in groups that carry the same, for sharing offered load over them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.port_order import port_order
from matrixresource.agent.hardware import EmulatedNode
from matrixresource.topology.spec import SupernodeSpec

Floats = NDArray[np.float64]


class PortGroups:
    """The ports of a node, by their number in `PortOrder.outward`, and which of them are worked out as one: the uplinks
    of a sub-plane to the L2 chips that are whole on every node."""

    def __init__(self, spec: SupernodeSpec, nodes: Sequence[EmulatedNode]) -> None:
        self.spec, self.order = spec, port_order(spec)
        planes, chips = range(spec.ub.sub_planes), range(spec.ub.l2_per_sub_plane)
        uplinks, rdma = self.order.uplinks, self.order.nodes[Plane.RDMA]
        self.ports = self.order.outward
        built = [spec.ub.uplink_gbps] * len(uplinks) + [spec.die.rdma_gbps] * len(rdma) + [spec.node.vpc_gbps]
        share = np.array([[node.carries_towards(port) for port in self.ports] for node in nodes])
        self.carries: Floats = share * np.array(built)
        self.powered = np.array([node.powered for node in nodes])
        whole = (share[self.powered] == 1.0).all(axis=0) if self.powered.any() else np.ones(len(self.ports), bool)
        self.groups: list[list[int]] = []
        self.of_chip: dict[tuple[int, int], int] = {}
        for p in planes:
            numbers = [p * len(chips) + k for k in chips]
            sound = [number for number in numbers if whole[number]]
            for group in ([sound] if sound else []) + [[number] for number in numbers if not whole[number]]:
                for number in group:
                    self.of_chip[p, number - p * len(chips)] = len(self.groups)
                self.groups.append(group)
        self.first_rdma = len(uplinks)
        self.group_of_port = {len(uplinks) + at: len(self.groups) + at for at in range(len(rdma) + 1)}
        self.groups += [[number] for number in self.group_of_port]
        dies = [self._dies_gbps(node) for node in nodes]
        self.group_gbps: Floats = np.array([[self.carries[n][g].sum() for g in self.groups] for n in range(len(nodes))])
        self.dies_gbps: Floats = np.array(dies)

    def _dies_gbps(self, node: EmulatedNode) -> list[float]:
        """What the dies of a node have together on each sub-plane."""
        spec, dies = self.spec, self.order.dies
        return [
            spec.die.ub_link_gbps * sum(node.carries(f"{die}-p{p}") for die in dies) for p in range(spec.ub.sub_planes)
        ]

    def ways(self, plane: str, stripes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, float]]:
        """Groups of ports and the part of the traffic that a table puts on each."""
        chips, spec = self.spec.ub.l2_per_sub_plane, self.spec
        for stripe in stripes:
            p, weight, spread = int(stripe["sub_plane"]), float(stripe["weight"]), stripe.get("spread") or ()
            if plane == Plane.UB:
                parts: dict[int, float] = defaultdict(float)
                for k in range(chips):
                    parts[self.of_chip[p, k]] += spread[k] if spread else 1 / chips
                yield from ((group, weight * part) for group, part in parts.items() if part > 0)
            elif plane == Plane.RDMA:
                for npu in range(spec.node.npus):
                    port = self.first_rdma + npu * spec.npu.dies + p
                    yield self.group_of_port[port], weight / spec.node.npus
            else:
                yield self.group_of_port[len(self.ports) - 1], weight

    def sub_plane(self, group: int) -> int | None:
        """The UB sub-plane that a group's ports belong to."""
        first = self.groups[group][0]
        return first // self.spec.ub.l2_per_sub_plane if first < self.first_rdma else None
