"""The numbers of `calibration.yaml` as one frozen value, so that a fit or a sweep can change one of them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml


@dataclass(frozen=True)
class Calibration:
    """Rates, efficiencies and fitted constants. Units are in the names and in the file, with every number's source."""

    int8_tops: float
    bf16_tflops: float
    hbm_gbps: float
    hbm_gb: float
    attention_compute_efficiency: float
    memory_efficiency: float
    gemm_efficiency: float
    ub_efficiency: float
    ub_cpu_read_gbps: float
    cpu_ub_gbps: float
    cpus_per_node: int
    rdma_efficiency: float
    vpc_efficiency: float
    obs_gbps: float
    dispatch_token_bytes: int
    combine_token_bytes: int
    exchange_copies: int
    exchange_base_us: float
    dispatch_issue_us: float
    dispatch_issue_growth_us: float
    combine_issue_us: float
    combine_issue_growth_us: float
    vector_us: float
    layer_gap_us: float
    overlap: float
    decode_imbalance: float
    prefill_imbalance: float
    microbatch_from_per_npu: int
    launch_ms: float
    mtp_acceptance: float
    prefill_tokens_per_npu: int
    decode_batch_per_npu: int
    paper_nodes: int
    paper_prefill_nodes: int
    nodes_per_prefill_instance: int
    exchange_buffers_gb: float
    runtime_gb: float
    node_dram_gb: float
    cache_dram_share: float
    cache_block_us: float
    cache_request_ms: float
    transfer_request_ms: float
    executor_start_s: float
    graph_load_s: float
    decode_recovery_s: float
    role_switch_s: float


def entries() -> dict[str, dict[str, Any]]:
    """Every number with its unit, kind and source, as the file has them."""
    document: dict[str, dict[str, Any]] = yaml.safe_load(
        files("infer_workload.timing").joinpath("calibration.yaml").read_text()
    )
    return document


@lru_cache
def load_calibration() -> Calibration:
    current = entries()
    return Calibration(**{field.name: current[field.name]["value"] for field in fields(Calibration)})
