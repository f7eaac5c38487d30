"""The published set-ups as timing models: decode pools, prefill instances and exchanges of given size on a fault-free
fabric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from infer_workload.timing.calibration import Calibration, load_calibration
from infer_workload.timing.collectives import Exchange
from infer_workload.timing.decode import DecodeTiming, StepOptions
from infer_workload.timing.experts import place_experts
from infer_workload.timing.fabric import Fabric
from infer_workload.timing.gather_scatter import exchange_among
from infer_workload.timing.model import ServedModel, load_model
from infer_workload.timing.prefill import PrefillTiming

A2 = "atlas-800i-a2"


@lru_cache(maxsize=64)
def whole_fabric(dies: int, machine: Calibration | None = None) -> Fabric:
    """Return a fault-free, otherwise idle fabric for that many dies, by default of a CloudMatrix384."""
    current = machine or load_calibration()
    nodes = -(-dies // current.dies_per_node)
    return Fabric.healthy((f"sn0-c{at // 4:02d}-n{at % 4}" for at in range(nodes)), machine=current)


def exchange(dies: int, calibration: Calibration, model: ServedModel | None = None) -> Exchange:
    """Return the exchange among that many dies on that machine."""
    fabric = whole_fabric(dies, calibration)
    return exchange_among(fabric, calibration, tuple(fabric.nodes), dies, model or load_model())


def decode_timing(
    dies: int, calibration: Calibration, options: StepOptions | None = None, model: ServedModel | None = None
) -> DecodeTiming:
    """Return the timing of a decode pool of that many dies on a fault-free fabric."""
    served = model or load_model()
    layout = place_experts(dies, served)
    return DecodeTiming(served, calibration, exchange(dies, calibration, served), layout, options or StepOptions())


def prefill_timing(
    dies: int,
    calibration: Calibration,
    balanced: bool = False,
    microbatch: bool | None = None,
    model: ServedModel | None = None,
) -> PrefillTiming:
    """Return the timing of a prefill instance of that many dies on a fault-free fabric, with one redundant expert per
    die."""
    served = model or load_model()
    layout = place_experts(dies, served, redundant_per_die=1)
    return PrefillTiming(served, calibration, exchange(dies, calibration, served), layout, balanced, microbatch)


def tpot_ms(timing: DecodeTiming, batch_per_npu: float, context: float) -> float:
    """Time per output token when each request has a context of `context` tokens; an NPU has two dies."""
    requests = batch_per_npu / 2
    return 1e3 * timing.exact_step_s(requests, requests * context) / timing.tokens_per_step


def prefill_rate(timing: PrefillTiming, prompt: int = 4096) -> float:
    """Tokens per second and NPU with the paper's batch of 16,384 tokens per NPU."""
    per_npu = timing.calibration.prefill_tokens_per_npu
    npus = timing.layout.dies // 2
    return per_npu / timing.exact_chunk_s([(prompt, 0)] * (per_npu * npus // prompt))


def rate_within(step_s: Callable[[float], float], tokens_per_step: float, tpot_s: float) -> float:
    """Tokens per second with the largest batch that keeps the time per token within `tpot_s`. `step_s` takes a
    (fractional) batch."""
    low, high = 1.0, 1024.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if step_s(middle) <= tpot_s * tokens_per_step else (low, middle)
    return low / tpot_s


def on_a2(calibration: Calibration, **changes: float) -> Calibration:
    """Return the Atlas 800I A2 with the fitted values of `calibration`, and with `changes` to its own constants."""
    fitted = {
        name: getattr(calibration, name)
        for name in ("exchange_start_us", "vector_gbps", "launch_us", "sequence_skew", "straggle_share")
    }
    return replace(load_calibration(A2), **{**fitted, **changes})


def a2_decode_rate(machine: Calibration, context: float, tpot_s: float = 0.1, microbatch: bool = False) -> float:
    """Decode tokens per second and card on four servers."""
    cards, model = 32, load_model()
    timing = DecodeTiming(
        model, machine, exchange(cards, machine), place_experts(cards, model), StepOptions(microbatch=microbatch)
    )
    return rate_within(lambda batch: timing.exact_step_s(batch, batch * context), timing.tokens_per_step, tpot_s)


def a2_prefill_rate(machine: Calibration, microbatch: bool = False) -> float:
    """Prefill tokens per second and card on two servers: eight prompts of 2,048 tokens at once, two cards for each."""
    cards, prompts, model = 16, 8, load_model()
    timing = PrefillTiming(
        model, machine, exchange(cards, machine), place_experts(cards, model), microbatch=microbatch,
        heads_exchange=exchange(cards // prompts, machine),
    )  # fmt: skip
    return 2048 * prompts / cards / timing.exact_chunk_s([(2048, 0)] * prompts)
