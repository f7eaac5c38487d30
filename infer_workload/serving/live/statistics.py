"""Recent statistics of a live deployment: tokens per second, latencies of finished requests, counts since its start."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, floor

from infer_workload.contract.statistics import Percentiles
from infer_workload.engine.request import InferenceRequest

WINDOW_S = 60.0
KEPT_S = 600
FINISHED_KEPT = 20_000
ARRIVED_KEPT = 20_000

FIRST_TOKEN_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)  # fmt: skip
TOKEN_SECONDS_BUCKETS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST_BUCKETS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
TOKEN_BUCKETS = tuple(count * 10**power for power in range(6) for count in (1, 2, 5))
"""vLLM's upper bounds (seconds, tokens), so that dashboards and alerts made for it work; seconds are emulated."""
HISTOGRAM_BUCKETS: dict[str, tuple[float, ...]] = {
    "time_to_first_token_seconds": FIRST_TOKEN_BUCKETS,
    "inter_token_latency_seconds": TOKEN_SECONDS_BUCKETS,
    "request_time_per_output_token_seconds": TOKEN_SECONDS_BUCKETS,
    "time_per_output_token_seconds": TOKEN_SECONDS_BUCKETS,
    "e2e_request_latency_seconds": REQUEST_BUCKETS,
    "request_queue_time_seconds": REQUEST_BUCKETS,
    "request_inference_time_seconds": REQUEST_BUCKETS,
    "request_prefill_time_seconds": REQUEST_BUCKETS,
    "request_decode_time_seconds": REQUEST_BUCKETS,
    "request_prompt_tokens": TOKEN_BUCKETS,
    "request_generation_tokens": TOKEN_BUCKETS,
}
"""The request histograms, each with its upper bounds (emulated seconds, or tokens)."""


@dataclass
class Histogram:
    """Counts by upper bound; the last bucket is unbounded."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class Statistics:
    """Statistics fed by the engine: `record_tokens` for decode tokens, `record_arrival`, `record_finished` and
    `record_aborted` for requests."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self.prompt_tokens_aborted = self.generated_tokens_aborted = 0
        """Tokens of requests that ended early, if they had generated any: of their prompts, and of their answers."""
        self.requests = 0
        self.by_reason = {"stop": 0, "length": 0}
        """Finished requests by OpenAI's finish reason."""
        self.drafts = self.drafts_accepted = 0
        """Tokens drafted for finished requests, over all attempts, and how many of them were accepted."""
        self.histograms = {name: Histogram(bounds) for name, bounds in HISTOGRAM_BUCKETS.items()}
        self._seconds: dict[int, float] = {}
        self._arrived: deque[tuple[float, int]] = deque(maxlen=ARRIVED_KEPT)
        self._done: deque[tuple[float, float, float, int]] = deque(maxlen=FINISHED_KEPT)

    def record_arrival(self, at: float, tokens: int) -> None:
        """Record the arrival of a request with so many prompt tokens. Requests refused for load count: they are
        demand."""
        self._arrived.append((at, tokens))

    def arrivals(self, now: float, window_s: float) -> tuple[int, int]:
        """Requests that arrived in the window, and the tokens of their prompts. If more arrived than are kept, both are
        extrapolated from the rate of those kept."""
        count, tokens, since = 0, 0, now
        for at, size in reversed(self._arrived):
            if at <= now - window_s:
                return count, tokens
            count, tokens, since = count + 1, tokens + size, at
        whole = window_s / (now - since) if count == ARRIVED_KEPT and since < now else 1.0
        return round(count * whole), round(tokens * whole)

    def record_tokens(self, start: float, end: float, tokens: float) -> None:
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

    def record_finished(self, request: InferenceRequest) -> None:
        self.requests += 1
        self.prompt_tokens += request.input_tokens
        self.generated_tokens += request.output_tokens
        self.by_reason[request.finish] += 1
        self.drafts += request.drafts
        self.drafts_accepted += request.drafts_accepted
        self._done.append((request.finished_at, request.ttft_s, request.tpot_s, request.input_tokens))
        current = self.histograms
        current["time_to_first_token_seconds"].observe(request.ttft_s)
        if request.output_tokens > 1:
            current["request_time_per_output_token_seconds"].observe(request.tpot_s)
            for name in ("inter_token_latency_seconds", "time_per_output_token_seconds"):
                current[name].observe(request.tpot_s, request.output_tokens - 1)  # once for each token
        current["e2e_request_latency_seconds"].observe(request.finished_at - request.arrived_at)
        current["request_queue_time_seconds"].observe(max(0.0, request.prefill_started_at - request.arrived_at))
        current["request_inference_time_seconds"].observe(request.finished_at - request.prefill_started_at)
        current["request_prefill_time_seconds"].observe(request.first_token_at - request.prefill_started_at)
        current["request_decode_time_seconds"].observe(request.finished_at - request.first_token_at)
        current["request_prompt_tokens"].observe(request.input_tokens)
        current["request_generation_tokens"].observe(request.output_tokens)

    def record_aborted(self, request: InferenceRequest, generated: int) -> None:
        """Record a request that ended before its last token, cancelled or cut off, with `generated` tokens so far."""
        if generated:
            self.prompt_tokens_aborted += request.input_tokens
            self.generated_tokens_aborted += generated

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
        """(finish time, TTFT, TPOT, prompt tokens) of each request that finished in the window, latest first."""
        found = []
        for entry in reversed(self._done):
            if entry[0] < now - window_s:
                break
            found.append(entry)
        return found


def percentiles(values: list[float]) -> Percentiles | None:
    """Percentiles of the values; None for no values, since unknown is not zero."""
    if not values:
        return None
    ranked = sorted(values)
    p50, p90, p99 = (ranked[max(0, ceil(share * len(ranked)) - 1)] for share in (0.5, 0.9, 0.99))
    return Percentiles(p50=p50, p90=p90, p99=p99, mean=sum(ranked) / len(ranked))
