"""Ablations: the model's prediction of what each of the paper's mechanisms gains.

The paper measured these by switching one mechanism off. Its results are used nowhere in this package, so these are
predictions that can be compared with them. The inputs are those that the paper states: decode with 4K of KV cache at
64, 96 and 128 requests per NPU, prefill of 16,384 tokens per NPU, one draft token at 70 % acceptance, prompts of 4K of
which up to 90 % is reused in blocks over UB or VPC, and a model of 671 GB loaded by eight instances from a store of
2.5 GB/s.
"""

from __future__ import annotations

from dataclasses import dataclass

from infer_workload.ems.model_cache import ModelCache
from infer_workload.experiments.validation.settings import decode_timing, prefill_rate, prefill_timing, whole_fabric
from infer_workload.timing.calibration import Calibration
from infer_workload.timing.collectives import cache_fetch_s
from infer_workload.timing.decode import StepOptions
from infer_workload.timing.fabric import UB, VPC
from infer_workload.timing.model import load_model

CONTEXT = 4096
PAPER_DIES = 512
BLOCK = 128
RATE, SECONDS = "tokens/s/NPU", "s"


@dataclass(frozen=True)
class Effect:
    """One mechanism at one operating point, without it and with it: a rate, or seconds or GB, where less is better."""

    mechanism: str
    point: str
    unit: str
    without: float
    with_it: float

    @property
    def gain(self) -> float:
        return self.with_it / self.without - 1.0


def effects(calibration: Calibration) -> list[Effect]:
    """Return the predicted effects of all mechanisms."""
    return [
        *_decode_microbatch(calibration),
        *_prefill_microbatch(calibration),
        *_mtp(calibration),
        *_context_cache(calibration),
        *_model_cache(calibration),
    ]


def _decode_rate(current: Calibration, batch: int, options: StepOptions) -> float:
    timing = decode_timing(320, current, options)
    return batch * timing.tokens_per_step / timing.exact_step_s(batch / 2, batch / 2 * CONTEXT)


def _decode_microbatch(current: Calibration) -> list[Effect]:
    one, two = StepOptions(microbatch=False), StepOptions(microbatch=True)
    return [
        Effect(
            "decode microbatches", f"batch {batch}", RATE,
            _decode_rate(current, batch, one), _decode_rate(current, batch, two),
        )
        for batch in (64, 96, 128)
    ]  # fmt: skip


def _prefill_microbatch(current: Calibration) -> list[Effect]:
    one, two = (prefill_timing(32, current, microbatch=on) for on in (False, True))
    return [
        Effect(
            "prefill microbatches", f"prompts of {prompt}", RATE, prefill_rate(one, prompt), prefill_rate(two, prompt)
        )
        for prompt in (1024, 2048, 4096, 8192)
    ]


def _mtp(current: Calibration) -> list[Effect]:
    return [
        Effect(
            "multi-token prediction", f"batch {batch}", RATE,
            _decode_rate(current, batch, StepOptions(mtp=False)), _decode_rate(current, batch, StepOptions(mtp=True)),
        )
        for batch in (8, 24, 48, 64, 96, 128)
    ]  # fmt: skip


def _context_cache(current: Calibration) -> list[Effect]:
    found = []
    for plane in (UB, VPC):
        none = _reused(current, 0.0, plane)
        for reuse in (0.125, 0.25, 0.5, 0.75, 0.9):
            rate, first = _reused(current, reuse, plane)
            found += [
                Effect(f"context cache over {plane}", f"{reuse:.0%} reused, throughput", RATE, none[0], rate),
                Effect(f"context cache over {plane}", f"{reuse:.0%} reused, TTFT", SECONDS, none[1], first),
            ]
    return found


def _reused(current: Calibration, reuse: float, plane: str) -> tuple[float, float]:
    """Return (prompt tokens per second and NPU, seconds per chunk) when that share of each prompt comes from the
    cache."""
    timing, fabric, model = prefill_timing(32, current), whole_fabric(PAPER_DIES), load_model()
    prompts = current.prefill_tokens_per_npu * 16 // CONTEXT
    cached = round(CONTEXT * reuse / BLOCK) * BLOCK
    computed = timing.exact_chunk_s([(CONTEXT - cached, cached)] * prompts)
    size, blocks = prompts * cached * model.kv_bytes_per_token, prompts * cached // BLOCK
    fetched = cache_fetch_s(fabric, current, size, blocks, fabric.nodes[:2], fabric.nodes, plane) if cached else 0.0
    return prompts * CONTEXT / (computed + fetched) / 16, computed + fetched


def _model_cache(current: Calibration) -> list[Effect]:
    """Eight instances of two nodes start at once, with a cold and a warm pool; without a pool each loads the model from
    the store by itself."""
    model, fabric, instances = load_model(), whole_fabric(PAPER_DIES), 8
    experts = prefill_timing(32, current).layout.experts_per_die
    size = model.parameters_total * model.weight_bytes
    alone = instances * size / (current.obs_gbps * 1e9)
    pool, readers = fabric.nodes, fabric.nodes[: 2 * instances]
    cold, warm = ModelCache(current), ModelCache(current, {model.name})
    return [
        Effect("model cache", "cold start", SECONDS, alone, cold.load_s(model, fabric, readers, pool, experts)),
        Effect("model cache", "switch to another", SECONDS, alone, warm.load_s(model, fabric, readers, pool, experts)),
        Effect("model cache", "DRAM, against each its own", "GB", instances * size / 1e9, size / 1e9),
    ]
