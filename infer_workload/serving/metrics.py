"""Live deployments as Prometheus metrics, under the names vLLM uses, so that dashboards and autoscalers fit.

Times are emulated seconds. The external prefix cache is EMS. Read at every scrape; nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from infer_workload.serving.api import kv_usage
from infer_workload.serving.service import Serving
from infer_workload.serving.statistics import Histogram

LABEL = ["model_name"]


class DeploymentMetrics:
    """A collector over one `Serving`."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def collect(self) -> Iterator[Metric]:
        lives = sorted(self._serving.live.items())
        gauges: dict[str, tuple[str, dict[str, float]]] = {
            "num_requests_running": ("Requests in prefill, transfer or decode.", {}),
            "num_requests_waiting": ("Requests waiting for KV memory.", {}),
            "kv_cache_usage_perc": ("Share of decode KV memory set aside (0 to 1).", {}),
        }
        counters: dict[str, tuple[str, dict[str, float]]] = {
            "prompt_tokens": ("Prompt tokens of finished requests.", {}),
            "generation_tokens": ("Generated tokens of finished requests.", {}),
            "request_success": ("Finished requests.", {}),
            "num_preemptions": ("Requests sent back by the loss of nodes.", {}),
            "external_prefix_cache_queries": ("Prompt tokens asked of the context cache.", {}),
            "external_prefix_cache_hits": ("Prompt tokens found in the context cache.", {}),
            "spec_decode_num_drafts": ("Decode steps with a draft token, summed over the pool.", {}),
        }
        values: dict[str, dict[str, float]] = {name: current for name, (_, current) in (gauges | counters).items()}
        for name, live in lives:
            engine, done = live.engine, live.statistics
            waiting = len(engine.waiting) if engine else 0
            values["num_requests_running"][name] = (len(engine.in_flight) - waiting) if engine else 0
            values["num_requests_waiting"][name] = waiting
            values["kv_cache_usage_perc"][name] = kv_usage(live)
            values["prompt_tokens"][name] = done.prompt_tokens
            values["generation_tokens"][name] = done.generated_tokens
            values["request_success"][name] = done.requests
            values["num_preemptions"][name] = engine.preemptions if engine else 0
            values["external_prefix_cache_queries"][name] = engine.cache.counts.tokens_asked if engine else 0
            values["external_prefix_cache_hits"][name] = engine.cache.counts.tokens_hit if engine else 0
            values["spec_decode_num_drafts"][name] = engine.pool.steps if engine and live.spec.mtp else 0
        for name, (help, _) in gauges.items():
            yield _family(GaugeMetricFamily(f"vllm:{name}", help, labels=LABEL), values[name])
        for name, (help, _) in counters.items():
            yield _family(CounterMetricFamily(f"vllm:{name}", help, labels=LABEL), values[name])
        for name in lives[0][1].statistics.histograms if lives else ():
            family = HistogramMetricFamily(f"vllm:{name}", f"{name.replace('_', ' ')}, emulated.", labels=LABEL)
            for deployment, live in lives:
                current = live.statistics.histograms[name]
                family.add_metric([deployment], _buckets(current), current.total)
            yield family


def _family(family: GaugeMetricFamily | CounterMetricFamily, values: dict[str, float]) -> Metric:
    for name, value in values.items():
        family.add_metric([name], value)
    return family


def _buckets(current: Histogram) -> list[tuple[str, float]]:
    total, buckets = 0, []
    for bound, count in zip([*current.bounds, float("inf")], current.counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(total)))
    return buckets
