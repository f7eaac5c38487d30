"""What a live deployment has done lately: tokens by the second, latencies of what finished, counts since its start."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, floor

from infer_workload.contract import Percentiles
from infer_workload.engine.request import InferenceRequest

WINDOW_S = 60.0
KEPT_S = 600
FINISHED_KEPT = 20_000
ARRIVED_KEPT = 20_000

SECONDS_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
TPOT_BUCKETS = (0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)
TOKEN_BUCKETS = (16, 64, 256, 1024, 4096, 8192, 16384, 32768, 65536, 131072)
HISTOGRAM_BUCKETS: dict[str, tuple[float, ...]] = {
    "time_to_first_token_seconds": SECONDS_BUCKETS,
    "inter_token_latency_seconds": TPOT_BUCKETS,
    "request_time_per_output_token_seconds": TPOT_BUCKETS,
    "e2e_request_latency_seconds": SECONDS_BUCKETS,
    "request_queue_time_seconds": SECONDS_BUCKETS,
    "request_prefill_time_seconds": SECONDS_BUCKETS,
    "request_decode_time_seconds": SECONDS_BUCKETS,
    "request_prompt_tokens": TOKEN_BUCKETS,
    "request_generation_tokens": TOKEN_BUCKETS,
}
"""The histograms of requests, each with its upper bounds (s, emulated, or tokens)."""


@dataclass
class Histogram:
    """Counts by upper bound, the last one unbounded."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Statistics:
    """Heard from the engine: `emitted` for decode tokens as they come, `finished` for requests."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self.requests = 0
        self.histograms = {name: Histogram(bounds) for name, bounds in HISTOGRAM_BUCKETS.items()}
        self._seconds: dict[int, float] = {}
        self._arrived: deque[tuple[float, int]] = deque(maxlen=ARRIVED_KEPT)
        self._done: deque[tuple[float, float, float, int]] = deque(maxlen=FINISHED_KEPT)

    def arrived(self, at: float, tokens: int) -> None:
        """A request was accepted, with so many tokens of prompt."""
        self._arrived.append((at, tokens))

    def arrivals(self, now: float, window_s: float) -> tuple[int, int]:
        """Requests accepted in the window, and the tokens of their prompts. Where there were more than are kept, as
        many as would have come at the pace of those."""
        count, tokens, since = 0, 0, now
        for at, size in reversed(self._arrived):
            if at <= now - window_s:
                return count, tokens
            count, tokens, since = count + 1, tokens + size, at
        whole = window_s / (now - since) if count == ARRIVED_KEPT and since < now else 1.0
        return round(count * whole), round(tokens * whole)

    def emitted(self, start: float, end: float, tokens: float) -> None:
        """Spread the tokens evenly over the seconds they came in."""
        first, last = floor(start), floor(end)
        if first == last:
            self._seconds[first] = self._seconds.get(first, 0.0) + tokens
        else:
            rate = tokens / (end - start)
            for second in range(first, last + 1):
                part = min(end, second + 1) - max(start, second)
                self._seconds[second] = self._seconds.get(second, 0.0) + rate * part
        if len(self._seconds) > 2 * KEPT_S:
            self._seconds = {at: current for at, current in self._seconds.items() if at > last - KEPT_S}

    def finished(self, request: InferenceRequest) -> None:
        self.requests += 1
        self.prompt_tokens += request.input_tokens
        self.generated_tokens += request.output_tokens
        self._done.append((request.finished_at, request.ttft_s, request.tpot_s, request.input_tokens))
        current = self.histograms
        current["time_to_first_token_seconds"].observe(request.ttft_s)
        if request.output_tokens > 1:
            current["inter_token_latency_seconds"].observe(request.tpot_s)
            current["request_time_per_output_token_seconds"].observe(request.tpot_s)
        current["e2e_request_latency_seconds"].observe(request.finished_at - request.arrived_at)
        current["request_queue_time_seconds"].observe(max(0.0, request.prefill_started_at - request.arrived_at))
        current["request_prefill_time_seconds"].observe(request.first_token_at - request.prefill_started_at)
        current["request_decode_time_seconds"].observe(request.finished_at - request.first_token_at)
        current["request_prompt_tokens"].observe(request.input_tokens)
        current["request_generation_tokens"].observe(request.output_tokens)

    def tokens_per_second(self, now: float, window_s: float) -> float:
        """Mean over the whole seconds of the window that ends with the last whole second."""
        samples = self.samples(now, window_s)
        return sum(tokens for _, tokens in samples) / len(samples)

    def samples(self, now: float, window_s: float) -> list[tuple[int, float]]:
        """(second since the epoch, tokens) for each whole second of the window, oldest first."""
        last = floor(now)
        seconds = max(1, round(window_s))
        return [(second, self._seconds.get(second, 0.0)) for second in range(last - seconds, last)]

    def recent(self, now: float, window_s: float) -> list[tuple[float, float, float, int]]:
        """(finished at, TTFT, TPOT, prompt tokens) of what finished in the window."""
        found = []
        for entry in reversed(self._done):
            if entry[0] < now - window_s:
                break
            found.append(entry)
        return found


def percentiles(values: list[float]) -> Percentiles:
    if not values:
        return Percentiles()
    ranked = sorted(values)
    p50, p90, p99 = (ranked[max(0, ceil(share * len(ranked)) - 1)] for share in (0.5, 0.9, 0.99))
    return Percentiles(p50=p50, p90=p90, p99=p99, mean=sum(ranked) / len(ranked))
