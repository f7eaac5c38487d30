"""The numbers that make up one CloudMatrix384.

`SupernodeSpec` is loaded (`loading.py`) from a YAML file in which every figure is listed with its public source and a
confidence mark. Loading checks each section for unknown and missing fields and for types, each figure for a known
source and mark, and then recomputes every sum and product that the hardware must obey (`cross_checks.py`): a spec that
does not add up is refused with the field's path. `layout.py` turns the numbers into vertices and edges.

Rates are GB/s (10^9 bytes per second) one way, written `_gbps`; latencies are microseconds one way, written `_us`.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from matrixcommon.model.errors import InvalidField


class InvalidSpec(InvalidField):
    """The spec file is inconsistent. `field` is the path of the offending figure, for example `die.ub_links`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message, field=field or None)


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of the file and its origin: `path` such as `node.npus`, source titles, mark, note."""

    path: str
    value: float
    sources: tuple[str, ...]
    mark: str
    note: str = ""


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class DieSpec(Section):
    cube_cores: int
    vector_cores: int
    bf16_tflops: float
    int8_tops: float
    hbm_gb: int
    hbm_tb_per_s: float
    ub_links: int
    ub_link_gbps: float
    ub_gbps: float
    rdma_gbps: float
    die_to_die_gbps: float


class NpuSpec(Section):
    dies: int
    bf16_tflops: float
    int8_tops: float
    hbm_gb: int
    hbm_tb_per_s: float
    ub_gbps: float
    rdma_gbps: float


class CpuSpec(Section):
    ub_gbps: float
    ub_links: int

    @property
    def ub_link_gbps(self) -> float:
        return self.ub_gbps / self.ub_links


class NodeSpec(Section):
    npus: int
    dies: int
    cpus: int
    l1_switches: int
    qingtian_cards: int
    vpc_gbps: float
    dram_gib: int
    ub_gbps: float
    ub_optical_ports: int
    ub_optical_port_gbps: float
    rdma_optical_ports: int


class CabinetSpec(Section):
    nodes: int
    npus: int
    l1_switches: int
    ub_optical_links: int


class TotalsSpec(Section):
    cabinets: int
    compute_cabinets: int
    communication_cabinets: int
    nodes: int
    npus: int
    dies: int
    cpus: int
    l1_switches: int
    l2_switches: int
    optical_modules: int
    logical_block_spares: int


class UbSpec(Section):
    sub_planes: int
    l2_per_sub_plane: int
    l2_ports: int
    uplink_gbps: float
    l1_uplink_gbps: float
    bus_devices: int
    bus_device_ports: int
    bus_device_l2_switches: int
    bus_devices_per_sub_plane: int
    bus_devices_per_cabinet: int
    optical_links: int
    optical_modules: int

    @property
    def between_nodes(self) -> bool:
        """Whether the plane connects nodes; otherwise it ends at the node, which then has no uplinks."""
        return self.l2_per_sub_plane > 0


class RdmaSpec(Section):
    subnets: int
    leaves_per_subnet: int
    spines: int
    leaf_spine_gbps: float
    optical_modules: int


class VpcSpec(Section):
    uplinks: int


class LatencySpec(Section):
    """Latency of one link of each kind, including the switch that it leads to."""

    die_die_us: float
    die_l1_us: float
    cpu_l1_us: float
    l1_l2_us: float
    die_leaf_us: float
    leaf_spine_us: float
    qingtian_fabric_us: float

    def of(self, kind: str) -> float:
        """The latency of a link of that kind (`layout.Link.kind`)."""
        on_die = kind.replace("npu-", "die-")
        return float(getattr(self, f"{on_die.replace('-', '_')}_us"))

    def between_nodes_us(self, plane: str) -> float:
        """The sum over the links of a path between two nodes, up through the switches of the plane and down again."""
        up = {
            "ub": self.die_l1_us + self.l1_l2_us,
            "rdma": self.die_leaf_us + self.leaf_spine_us,
            "vpc": self.qingtian_fabric_us,
        }[plane]
        return round(2 * up, 6)


class SupernodeSpec(Section):
    """Counts and rates of one supernode. Sections are plain numbers; `figures` has their origins. Specs with the same
    numbers are equal wherever they were read, so that they share what was compiled."""

    model: str
    die: DieSpec
    npu: NpuSpec
    cpu: CpuSpec
    node: NodeSpec
    cabinet: CabinetSpec
    supernode: TotalsSpec
    ub: UbSpec
    rdma: RdmaSpec
    vpc: VpcSpec
    latency: LatencySpec
    figures: tuple[Figure, ...] = ()

    @classmethod
    def sections(cls) -> tuple[str, ...]:
        return tuple(name for name in cls.model_fields if name not in ("model", "figures"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SupernodeSpec) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Twelve hex digits that change when any number changes: the spec's part of a topologyVersion."""
        numbers = json.dumps(self.model_dump(exclude={"figures"}), sort_keys=True)
        return hashlib.sha256(numbers.encode()).hexdigest()[:12]
