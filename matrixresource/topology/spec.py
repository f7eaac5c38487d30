"""What one CloudMatrix384 is made of, in numbers.

`SupernodeSpec` is loaded from a YAML file in which every figure stands beside its public source and a mark of
confidence. On load each section is checked for unknown and missing fields and for types, each figure for a known source
and mark, and then every sum and product that the hardware must obey is recomputed (`cross_checks.py`): a spec that does
not add up is refused with the field's path. What the numbers mean as vertices and edges is left to `layout.py`.

Rates are GB/s (10^9 bytes per second) one way, written `_gbps`.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from matrixcommon.model.errors import InvalidField

MARKS = ("C2", "C1", "DER", "REC", "ASSUMED")
DEFAULT_FILE = Path(__file__).with_name("cloudmatrix384.yaml")


class InvalidSpec(InvalidField):
    """The spec file cannot be believed. `field` is the path of the figure at fault, for example `die.ub_links`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}", field=field)


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of the file with where it comes from: `path` such as `node.npus`, source titles, mark, note."""

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


class RdmaSpec(Section):
    subnets: int
    leaves_per_subnet: int
    spines: int
    leaf_spine_gbps: float
    optical_modules: int


class VpcSpec(Section):
    uplinks: int


class SupernodeSpec(Section):
    """Counts and rates of one supernode. Sections are plain numbers; `figures` says where each comes from."""

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
    figures: tuple[Figure, ...] = ()

    @classmethod
    def load(cls, path: Path | None = None) -> SupernodeSpec:
        """The spec in `path`, by default the published CloudMatrix384. Raises InvalidSpec with the field's path."""
        return _default() if path is None else cls.parse(yaml.safe_load(path.read_text(encoding="utf-8")))

    @classmethod
    def parse(cls, document: Any) -> SupernodeSpec:
        """A spec from the loaded YAML document, checked whole. Raises InvalidSpec with the field's path."""
        if not isinstance(document, Mapping):
            raise InvalidSpec("", "a spec is a mapping of sections")
        figures = tuple(_figures(document))
        numbers: dict[str, Any] = {key: value for key, value in document.items() if key not in cls._sections()}
        numbers.pop("sources", None)
        for name in cls._sections():
            if name in document:
                numbers[name] = {key: cell["value"] for key, cell in document[name].items()}
        try:
            spec = cls(**numbers, figures=figures)
        except ValidationError as error:
            first = error.errors()[0]
            raise InvalidSpec(".".join(str(part) for part in first["loc"]), first["msg"].lower()) from error
        from matrixresource.topology.cross_checks import cross_checks

        for check in cross_checks(spec):
            if not check.holds:
                raise InvalidSpec(check.field, f"{check.sentence}: {check.stated:g} stated, {check.derived:g} derived")
        return spec

    @classmethod
    def _sections(cls) -> tuple[str, ...]:
        return tuple(name for name in cls.model_fields if name not in ("model", "figures"))

    @functools.cached_property
    def fingerprint(self) -> str:
        """Twelve hex digits that change when any number changes: the spec's part of a topologyVersion."""
        numbers = json.dumps(self.model_dump(exclude={"figures"}), sort_keys=True)
        return hashlib.sha256(numbers.encode()).hexdigest()[:12]


def _figures(document: Mapping[str, Any]) -> Iterator[Figure]:
    titles = document.get("sources", {})
    for section, cells in document.items():
        if section in ("sources", "model"):
            continue
        if not isinstance(cells, Mapping):
            raise InvalidSpec(str(section), "a section is a mapping of figures")
        for key, cell in cells.items():
            yield _figure(f"{section}.{key}", cell, titles)


def _figure(path: str, cell: Any, titles: Mapping[str, str]) -> Figure:
    if not isinstance(cell, Mapping) or "value" not in cell:
        raise InvalidSpec(path, "a figure has a value, its source and a mark")
    for key in cell:
        if key not in ("value", "source", "mark", "note"):
            raise InvalidSpec(f"{path}.{key}", "unknown field")
    value = cell["value"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise InvalidSpec(path, "a figure is a positive number")
    mark, codes = cell.get("mark"), cell.get("source")
    if mark not in MARKS:
        raise InvalidSpec(f"{path}.mark", f"one of {', '.join(MARKS)}")
    if not isinstance(codes, list) or (not codes and mark != "ASSUMED"):
        raise InvalidSpec(f"{path}.source", "a published figure names its source")
    for code in codes:
        if code not in titles:
            raise InvalidSpec(f"{path}.source", f"{code} is not among the sources")
    return Figure(path, cell["value"], tuple(titles[code] for code in codes), mark, cell.get("note", ""))


@functools.cache
def _default() -> SupernodeSpec:
    return SupernodeSpec.parse(yaml.safe_load(DEFAULT_FILE.read_text(encoding="utf-8")))
