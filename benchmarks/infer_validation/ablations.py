"""What each mechanism of the paper is worth, as the model predicts it.

The paper measured these by switching one thing off; its outcomes were not used for anything in this package, so this
is a prediction to be held against them. Inputs are those the paper states: decode with 4K of KV at 64, 96 and 128
requests an NPU, prefill of 16,384 tokens an NPU, one draft token at 70 % acceptance, prompts of 4K reused to up to 90 %
with blocks over UB or VPC. `python -m benchmarks.infer_validation.report --ablations` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.infer_validation.figures import decode_timing, paper_fabric, prefill_timing, prefill_tokens_per_npu
from infer_workload.timing.calibration import Calibration, load_calibration
from infer_workload.timing.collectives import cache_fetch_s
from infer_workload.timing.decode import StepOptions
from infer_workload.timing.fabric import UB, VPC
from infer_workload.timing.model import load_model

CONTEXT = 4096
PAPER_DIES = 512


@dataclass(frozen=True)
class Effect:
    """One mechanism at one point: tokens a second and NPU without it and with it."""

    mechanism: str
    point: str
    without: float
    with_it: float

    @property
    def gain(self) -> float:
        return self.with_it / self.without - 1.0


def effects(calibration: Calibration | None = None) -> list[Effect]:
    current = calibration or load_calibration()
    return [*_decode_microbatch(current), *_prefill_microbatch(current), *_mtp(current), *_context_cache(current)]


def _decode_rate(current: Calibration, batch: int, options: StepOptions) -> float:
    timing = decode_timing(320, current, options)
    return batch * timing.tokens_per_step / timing.exact_step_s(batch / 2, batch / 2 * CONTEXT)


def _decode_microbatch(current: Calibration) -> list[Effect]:
    return [
        Effect(
            "decode microbatches",
            f"batch {batch}",
            _decode_rate(current, batch, StepOptions(microbatch=False)),
            _decode_rate(current, batch, StepOptions(microbatch=True)),
        )
        for batch in (64, 96, 128)
    ]


def _prefill_microbatch(current: Calibration) -> list[Effect]:
    without, paired = (prefill_timing(32, current, False, microbatch=on) for on in (False, True))
    return [
        Effect(
            "prefill microbatches",
            f"prompts of {prompt}",
            prefill_tokens_per_npu(without, prompt),
            prefill_tokens_per_npu(paired, prompt),
        )
        for prompt in (1024, 2048, 4096, 8192)
    ]


def _mtp(current: Calibration) -> list[Effect]:
    return [
        Effect(
            "multi-token prediction",
            f"batch {batch}",
            _decode_rate(current, batch, StepOptions(mtp=False)),
            _decode_rate(current, batch, StepOptions(mtp=True)),
        )
        for batch in (8, 24, 48, 64, 96, 128)
    ]


def _context_cache(current: Calibration) -> list[Effect]:
    found = []
    for plane in (UB, VPC):
        none = _prefill_rate(current, 0.0, plane)
        found += [
            Effect(f"context cache over {plane}", f"{reuse:.0%} reused", none, _prefill_rate(current, reuse, plane))
            for reuse in (0.125, 0.25, 0.5, 0.75, 0.9)
        ]
    return found


def _prefill_rate(current: Calibration, reuse: float, plane: str) -> float:
    """Prompt tokens served a second and NPU when that share of each comes from the cache."""
    timing, fabric, model = prefill_timing(32, current, False), paper_fabric(PAPER_DIES), load_model()
    prompts = current.prefill_tokens_per_npu * 16 // CONTEXT
    cached = round(CONTEXT * reuse / 128) * 128
    computed = timing.chunk_s([(CONTEXT - cached, cached)] * prompts)
    size, blocks = prompts * cached * model.kv_bytes_per_token, prompts * cached // 128
    fetched = cache_fetch_s(fabric, current, size, blocks, fabric.nodes[:2], fabric.nodes, plane) if cached else 0.0
    return prompts * CONTEXT / (computed + fetched) / 16


def effects_text(found: list[Effect]) -> str:
    lines = [f"{'mechanism':26}{'point':18}{'without':>10}{'with':>10}{'gain':>9}   tokens/s/NPU, predicted"]
    lines += [
        f"{each.mechanism:26}{each.point:18}{each.without:10,.0f}{each.with_it:10,.0f}{each.gain:+9.1%}"
        for each in found
    ]
    return "\n".join(lines) + "\n"
