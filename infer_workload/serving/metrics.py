"""Live deployments as Prometheus metrics, under the names vLLM uses, so that dashboards and autoscalers fit.

Times are emulated seconds. The external prefix cache is EMS. Read at every scrape; nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from infer_workload.serving.api import kv_usage
from infer_workload.serving.live_deployment import LiveDeployment
from infer_workload.serving.service import Serving
from infer_workload.serving.statistics import Histogram

LABEL = ["model_name"]

GAUGES = {
    "num_requests_running": "Requests in prefill, transfer or decode.",
    "num_requests_waiting": "Requests waiting for KV memory, or for a deployment that is scaled to zero.",
    "kv_cache_usage_perc": "Share of decode KV memory set aside (0 to 1).",
}
COUNTERS = {
    "prompt_tokens": "Prompt tokens of finished requests.",
    "generation_tokens": "Generated tokens of finished requests.",
    "num_preemptions": "Requests sent back by the loss of nodes.",
    "prefix_cache_queries": "Prompt tokens asked of a cache in HBM: all of them.",
    "prefix_cache_hits": "Prompt tokens found there: none, for blocks are kept in EMS alone.",
    "external_prefix_cache_queries": "Prompt tokens asked of the context cache.",
    "external_prefix_cache_hits": "Prompt tokens found in the context cache.",
    "spec_decode_num_drafts": "Drafts of finished requests: one a decode step with MTP.",
    "spec_decode_num_draft_tokens": "Tokens drafted: one a draft.",
    "spec_decode_num_accepted_tokens": "Drafted tokens that were accepted.",
}


class DeploymentMetrics:
    """A collector over one `Serving`."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def collect(self) -> Iterator[Metric]:
        lives = sorted(self._serving.live.items())
        values = {name: _values(live) for name, live in lives}
        for kind, helps in ((GaugeMetricFamily, GAUGES), (CounterMetricFamily, COUNTERS)):
            for name, help in helps.items():
                family = kind(f"vllm:{name}", help, labels=LABEL)
                for deployment, current in values.items():
                    family.add_metric([deployment], current[name])
                yield family
        yield from _labelled(lives)
        for name in lives[0][1].statistics.histograms if lives else ():
            histogram = HistogramMetricFamily(f"vllm:{name}", f"{name.replace('_', ' ')}, emulated.", labels=LABEL)
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
        "num_preemptions": engine.preemptions if engine else 0,
        "prefix_cache_queries": engine.cache.counts.tokens_asked if engine else 0,
        "prefix_cache_hits": 0,
        "external_prefix_cache_queries": engine.cache.counts.tokens_asked if engine else 0,
        "external_prefix_cache_hits": engine.cache.counts.tokens_hit if engine else 0,
        "spec_decode_num_drafts": done.drafts if drafts(live) else 0,
        "spec_decode_num_draft_tokens": done.drafts if drafts(live) else 0,
        "spec_decode_num_accepted_tokens": done.drafts_accepted if drafts(live) else 0,
    }


def drafts(live: LiveDeployment) -> bool:
    """Whether each step drafts a token (MTP)."""
    return live.engine is not None and live.engine.deployment.drafts


def _labelled(lives: list[tuple[str, LiveDeployment]]) -> Iterator[Metric]:
    """What has more labels than the deployment's name."""
    success = CounterMetricFamily("vllm:request_success", "Finished requests.", labels=[*LABEL, "finished_reason"])
    position = CounterMetricFamily(
        "vllm:spec_decode_num_accepted_tokens_per_pos",
        "Accepted tokens by place in the draft.",
        labels=[*LABEL, "position"],
    )
    cache = GaugeMetricFamily(
        "vllm:cache_config_info",
        "KV cache of the decode pool.",
        labels=[*LABEL, "block_size", "num_gpu_blocks", "cache_dtype"],
    )
    for name, live in lives:
        for reason, count in {**live.statistics.by_reason, "abort": live.cancelled}.items():
            success.add_metric([name, reason], count)
        position.add_metric([name, "0"], live.statistics.drafts_accepted if drafts(live) else 0)
        if live.engine is not None:
            deployment, size = live.engine.deployment, live.spec.block_tokens
            blocks = deployment.kv_tokens_per_die * deployment.decode_dies // size
            cache.add_metric([name, str(size), str(blocks), f"{8 * deployment.model.kv_bytes}-bit"], 1)
    yield from (success, position, cache)


def _buckets(current: Histogram) -> list[tuple[str, float]]:
    total, buckets = 0, []
    for bound, count in zip([*current.bounds, float("inf")], current.counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(total)))
    return buckets
