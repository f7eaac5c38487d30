"""The results of an experiment.

`Report` is a value: the same requests give the same report, byte for byte. Latencies are in seconds, rates in tokens
per second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from infer_workload.engine.engine import Engine
from infer_workload.reports.served import Served, ServedRequest
from matrixcommon.model.hardware_names import NPUS_PER_NODE
from matrixcommon.model.quantities import pluralized

TTFT_OBJECTIVE_S = 2.0
TPOT_OBJECTIVE_S = 0.050
"""Default objectives of goodput: time to first token from xDeepServe's service objective, time per token from the
paper."""


@dataclass(frozen=True)
class Objectives:
    """The latencies, in seconds, within which a request counts as goodput."""

    ttft_s: float = TTFT_OBJECTIVE_S
    tpot_s: float = TPOT_OBJECTIVE_S

    def are_met_by(self, request: ServedRequest) -> bool:
        return request.ttft_s <= self.ttft_s and request.tpot_s <= self.tpot_s


@dataclass(frozen=True)
class Spread:
    """Mean and percentiles (nearest rank, rounded up) of a latency, in seconds; None if there is no measurement."""

    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        ranked = sorted(values)
        if not ranked:
            return cls(None, None, None, None)
        at = [ranked[max(0, ceil(share * len(ranked)) - 1)] for share in (0.5, 0.9, 0.99)]
        return cls(*(round(value, 6) for value in (sum(ranked) / len(ranked), *at)))


@dataclass(frozen=True)
class Report:
    """The outcome of one experiment."""

    workload: str
    seed: int
    npus: int
    prefill_pool: str
    decode_pool: str
    caching_nodes: int
    requests: int
    finished: int
    refused: int
    requeued: int
    duration_s: float
    input_tokens: int
    output_tokens: int
    ttft: Spread
    tpot: Spread
    latency: Spread
    output_tokens_per_s: float
    output_tokens_per_s_per_decode_npu: float
    input_tokens_per_s_per_prefill_npu: float
    tokens_per_s_per_npu: float
    mean_decode_batch_per_npu: float
    prefill_busy: float
    cache_blocks_asked: int
    cache_blocks_hit: int
    cache_hit_rate_blocks: float
    cache_hit_rate_tokens: float
    cache_blocks_evicted: int
    cache_blocks_lost: int
    goodput_share: float
    """Share of all requests; a refused one counts as outside the objectives."""
    goodput_requests_per_s: float
    objectives: Objectives = Objectives()
    notes: list[str] = field(default_factory=list)

    def text(self) -> str:
        """The report as an aligned table."""
        return "\n".join(f"{name:14} {value}" for name, value in self.rows()) + "\n"

    def rows(self) -> list[tuple[str, str]]:
        """The report as (name, text) pairs, for display."""
        return [
            ("workload", self.workload),
            ("pools", f"{self.npus} NPUs: prefill {self.prefill_pool}, decode {self.decode_pool}, "
                      f"caching on {pluralized(self.caching_nodes, 'node')}"),
            ("requests", f"{self.finished:,} finished of {self.requests:,}, {self.refused} refused, "
                         f"{self.requeued} requeued"),
            ("time", f"{self.duration_s:,.1f} s emulated"),
            ("tokens", f"{self.input_tokens:,} in, {self.output_tokens:,} out"),
            ("TTFT", self._spread_text(self.ttft, 1.0, "s", 3)),
            ("TPOT", self._spread_text(self.tpot, 1e3, "ms", 1)),
            ("whole request", self._spread_text(self.latency, 1.0, "s", 2)),
            ("output", f"{self.output_tokens_per_s:,.1f} tokens/s, "
                       f"{self.output_tokens_per_s_per_decode_npu:,.2f} per decode NPU"),
            ("input", f"{self.input_tokens_per_s_per_prefill_npu:,.1f} tokens/s per prefill NPU"),
            ("in and out", f"{self.tokens_per_s_per_npu:,.2f} tokens/s per NPU"),
            ("load", f"prefill busy {self.prefill_busy:.1%}, "
                     f"mean decode batch {self.mean_decode_batch_per_npu:.2f} per NPU"),
            ("context cache", f"hit rate {self.cache_hit_rate_blocks:.4f} of blocks, "
                              f"{self.cache_hit_rate_tokens:.4f} of input tokens "
                              f"({self.cache_blocks_hit:,} of {self.cache_blocks_asked:,} blocks, "
                              f"{self.cache_blocks_evicted:,} evicted, {self.cache_blocks_lost:,} lost)"),
            ("goodput", f"{self.goodput_share:.1%} of requests within TTFT {self.objectives.ttft_s:g} s and TPOT "
                        f"{self.objectives.tpot_s * 1e3:g} ms, {self.goodput_requests_per_s:.3f} requests/s"),
            *(("note", note) for note in self.notes),
        ]  # fmt: skip

    def _spread_text(self, spread: Spread, factor: float, unit: str, digits: int) -> str:
        names = (("mean", spread.mean), ("P50", spread.p50), ("P90", spread.p90), ("P99", spread.p99))
        measured = [f"{name} {value * factor:.{digits}f} {unit}" for name, value in names if value is not None]
        return "  ".join(measured) or "not measured: no request finished"


def flatten(report: Mapping[str, Any], separator: str) -> dict[str, Any]:
    """A report document with nested values flattened, so that each part of a spread is a figure: `ttft.p90`."""
    found: dict[str, Any] = {}
    for name, value in report.items():
        if isinstance(value, dict):
            found |= {f"{name}{separator}{part}": each for part, each in value.items()}
        else:
            found[name] = value
    return found


def report_of(
    engine: Engine,
    finished: Served,
    workload: str,
    seed: int,
    refused: int,
    notes: Sequence[str] = (),
    objectives: Objectives | None = None,
) -> Report:
    """The report on an engine's run; `finished` holds the requests it served."""
    pools, counts, within = engine.deployment.pools, engine.cache.counts, objectives or Objectives()
    found = finished.measure(within.are_met_by)
    duration = found.last_finish_s - found.first_arrival_s if finished else 0.0
    per_s = 1.0 / duration if duration > 0 else 0.0
    inputs, output, good, decoding = found.input_tokens, found.output_tokens, found.within, found.decoding_s
    prefill_npus, decode_npus = pools.prefill_nodes * NPUS_PER_NODE, len(pools.decode) * NPUS_PER_NODE
    busy = sum(instance.busy_s for instance in engine.prefill.instances) * per_s / max(1, len(engine.prefill.instances))
    sizes = [len(instance) * NPUS_PER_NODE for instance in pools.prefill]
    refused += engine.dropped
    asked = len(finished) + refused + len(engine.in_flight)
    return Report(
        workload=workload,
        seed=seed,
        npus=pools.npus,
        prefill_pool=f"{len(sizes)} x {sizes[0] if sizes else 0} NPUs",
        decode_pool=f"{decode_npus} NPUs, EP{engine.deployment.decode_dies}",
        caching_nodes=len(pools.caching),
        requests=asked,
        finished=len(finished),
        refused=refused,
        requeued=engine.preemptions,
        duration_s=round(duration, 3),
        input_tokens=inputs,
        output_tokens=output,
        ttft=Spread.of(found.ttft_s),
        tpot=Spread.of(found.tpot_s),
        latency=Spread.of(found.latency_s),
        output_tokens_per_s=round(output * per_s, 3),
        output_tokens_per_s_per_decode_npu=round(output * per_s / max(1, decode_npus), 4),
        input_tokens_per_s_per_prefill_npu=round(inputs * per_s / max(1, prefill_npus), 4),
        tokens_per_s_per_npu=round((inputs + output) * per_s / max(1, pools.npus), 4),
        mean_decode_batch_per_npu=round(decoding * per_s / max(1, decode_npus), 4),
        prefill_busy=round(busy, 6),
        cache_blocks_asked=counts.blocks_asked,
        cache_blocks_hit=counts.blocks_hit,
        cache_hit_rate_blocks=round(counts.block_hit_rate, 6),
        cache_hit_rate_tokens=round(counts.token_hit_rate, 6),
        cache_blocks_evicted=counts.evicted,
        cache_blocks_lost=counts.lost,
        goodput_share=round(good / asked, 6) if asked else 0.0,
        goodput_requests_per_s=round(good * per_s, 6),
        objectives=within,
        notes=list(notes),
    )
