"""Merge `calibration.yaml`, `fitted.yaml` and a machine's file into one frozen value, of which a fit or a sweep can
replace single constants.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from infer_workload.timing.data_files import (
    BadDataFile,
    check_rates,
    list_packaged,
    locate,
    number,
    read_document,
    read_packaged,
)
from matrixcommon.model.hardware_names import NPUS_PER_NODE

MACHINE = "cloudmatrix384"
UB, RDMA, VPC = "ub", "rdma", "vpc"
FITTED_FILE = "fitted.yaml"
AT_LEAST = {
    "cube_cores": 2, "cpus_per_node": 1, "decode_batch_per_npu": 1, "dies_per_npu": 1, "nodes_per_prefill_instance": 1,
    "paper_nodes": 2, "paper_prefill_nodes": 1, "passage_tokens": 1, "prefill_tokens_per_npu": 1, "straggle_ranks": 2,
    "ub_sub_planes": 1,
}  # fmt: skip
"""Minimum of each count: two streams share the cores, and every pool has at least one node."""
ABOVE_ZERO = frozenset((
    "attention_compute_efficiency", "bf16_tflops", "bulk_combine_efficiency", "bulk_dispatch_efficiency",
    "cpu_ub_gbps", "gemm_efficiency", "hbm_gb", "hbm_gbps", "int8_tops", "memory_efficiency", "obs_gbps",
    "rdma_efficiency", "rdma_port_gbps", "ssd_gbps", "ub_cpu_read_gbps", "ub_efficiency", "ub_port_gbps",
    "ub_saturating_cores", "vector_gbps", "vector_scale", "vpc_efficiency",
))  # fmt: skip
"""Rates and efficiencies that must not be 0, because a transfer or computation would never end. A node's rate on a
plane may be 0 (the machine lacks that plane), and so may a start time."""


@dataclass(frozen=True)
class Calibration:
    """Rates, efficiencies and fitted constants. Units are in the names and in the files, with every number's source."""

    int8_tops: float
    bf16_tflops: float
    hbm_gbps: float
    hbm_gb: float
    attention_compute_efficiency: float
    memory_efficiency: float
    gemm_efficiency: float
    vector_scale: float
    cube_cores: int
    ub_saturating_cores: float
    ub_port_gbps: float
    ub_sub_planes: int
    ub_uplink_gbps: float
    rdma_port_gbps: float
    rdma_node_gbps: float
    vpc_node_gbps: float
    ub_latency_us: float
    rdma_latency_us: float
    vpc_latency_us: float
    ub_efficiency: float
    ub_cpu_read_gbps: float
    cpu_ub_gbps: float
    cpus_per_node: int
    dies_per_npu: int
    rdma_efficiency: float
    vpc_efficiency: float
    bulk_dispatch_efficiency: float
    bulk_combine_efficiency: float
    dispatch_token_bytes: int
    combine_token_bytes: int
    exchange_copies: int
    sequence_skew: float
    routing_spread: float
    passage_tokens: int
    straggle_share: float
    straggle_ranks: int
    shared_copies_min: int
    sampling_passes: int
    exchange_start_us: float
    dispatch_issue_us: float
    exchange_growth_us: float
    vector_gbps: float
    launch_us: float
    microbatch_from_per_npu: int
    launch_ms: float
    mtp_acceptance: float
    prefill_tokens_per_npu: int
    decode_batch_per_npu: int
    obs_gbps: float
    paper_nodes: int
    paper_prefill_nodes: int
    nodes_per_prefill_instance: int
    exchange_buffers_gb: float
    runtime_gb: float
    node_dram_gb: float
    cache_dram_share: float
    cache_block_us: float
    ssd_gbps: float
    cache_request_ms: float
    transfer_request_ms: float
    executor_start_s: float
    graph_load_s: float
    rank_rebuild_s: float

    @property
    def dies_per_node(self) -> int:
        return NPUS_PER_NODE * self.dies_per_npu

    @property
    def planes(self) -> tuple[str, ...]:
        """The planes that connect nodes: those on which a node has a rate above 0."""
        rates = {UB: self.ub_uplink_gbps, RDMA: self.rdma_node_gbps, VPC: self.vpc_node_gbps}
        return tuple(plane for plane, gbps in rates.items() if gbps > 0)

    @property
    def memory_plane(self) -> str:
        """The plane over which a node reads other nodes' memory: UB if it connects nodes, else VPC."""
        return UB if UB in self.planes else VPC

    @property
    def cache_gb_per_node(self) -> float:
        """A node's default share of DRAM for the context cache (GB)."""
        return self.node_dram_gb * self.cache_dram_share


def entries(machine: str = MACHINE) -> dict[str, dict[str, Any]]:
    """Return every constant with its unit, kind and source. The machine's file is validated and overrides the others.

    Raises UnknownDataFile if there is no such machine, and BadDataFile naming the invalid field.
    """
    file = locate("machines", machine)
    read = read_document(file)
    check_rates(file.name, read)
    known = {field.name: field.type for field in fields(Calibration)}
    found = {**read_packaged("calibration.yaml"), **read_packaged(FITTED_FILE)}
    for field, entry in read.items():
        if field == "name":
            continue
        if field not in known:
            raise BadDataFile(file.name, field, "no such constant")
        least, whole = AT_LEAST.get(field, 0), known[field] == "int"
        value = number(file.name, field, entry["value"], least=least, whole=whole)
        if field in ABOVE_ZERO and not value:
            raise BadDataFile(file.name, field, "must be a number above 0")
        found[field] = {**entry, "value": value}
    for field in known:
        if field not in found:
            raise BadDataFile(file.name, field, "missing")
    _check(file.name, {field: entry["value"] for field, entry in found.items()})
    return found


def _check(file: str, values: dict[str, Any]) -> None:
    """Check constraints between constants. Raises BadDataFile."""
    if values["paper_prefill_nodes"] >= values["paper_nodes"]:
        raise BadDataFile(file, "paper_prefill_nodes", f"must be fewer than the {values['paper_nodes']} paper_nodes")
    if values["prefill_tokens_per_npu"] < values["dies_per_npu"]:
        raise BadDataFile(file, "prefill_tokens_per_npu", f"must be at least the {values['dies_per_npu']} dies_per_npu")


def machines(folder: Path | None = None) -> dict[str, Calibration]:
    """Return every machine by name: the packaged ones and those in `folder`, which win where names are equal.

    Raises BadDataFile, naming the field, for an invalid file in the folder.
    """
    found = {name: load_calibration(name) for name in list_packaged("machines")}
    for file in sorted(folder.glob("*.yaml")) if folder is not None else ():
        machine, own = load_calibration(str(file)), read_document(file)
        if "name" not in own:
            raise BadDataFile(file.name, "name", "missing")
        found[str(own["name"]["value"])] = machine
    return found


@cache
def load_calibration(machine: str = MACHINE) -> Calibration:
    """Return the constants of that machine. Raises what `entries` raises."""
    current = entries(machine)
    return Calibration(**{field.name: current[field.name]["value"] for field in fields(Calibration)})
