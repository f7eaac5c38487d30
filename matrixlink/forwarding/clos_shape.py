"""ClosShape: the sizes of a UB plane, and the numbering of its chips, endpoints, ports and links.

A sub-plane has one L1 chip per node and `chips` L2 chips per supernode. Several supernodes are joined by third-level
chips, `spines` of them for each L2 number, each with a trunk to that L2 chip of every supernode. A single supernode has
none.

Numbers: nodes are numbered throughout the supernodes; endpoint e of a node is die e, or CPU e - dies after the dies. An
L1 chip's ports are its endpoints, then its L2 chips; an L2 chip's are the nodes of its supernode, then its third-level
chips; a third-level chip's are the supernodes. Links are directed and numbered sub-plane by sub-plane, in six blocks
each (`LINK_BLOCKS`), so that rates or loads of all links are one array with a row per sub-plane. Rates are GB/s;
`share` is the part of its built rate that a link has left.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixcommon.model.errors import InvalidField
from matrixresource.topology import SupernodeSpec

NONE = -1
"""The table entry for "no way"."""
CHIPS_MAX = 32
"""Working chips are kept as bits of one word."""

LINK_BLOCKS = ("end-up", "end-down", "cable-up", "cable-down", "trunk-up", "trunk-down")

Ints = NDArray[np.int64]
Words = NDArray[np.uint32]
Bools = NDArray[np.bool_]
Ports = NDArray[Any]
"""Port numbers are bytes, or two bytes if an L2 chip has too many ports."""


@dataclass(frozen=True)
class ClosShape:
    """A UB plane by its sizes; the defaults are those of the published CloudMatrix384."""

    nodes: int = 48
    sub_planes: int = 7
    dies: int = 16
    cpus: int = 4
    chips: int = 16
    supernodes: int = 1
    spines: int = 0
    die_gbps: float = 28.0
    cpu_gbps: float = 160 / 7
    uplink_gbps: float = 28.0

    def __post_init__(self) -> None:
        if self.chips == 0:
            raise InvalidField(
                "the UB plane ends at the node, so there are no forwarding tables and no flows between nodes",
                field="chips",
            )
        for name in ("nodes", "sub_planes", "dies", "chips", "supernodes"):
            if getattr(self, name) < 1:
                raise InvalidField("must be at least 1", field=name)
        if max(self.chips, self.spines) > CHIPS_MAX:
            raise InvalidField(
                f"a choice can be among at most {CHIPS_MAX} L2 chips or third-level chips", field="chips"
            )
        if self.ends + self.chips > 127:
            raise InvalidField("an L1 chip has at most 127 ports", field="dies")
        if max(self.nodes + self.spines, self.supernodes) > 32_767:
            raise InvalidField("a chip has at most 32767 ports", field="nodes")
        if (self.supernodes > 1) != (self.spines > 0):
            raise InvalidField("several supernodes need third-level chips, and one must have none", field="spines")

    @classmethod
    def of(cls, spec: SupernodeSpec) -> ClosShape:
        """One supernode as its spec has it."""
        return cls(
            nodes=spec.supernode.nodes, sub_planes=spec.ub.sub_planes, dies=spec.node.dies, cpus=spec.node.cpus,
            chips=spec.ub.l2_per_sub_plane, die_gbps=spec.die.ub_link_gbps,
            cpu_gbps=spec.cpu.ub_link_gbps, uplink_gbps=spec.ub.uplink_gbps,
        )  # fmt: skip

    @functools.cached_property
    def ends(self) -> int:
        """Endpoints of a node."""
        return self.dies + self.cpus

    @functools.cached_property
    def all_nodes(self) -> int:
        return self.nodes * self.supernodes

    @functools.cached_property
    def port_type(self) -> type[np.signedinteger[Any]]:
        """For the ports of an L2 or third-level chip; an L2 chip has one for each node."""
        return np.int8 if max(self.nodes + self.spines, self.supernodes) <= 127 else np.int16

    @property
    def switches(self) -> int:
        return self.sub_planes * (self.all_nodes + self.chips * (self.supernodes + self.spines))

    @functools.cached_property
    def chip_of_endpoint(self) -> Ints:
        """The rule: die d uses the L2 chip of that number, CPU c the chip of that number."""
        return np.concatenate([np.arange(self.dies), np.arange(self.cpus)]) % self.chips

    @functools.cached_property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """How each kind of element is numbered; the first number is the sub-plane.

        end: node, endpoint · cable: node, L2 · trunk: supernode, L2, third-level chip · l1: node · l2: supernode, L2 ·
        l3: L2, third-level chip.
        """
        planes, nodes = self.sub_planes, self.all_nodes
        return {
            "end": (planes, nodes, self.ends),
            "cable": (planes, nodes, self.chips),
            "trunk": (planes, self.supernodes, self.chips, self.spines),
            "l1": (planes, nodes),
            "l2": (planes, self.supernodes, self.chips),
            "l3": (planes, self.chips, self.spines),
        }

    @functools.cached_property
    def link_starts(self) -> dict[str, int]:
        """The number of the first link of each block, within a sub-plane."""
        sizes = [math.prod(self.sizes[block.partition("-")[0]][1:]) for block in LINK_BLOCKS]
        return dict(zip(LINK_BLOCKS, itertools.accumulate(sizes, initial=0), strict=False))

    @functools.cached_property
    def links(self) -> int:
        """Directed links of a sub-plane."""
        return 2 * sum(math.prod(self.sizes[kind][1:]) for kind in ("end", "cable", "trunk"))

    @functools.cached_property
    def built_gbps(self) -> NDArray[np.float64]:
        """The rate of every directed link of a sub-plane at full rate."""
        ends = np.full(self.sizes["end"][1:], self.die_gbps)
        ends[..., self.dies :] = self.cpu_gbps
        cables, trunks = (np.full(self.sizes[kind][1:], self.uplink_gbps).ravel() for kind in ("cable", "trunk"))
        return np.concatenate([ends.ravel(), ends.ravel(), cables, cables, trunks, trunks])
