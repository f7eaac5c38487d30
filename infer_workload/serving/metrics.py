"""Live deployments as Prometheus metrics, under vLLM's names, so that dashboards and autoscalers made for it work.

Times are emulated seconds. The external prefix cache is EMS. Values are read at scrape time; no counter is kept here.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric as Family
from prometheus_client.utils import floatToGoString

from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.live.statistics import HISTOGRAM_BUCKETS, Histogram
from infer_workload.serving.service import Serving
from infer_workload.serving.statistics_view import kv_usage
from matrixcommon.telemetry.metric import Kind, Label, Metric, Stability

DEPLOYMENTS_MAX = 256
"""Only the first so many deployments by name have series."""
DEPLOYMENT = Label("model_name", "deployment that serves the model", values_max=DEPLOYMENTS_MAX)


def _vllm(name: str, kind: Kind, unit: str, description: str, stability: Stability = "stable") -> Metric:
    return Metric(f"vllm:{name}", kind, unit, description, (DEPLOYMENT,), HISTOGRAM_BUCKETS.get(name, ()), stability)


GAUGES = {
    metric.name: metric
    for metric in (
        _vllm("num_requests_running", "gauge", "requests", "Requests in prefill, transfer or decode."),
        _vllm(
            "num_requests_waiting", "gauge", "requests",
            "Requests not begun: waiting for KV memory, for a prefill instance, or for a deployment that is scaled to "
            "zero.",
        ),
        _vllm("kv_cache_usage_perc", "gauge", "ratio", "Share of decode KV memory that is reserved (0 to 1)."),
    )
}  # fmt: skip
COUNTERS = {
    metric.base: metric
    for metric in (
        _vllm("prompt_tokens_total", "counter", "tokens", "Prompt tokens read, those of aborted requests included."),
        _vllm("generation_tokens_total", "counter", "tokens", "Tokens generated, those of aborted requests included."),
        _vllm(
            "num_preemptions_total", "counter", "requests",
            "Requests requeued because of losses or requests of higher priority.",
        ),
        _vllm(
            "prefix_cache_queries_total", "counter", "tokens",
            "Prompt tokens looked up in a prefix cache in HBM: all of them.",
        ),
        _vllm(
            "prefix_cache_hits_total", "counter", "tokens",
            "Prompt tokens found in HBM: always 0, since blocks are cached in EMS only.",
        ),
        _vllm(
            "external_prefix_cache_queries_total", "counter", "tokens", "Prompt tokens looked up in the context cache."
        ),
        _vllm("external_prefix_cache_hits_total", "counter", "tokens", "Prompt tokens found in the context cache."),
        _vllm(
            "spec_decode_num_drafts_total", "counter", "drafts",
            "Drafts of finished requests: one per decode step with MTP.", "alpha",
        ),
        _vllm("spec_decode_num_draft_tokens_total", "counter", "tokens", "Tokens drafted: one per draft.", "alpha"),
        _vllm(
            "spec_decode_num_accepted_tokens_total", "counter", "tokens", "Drafted tokens that were accepted.", "alpha"
        ),
    )
}  # fmt: skip
SUCCESS = Metric(
    "vllm:request_success_total",
    "counter",
    "requests",
    "Finished requests.",
    (DEPLOYMENT, Label("finished_reason", "why the answer ended", ("stop", "length", "abort"))),
    stability="stable",
)
POSITION = Metric(
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    "counter",
    "tokens",
    "Accepted tokens by position in the draft.",
    (DEPLOYMENT, Label("position", "position in the draft", ("0",))),
)
CACHE = Metric(
    "vllm:cache_config_info", "gauge", "1", "KV cache of the decode pool.",
    (
        DEPLOYMENT, Label("block_size", "tokens per block", values_max=DEPLOYMENTS_MAX),
        Label("num_gpu_blocks", "number of blocks", values_max=DEPLOYMENTS_MAX),
        Label("cache_dtype", "bits per value", values_max=8),
    ),
    together=DEPLOYMENT,
)  # fmt: skip
HISTOGRAMS = {
    name: _vllm(
        name, "histogram", "tokens" if name.endswith("_tokens") else "seconds (emulated)",
        f"{name.removesuffix('_seconds').replace('_', ' ').capitalize()} of finished requests.",
    )
    for name in HISTOGRAM_BUCKETS
}  # fmt: skip
METRICS = (*GAUGES.values(), *COUNTERS.values(), SUCCESS, POSITION, CACHE, *HISTOGRAMS.values())


class DeploymentMetrics:
    """A collector over one `Serving`."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def collect(self) -> Iterator[Family]:
        deployments = sorted(self._serving.live.items())[:DEPLOYMENTS_MAX]
        values = {name: _values(live) for name, live in deployments}
        for name, metric in (GAUGES | COUNTERS).items():
            family = metric.family()
            for deployment, current in values.items():
                family.add_metric([deployment], current[name.removeprefix("vllm:")])
            yield family
        yield from _labelled(deployments)
        for name, metric in HISTOGRAMS.items() if deployments else ():
            histogram = metric.family()
            for deployment, live in deployments:
                seen = live.statistics.histograms[name]
                histogram.add_metric([deployment], _buckets(seen), seen.total)
            yield histogram


def _values(live: LiveDeployment) -> dict[str, float]:
    engine, done = live.engine, live.statistics
    queued = engine.queued if engine else 0
    read, generated = engine.tokens_in_flight() if engine else (0, 0)
    return {
        "num_requests_running": len(engine.in_flight) - queued if engine else 0,
        "num_requests_waiting": queued + live.activation.waiting,
        "kv_cache_usage_perc": kv_usage(live),
        "prompt_tokens": done.prompt_tokens + done.prompt_tokens_aborted + read,
        "generation_tokens": done.generated_tokens + done.generated_tokens_aborted + generated,
        "num_preemptions": engine.preemptions if engine else 0,
        "prefix_cache_queries": engine.cache.counts.tokens_asked if engine else 0,
        "prefix_cache_hits": 0,
        "external_prefix_cache_queries": engine.cache.counts.tokens_asked if engine else 0,
        "external_prefix_cache_hits": engine.cache.counts.tokens_hit if engine else 0,
        "spec_decode_num_drafts": done.drafts,
        "spec_decode_num_draft_tokens": done.drafts,
        "spec_decode_num_accepted_tokens": done.drafts_accepted,
    }


def _labelled(deployments: list[tuple[str, LiveDeployment]]) -> Iterator[Family]:
    """The metrics that have more labels than the deployment's name."""
    success, position, cache = SUCCESS.family(), POSITION.family(), CACHE.family()
    for name, live in deployments:
        for reason, count in {**live.statistics.by_reason, "abort": live.intake.cancelled}.items():
            success.add_metric([name, reason], count)
        position.add_metric([name, "0"], live.statistics.drafts_accepted)
        if live.engine is not None:
            deployment, size = live.engine.deployment, live.spec.block_tokens
            blocks = deployment.kv_tokens_per_die * deployment.decode_dies // size
            cache.add_metric([name, str(size), str(blocks), f"{8 * deployment.model.kv_bytes}-bit"], 1)
    yield from (success, position, cache)


def _buckets(current: Histogram) -> list[tuple[str, float]]:
    total, buckets = 0, []
    for bound, count in zip([*current.bounds, float("inf")], current.counts, strict=True):
        total += count
        buckets.append((floatToGoString(bound), float(total)))
    return buckets
