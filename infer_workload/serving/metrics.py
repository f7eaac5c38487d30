"""Live deployments as Prometheus metrics, under the names vLLM uses, so that dashboards and autoscalers fit.

Times are emulated seconds. The external prefix cache is EMS. Read at every scrape; nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from infer_workload.serving.api import kv_usage
from infer_workload.serving.live_deployment import LiveDeployment
from infer_workload.serving.service import Serving
from infer_workload.serving.statistics import HISTOGRAM_BUCKETS, Histogram
from matrixcommon.telemetry.metric import Kind, Label, Metric, Stability

DEPLOYMENTS_MAX = 256
"""Of deployments, the first so many by name have series."""
DEPLOYMENT = Label("model_name", "deployment that serves the model", at_most=DEPLOYMENTS_MAX)


def _vllm(name: str, kind: Kind, unit: str, says: str, stability: Stability = "stable") -> Metric:
    return Metric(f"vllm:{name}", kind, unit, says, (DEPLOYMENT,), HISTOGRAM_BUCKETS.get(name, ()), stability)


GAUGES = {
    metric.name: metric
    for metric in (
        _vllm("num_requests_running", "gauge", "requests", "Requests in prefill, transfer or decode."),
        _vllm(
            "num_requests_waiting", "gauge", "requests",
            "Requests waiting for KV memory, or for a deployment that is scaled to zero.",
        ),
        _vllm("kv_cache_usage_perc", "gauge", "ratio", "Share of decode KV memory set aside (0 to 1)."),
    )
}  # fmt: skip
COUNTERS = {
    metric.base: metric
    for metric in (
        _vllm("prompt_tokens_total", "counter", "tokens", "Prompt tokens of finished requests."),
        _vllm("generation_tokens_total", "counter", "tokens", "Generated tokens of finished requests."),
        _vllm("request_success_total", "counter", "requests", "Finished requests."),
        _vllm("num_preemptions_total", "counter", "requests", "Requests sent back by the loss of nodes."),
        _vllm(
            "external_prefix_cache_queries_total", "counter", "tokens", "Prompt tokens asked of the context cache.",
        ),
        _vllm("external_prefix_cache_hits_total", "counter", "tokens", "Prompt tokens found in the context cache."),
        _vllm(
            "spec_decode_num_drafts_total", "counter", "steps",
            "Decode steps with a draft token, summed over the pool.", "alpha",
        ),
    )
}  # fmt: skip
HISTOGRAMS = {
    name: _vllm(
        name, "histogram", "tokens" if name.endswith("_tokens") else "seconds (emulated)",
        f"{name.removesuffix('_seconds').replace('_', ' ').capitalize()} of finished requests.",
    )
    for name in HISTOGRAM_BUCKETS
}  # fmt: skip
METRICS = (*GAUGES.values(), *COUNTERS.values(), *HISTOGRAMS.values())


class DeploymentMetrics:
    """A collector over one `Serving`."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def collect(self) -> Iterator[Family]:
        lives = sorted(self._serving.live.items())[:DEPLOYMENTS_MAX]
        values = {name: _values(live) for name, live in lives}
        for name, metric in (GAUGES | COUNTERS).items():
            family = metric.family()
            for deployment, current in values.items():
                family.add_metric([deployment], current[name.removeprefix("vllm:")])
            yield family
        for name, metric in HISTOGRAMS.items() if lives else ():
            histogram = metric.family()
            for deployment, live in lives:
                seen = live.statistics.histograms[name]
                histogram.add_metric([deployment], _buckets(seen), seen.total)
            yield histogram


def _values(live: LiveDeployment) -> dict[str, float]:
    engine, done = live.engine, live.statistics
    waiting = len(engine.waiting) if engine else 0
    return {
        "num_requests_running": len(engine.in_flight) - waiting if engine else 0,
        "num_requests_waiting": waiting + live.activation.waiting,
        "kv_cache_usage_perc": kv_usage(live),
        "prompt_tokens": done.prompt_tokens,
        "generation_tokens": done.generated_tokens,
        "request_success": done.requests,
        "num_preemptions": engine.preemptions if engine else 0,
        "external_prefix_cache_queries": engine.cache.counts.tokens_asked if engine else 0,
        "external_prefix_cache_hits": engine.cache.counts.tokens_hit if engine else 0,
        "spec_decode_num_drafts": engine.pool.steps if engine and live.spec.mtp else 0,
    }


def _buckets(current: Histogram) -> list[tuple[str, float]]:
    total, buckets = 0, []
    for bound, count in zip([*current.bounds, float("inf")], current.counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(total)))
    return buckets
