"""The published figures, each beside what the model says.

No figure here is read by the model: they are compared with it afterwards. `role` says which of them the constants of
`calibration.yaml` were fitted to and which the model meets unprepared. All codes of sources as in that file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from infer_workload.timing.calibration import Calibration, load_calibration
from infer_workload.timing.collectives import Exchange
from infer_workload.timing.decode import DecodeTiming, StepOptions
from infer_workload.timing.experts import lay_experts
from infer_workload.timing.fabric import DIES_PER_NODE, Fabric
from infer_workload.timing.kernels import Kernels
from infer_workload.timing.model import ServedModel, load_model
from infer_workload.timing.prefill import PrefillTiming

FITTED, PREDICTED = "fitted", "predicted"


@dataclass(frozen=True)
class Figure:
    """One published figure and the model's answer."""

    section: str
    name: str
    unit: str
    published: float
    predicted: float
    role: str
    source: str

    @property
    def error(self) -> float:
        return self.predicted / self.published - 1.0


DECODE_POINTS = (
    # batch an NPU, prompt, output, TPOT ms, tokens/s an NPU, role
    (96, 4096, 256, 49.4, 1943.0, FITTED),
    (24, 4096, 256, 24.6, 974.0, FITTED),
    (8, 4096, 256, 14.9, 538.0, FITTED),
    (112, 2048, 256, 47.4, 2360.0, PREDICTED),
    (128, 1024, 1024, 46.8, 2733.0, PREDICTED),
)
"""P, decode under objectives of 50, 30 and 15 ms on EP320; the last two rows are seen in one note on it."""

DISPATCH_US = ((8, 116.0, FITTED), (16, 131.0, PREDICTED), (32, 133.0, PREDICTED), (64, 141.0, PREDICTED),
               (128, 152.0, PREDICTED), (256, 152.0, FITTED))  # fmt: skip
COMBINE_US = ((8, 118.0, FITTED), (256, 149.0, FITTED))
"""P, EP operators at 128 tokens a rank; dispatch at EP16 to EP128 is recalled only."""


def paper_fabric(dies: int) -> Fabric:
    nodes = -(-dies // DIES_PER_NODE)
    return Fabric.healthy(f"sn0-c{at // 4:02d}-n{at % 4}" for at in range(nodes))


def decode_timing(
    dies: int, calibration: Calibration, options: StepOptions | None = None, model: ServedModel | None = None
) -> DecodeTiming:
    """A decode pool of that many dies on a whole fabric."""
    served, fabric = model or load_model(), paper_fabric(dies)
    exchange = Exchange(fabric, calibration, tuple(fabric.nodes), dies)
    return DecodeTiming(served, calibration, exchange, lay_experts(dies, served), options or StepOptions())


def prefill_timing(
    dies: int, calibration: Calibration, balanced: bool, microbatch: bool | None = None
) -> PrefillTiming:
    """A prefill instance of that many dies on a whole fabric, one redundant expert a die."""
    served, fabric = load_model(), paper_fabric(dies)
    exchange = Exchange(fabric, calibration, tuple(fabric.nodes), dies)
    layout = lay_experts(dies, served, redundant_per_die=1)
    return PrefillTiming(served, calibration, exchange, layout, balanced, microbatch)


def tpot_ms(timing: DecodeTiming, batch_per_npu: float, prompt: int, output: int) -> float:
    """Time per output token with half of the answer written, which is the mean context."""
    requests = batch_per_npu / 2
    return 1e3 * timing.exact_step_s(requests, requests * (prompt + output / 2)) / timing.tokens_per_step


def prefill_tokens_per_npu(timing: PrefillTiming, prompt: int = 4096) -> float:
    """Tokens a second and NPU with the paper's batch of 16,384 tokens an NPU."""
    per_npu = timing.calibration.prefill_tokens_per_npu
    npus = timing.layout.dies // 2
    return per_npu / timing.chunk_s([(prompt, 0)] * (per_npu * npus // prompt))


def figures(calibration: Calibration | None = None) -> list[Figure]:
    """Every figure of the paper's result tables that the model speaks of, and a neighbour's that it meets unfitted."""
    current = calibration or load_calibration()
    return [*_prefill(current), *_decode(current), *_operators(current), *_kernels(current), *_elsewhere(current)]


def _prefill(current: Calibration) -> Iterable[Figure]:
    for name, published, balanced in (("default balance", 5655.0, False), ("perfect balance", 6688.0, True)):
        predicted = prefill_tokens_per_npu(prefill_timing(32, current, balanced))
        yield Figure("prefill", f"4K prompts, {name}", "tokens/s/NPU", published, predicted, FITTED, "P")


def _decode(current: Calibration) -> Iterable[Figure]:
    timing = decode_timing(320, current)
    for batch, prompt, output, tpot, rate, role in DECODE_POINTS:
        name, ms = f"{prompt}/{output}, batch {batch}", tpot_ms(timing, batch, prompt, output)
        yield Figure("decode", f"TPOT {name}", "ms", tpot, ms, role, "P")
        yield Figure("decode", f"throughput {name}", "tokens/s/NPU", rate, batch / ms * 1e3, role, "P")


def _operators(current: Calibration) -> Iterable[Figure]:
    for name, table in (("dispatch", DISPATCH_US), ("combine", COMBINE_US)):
        for ranks, published, role in table:
            fabric = paper_fabric(ranks)
            exchange = Exchange(fabric, current, tuple(fabric.nodes), ranks)
            seconds = exchange.dispatch_s(128) if name == "dispatch" else exchange.combine_s(128)
            yield Figure("EP operators", f"{name} EP{ranks}, 128 tokens", "us", published, seconds * 1e6, role, "P")


def _kernels(current: Calibration) -> Iterable[Figure]:
    kernels = Kernels(load_model(), current)
    model = kernels.model
    work = 2.0 * model.heads * (2 * model.kv_rank + model.rope_width) * 1e6 * 2
    compute = work / kernels.decode_attention_s(1e6, 2) / 1e12
    size = 1e9 / kernels.hbm_s(1e9) / 1e9
    gemm = 2.0 * model.attention_parameters * 8192 / kernels.gemm_s(model.attention_parameters, 8192) / 1e12
    yield Figure("kernels", "MLA, compute bound", "TFLOPS/die", 246.0, compute, FITTED, "P")
    yield Figure("kernels", "MLA, memory bound", "GB/s/die", 1346.0, size, FITTED, "P")
    yield Figure("kernels", "INT8 GEMM, 8,192 rows", "TOPS/die", 0.80 * 752, gemm, FITTED, "P")


def _elsewhere(current: Calibration) -> Iterable[Figure]:
    """xDeepServe: 288 dies, 60 requests a die, acceptance 90 %; its context is not published, 3K and 4K bracket it."""
    timing = decode_timing(288, current, StepOptions(acceptance=0.9))
    for context in (3072, 4096):
        predicted = timing.exact_step_s(60, 60 * context) * 1e3
        name = f"EP288, 60 a die, if the context is {context}"
        yield Figure("other systems", f"iteration {name}", "ms", 93.0, predicted, PREDICTED, "X, later software")


def without_fit(calibration: Calibration | None = None) -> Calibration:
    """The calibration with the five solved values at neutral: what published efficiencies alone predict."""
    current = calibration or load_calibration()
    return replace(current, vector_us=0.0, layer_gap_us=0.0, overlap=0.0, decode_imbalance=1.0, prefill_imbalance=1.0)
