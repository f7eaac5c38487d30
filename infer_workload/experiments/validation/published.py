"""Every published figure of this workload that the model can predict, once each.

TPOT and throughput of one row count as one figure; inputs of the model (peaks, the efficiencies of MLA and of matrix
products, payloads) do not count. The constants of `fitted.yaml` are fitted to the `FITTED` rows; all others are
predicted without having been used. `RECALLED` rows are predictions as well, of figures that no source consulted
confirms, and are left out of means. Source codes are those of `timing/calibration.yaml`. `inputs` are the conditions of
a row that its source does not state, as (nominal, low, high, reason).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from infer_workload.experiments.validation.settings import (
    A2,
    a2_decode_rate,
    a2_prefill_rate,
    decode_timing,
    exchange,
    prefill_rate,
    prefill_timing,
    rate_within,
    tpot_ms,
)
from infer_workload.layout.recovery import rebuild_s
from infer_workload.timing.calibration import MACHINE, Calibration
from infer_workload.timing.decode import StepOptions

FITTED, PREDICTED, RECALLED = "fitted", "predicted", "recalled"

Inputs = Mapping[str, float]
Input = tuple[float, float, float, str]


@dataclass(frozen=True)
class Published:
    """One figure. `sigma` is its relative uncertainty: reading from a plot, rounding, and unstated conditions."""

    section: str
    name: str
    unit: str
    value: float
    predict: Callable[[Calibration, Inputs], float]
    role: str
    source: str
    sigma: float = 0.01
    inputs: Mapping[str, Input] = field(default_factory=dict)
    machine: str = MACHINE

    def predicted(self, calibration: Calibration, **changes: float) -> float:
        nominal = {name: current[0] for name, current in self.inputs.items()}
        return self.predict(calibration, {**nominal, **changes})


def _decode(batch: int, prompt: int, output: int, tpot: float, role: str, source: str) -> Published:
    inputs: dict[str, Input] = {
        "context": (prompt + output / 2, prompt, prompt + output, "mean context: from no answer written to all of it")
    }
    if role == PREDICTED and batch == 24:
        inputs["microbatches"] = (1, 0, 1, "P does not say from which batch two streams are used")

    def predict(calibration: Calibration, given: Inputs) -> float:
        serial = given.get("microbatches", 1) == 0
        options = StepOptions(microbatch=False) if serial else None
        return tpot_ms(decode_timing(320, calibration, options), batch, given["context"])

    return Published(
        "decode", f"TPOT, {prompt}/{output}, batch {batch}", "ms", tpot, predict, role, source, inputs=inputs
    )


def _exchange(name: str, dies: int, tokens: int, us: float, role: str, source: str, sigma: float) -> Published:
    def predict(calibration: Calibration, given: Inputs) -> float:
        current = exchange(dies, calibration)
        return 1e6 * (current.dispatch_s(tokens) if name == "dispatch" else current.combine_s(tokens))

    return Published("EP operators", f"{name} EP{dies}, {tokens} tokens", "us", us, predict, role, source, sigma)


def _balanced(calibration: Calibration, given: Inputs) -> float:
    return prefill_rate(prefill_timing(32, calibration, balanced=True))


def _default(calibration: Calibration, given: Inputs) -> float:
    return prefill_rate(prefill_timing(32, calibration))


def _colocated(calibration: Calibration, given: Inputs) -> float:
    options = StepOptions(microbatch=bool(given["microbatches"]), acceptance=0.9)
    return 1e3 * decode_timing(288, calibration, options).exact_step_s(60, 60 * given["context"])


def _report(calibration: Calibration, given: Inputs) -> float:
    timing = decode_timing(288, calibration)
    half = 2.0
    return rate_within(
        lambda batch: timing.exact_step_s(batch / half, batch / half * given["context"]), timing.tokens_per_step, 0.050
    )


def _a2_prefill(calibration: Calibration, given: Inputs) -> float:
    return a2_prefill_rate(calibration, microbatch=bool(given["microbatches"]))


def _a2_decode(calibration: Calibration, given: Inputs) -> float:
    return a2_decode_rate(calibration, given["context"], microbatch=bool(given["microbatches"]))


_WEIGHTS: Mapping[str, Input] = {"weights": (40, 36, 44, "s; that deployment reads them in about 40 s (ReviveMoE)")}


def _recovery(name: str, seconds: float, predict: Callable[[Calibration, Inputs], float], **more: Any) -> Published:
    return Published("recovery", name, "s", seconds, predict, PREDICTED, "ReviveMoE, 80 NPUs", **more)


_A2_STREAMS: Input = (0, 0, 1, "S2 lists its methods and microbatches are not among them; not said outright")

PUBLISHED: tuple[Published, ...] = (
    _exchange("dispatch", 8, 128, 116.0, FITTED, "P", 0.02),
    _exchange("dispatch", 256, 128, 152.0, FITTED, "P", 0.02),
    _exchange("combine", 8, 128, 118.0, FITTED, "P", 0.02),
    _exchange("combine", 256, 128, 149.0, FITTED, "P", 0.02),
    _exchange("dispatch", 128, 4, 20.0, FITTED, "X, read from a plot", 0.25),
    _decode(96, 4096, 256, 49.4, FITTED, "P"),
    Published("prefill", "4K prompts, default balance", "tokens/s/NPU", 5655.0, _default, FITTED, "P"),
    Published("prefill", "4K prompts, perfect balance", "tokens/s/NPU", 6688.0, _balanced, FITTED, "P"),
    _decode(24, 4096, 256, 24.6, PREDICTED, "P"),
    _decode(8, 4096, 256, 14.9, PREDICTED, "P"),
    _decode(112, 2048, 256, 47.4, PREDICTED, "P"),
    _decode(128, 1024, 1024, 46.8, PREDICTED, "P"),
    _exchange("dispatch", 16, 128, 131.0, RECALLED, "P", 0.02),
    _exchange("dispatch", 32, 128, 133.0, RECALLED, "P", 0.02),
    _exchange("dispatch", 64, 128, 141.0, RECALLED, "P", 0.02),
    _exchange("dispatch", 128, 128, 152.0, RECALLED, "P", 0.02),
    _exchange("combine", 128, 128, 140.0, PREDICTED, "X, read from a plot", 0.1),
    Published(
        "xDeepServe", "iteration, EP288, 60 a die", "ms", 93.0, _colocated, PREDICTED, "X, later software",
        inputs={
            "context": (2300, 2000, 4096, "unpublished; attention is 21.8 % of a layer: 327 us, the core over 2.3K"),
            "microbatches": (0, 0, 1, "X's shares of a layer's time add up to 100 %, so one stream; not said outright"),
        },
    ),
    Published(
        "other reports", "decode at EP288 within 50 ms", "tokens/s/NPU", 1920.0, _report, PREDICTED, "S2, May 2025",
        inputs={"context": (4096, 3072, 4096, "unpublished; 2K prompts and 2K answers to the paper's 4K")},
    ),
    _recovery("an attention rank is lost", 10.2, lambda current, given: rebuild_s(current)),
    _recovery("an expert is lost and masked", 10.8, lambda current, given: rebuild_s(current)),
    _recovery("a rank changes its role", 52.8, lambda current, given: rebuild_s(current) + given["weights"],
              inputs=_WEIGHTS),
    _recovery("everything starts anew", 83.1,
              lambda current, given: current.executor_start_s + current.graph_load_s + given["weights"],
              inputs=_WEIGHTS),
    Published("Atlas 800I A2", "prefill, 2K prompts, 16 cards", "tokens/s/card", 1622.0, _a2_prefill, PREDICTED, "S2",
              inputs={"microbatches": _A2_STREAMS}, machine=A2),
    Published(
        "Atlas 800I A2", "decode within 100 ms, 32 cards", "tokens/s/card", 808.0, _a2_decode, PREDICTED,
        "S2; CT says 723 to 808",
        inputs={
            "context": (3072, 2048, 3072, "2K or 1K prompts, half of 2K answers written"),
            "microbatches": _A2_STREAMS,
        },
        machine=A2,
    ),
)  # fmt: skip

NOT_PREDICTED: Mapping[str, str] = {
    "MLA 246 TFLOPS and 1,346 GB/s, INT8 matrix products 77.4 to 82.7 % (P)": "inputs of the model",
    "UB bandwidths and latencies (P, U, SC)": "inputs of the fabric",
    "dispatch 98 and combine 85 GB/s at 4,096 tokens (SC)": "inputs of prefill",
    "dispatch 234 us, combine 312 us in production (X)": "inputs: straggling and the spread of routing come from them",
    "10.7 s when an expert rank is lost and a copy exists (ReviveMoE)": "an input: how long ranks take to rebuild",
    "throughputs of the decode rows (P)": "batch over TPOT, the same prediction",
    "attention and experts on dies of their own, 172 and 193 us, 49 ms (X)": "that deployment is not modelled",
    "TTFT 900 ms and TPOT 34.8 ms of a production service (X)": "its load and batches are not published",
    "2.26 to 2.35 tokens a step with a second draft token (X)": "acceptance is an input",
    "H800 and H100 rows (P)": "other machines",
    "accuracy benchmarks (P)": "nothing is computed",
}
"""Published figures that are not in the table, with the reason."""
