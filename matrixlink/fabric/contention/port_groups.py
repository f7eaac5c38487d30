"""The ports of some nodes, grouped by equal rates, for sharing traffic over them.

A node's outward ports are numbered: its uplinks, by sub-plane and L2 chip, its dies' RDMA ports, its card on the VPC
plane. The uplinks of a sub-plane that have their full rate on every node form one group; any other port is a group of
its own. Inside a node, its dies have per sub-plane the sum of their links. GB/s each way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class PortShape:
    """How many ports a node has, and the full rate of each."""

    sub_planes: int
    chips: int
    npus: int
    dies_per_npu: int
    uplink_gbps: float
    die_gbps: float
    rdma_gbps: float
    vpc_gbps: float

    @classmethod
    def of(cls, spec: PortSpec) -> PortShape:
        ub, die = spec.ub, spec.die
        return cls(
            ub.sub_planes, ub.l2_per_sub_plane, spec.node.npus, spec.npu.dies,
            ub.uplink_gbps, die.ub_link_gbps, die.rdma_gbps, spec.node.vpc_gbps,
        )  # fmt: skip

    @property
    def dies(self) -> int:
        return self.npus * self.dies_per_npu

    @property
    def uplinks(self) -> int:
        return self.sub_planes * self.chips

    @property
    def ports(self) -> int:
        """Outward ports of a node."""
        return self.uplinks + self.dies + 1

    def built(self) -> Floats:
        """The full rate of each outward port, GB/s."""
        return np.array([self.uplink_gbps] * self.uplinks + [self.rdma_gbps] * self.dies + [self.vpc_gbps], np.float64)


class PortSpec(Protocol):
    """The numbers of a supernode that concern ports."""

    @property
    def ub(self) -> Any: ...
    @property
    def die(self) -> Any: ...
    @property
    def npu(self) -> Any: ...
    @property
    def node(self) -> Any: ...


class PortGroups:
    """`share`: the share of its built rate that each outward port carries (nodes x ports); `die_share`: the same for
    the dies' links (nodes x dies x sub-planes). Nodes without `power` do not affect which ports count as being at full
    rate."""

    def __init__(self, shape: PortShape, share: Floats, die_share: Floats, power: Bools | None = None) -> None:
        self.shape = shape
        self.carries: Floats = share * shape.built()
        self.power = np.ones(len(share), bool) if power is None else power
        whole = (share[self.power] == 1.0).all(axis=0) if self.power.any() else np.ones(shape.ports, bool)
        self.groups: list[list[int]] = []
        self.of_chip: dict[tuple[int, int], int] = {}
        for p in range(shape.sub_planes):
            numbers = [p * shape.chips + k for k in range(shape.chips)]
            sound = [number for number in numbers if whole[number]]
            for group in ([sound] if sound else []) + [[number] for number in numbers if not whole[number]]:
                for number in group:
                    self.of_chip[p, number - p * shape.chips] = len(self.groups)
                self.groups.append(group)
        self.first_rdma = len(self.groups)
        self.groups += [[number] for number in range(shape.uplinks, shape.ports)]
        self.group_gbps: Floats = np.array([[node[group].sum() for group in self.groups] for node in self.carries])
        self.dies_gbps: Floats = die_share.sum(axis=1) * shape.die_gbps
        """The sum of the dies' links of a node in each sub-plane (nodes x sub-planes)."""
        self.die_share = die_share
        self.impaired_dies: Bools = (die_share != 1.0).any(axis=(1, 2))
        """Nodes with some die that has lost something."""

    def ways(self, plane: str, stripes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, float]]:
        """Groups of ports and the part of the traffic that a program's stripes put on each."""
        chips, shape = self.shape.chips, self.shape
        for stripe in stripes:
            p, weight, spread = int(stripe["sub_plane"]), float(stripe["weight"]), stripe.get("spread") or ()
            if plane == "ub":
                parts: dict[int, float] = defaultdict(float)
                for k in range(chips):
                    parts[self.of_chip[p, k]] += spread[k] if spread else 1 / chips
                yield from ((group, weight * part) for group, part in parts.items() if part > 0)
            elif plane == "rdma":
                for npu in range(shape.npus):
                    yield self.first_rdma + npu * shape.dies_per_npu + p, weight / shape.npus
            else:
                yield len(self.groups) - 1, weight

    def sub_plane(self, group: int) -> int:
        """The UB sub-plane of a group's ports; -1 on other planes."""
        return self.groups[group][0] // self.shape.chips if group < self.first_rdma else -1

    def groups_of(self, plane: str) -> list[list[int]]:
        """The numbers of a plane's groups, by sub-plane; RDMA and VPC have one sub-plane."""
        if plane == "ub":
            found: list[list[int]] = [[] for _ in range(self.shape.sub_planes)]
            for group in range(self.first_rdma):
                found[self.sub_plane(group)].append(group)
            return found
        last = len(self.groups) - 1
        return [[last]] if plane == "vpc" else [list(range(self.first_rdma, last))]
