"""Grafana dashboards as code, printed as JSON where users find them (charts/cloudmatrix/files/dashboards).

A panel is a title, a unit, and queries over metrics of the catalogue; the library makes Grafana's model of it. Grafana
itself is needed by nobody here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")
UNITS = {"count": "short", "s": "s", "Bps": "Bps", "share": "percentunit", "per second": "ops", "tokens/s": "short"}
WIDTH, HEIGHT = 12, 8
"""Of Grafana's 24 columns."""


@dataclass(frozen=True)
class Panel:
    """`queries` are pairs of PromQL and the legend of its series. `kind`: series over time, one figure, or a heatmap of
    a histogram's buckets."""

    title: str
    unit: str
    says: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "series"


def rate(counter: str, by: str, where: str = "") -> str:
    return f"sum by ({by}) (rate({counter}{where}[$__rate_interval]))"


def quantile(share: float, histogram: str, by: str = "", where: str = "") -> str:
    grouping = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({grouping}) (rate({histogram}_bucket{where}[$__rate_interval])))"


MACHINE = (
    Panel("Free nodes", "count", "Whole nodes free for new allocations.", (("max(matrixresource_nodes_free)", "free"),), "figure"),
    Panel("Largest block that fits", "count", "The most nodes one gang can have.",
          (('max(matrixresource_largest_block_nodes{level="supernode"})', "in a supernode"),), "figure"),
    Panel("Nodes by state", "count", "", (("max by (state) (matrixresource_nodes)", "{{state}}"),)),
    Panel("Nodes by health", "count", "", (("max by (health) (matrixresource_nodes_health)", "{{health}}"),)),
    Panel("Agents", "count", "Lost agents are judged by their leases.",
          (("max by (agent) (matrixresource_node_agents)", "{{agent}}"),)),
    Panel("Dies held, by domain", "share", "", (("max by (domain) (matrixresource_utilisation_ratio)", "{{domain}}"),)),
    Panel("Fragmentation", "share", "Fraction of the free capacity that cannot be allocated as one block.",
          (("max by (level) (matrixresource_fragmentation_ratio)", "{{level}}"),)),
    Panel("Decisions", "per second", "Refusals carry their reason.",
          ((rate("matrixresource_decisions_total", "verb, outcome, reason"), "{{verb}} {{outcome}} {{reason}}"),)),
    Panel("Time of a decision", "s", "Up to its commit, of the wall.",
          ((quantile(0.99, "matrixresource_decision_seconds", "verb"), "{{verb}} p99"),)),
)  # fmt: skip
FABRIC = (
    Panel("Links below their rate", "count", "", (("max by (plane, reason) (matrixlink_links_below)", "{{plane}} {{reason}}"),)),
    Panel("Sent, by plane", "Bps", "", (("max by (plane) (matrixlink_plane_sent_bytes_per_second)", "{{plane}}"),)),
    Panel("Utilisation of the planes", "share", "The busier direction.",
          (("max by (plane) (matrixlink_plane_utilisation_ratio)", "{{plane}}"),)),
    Panel("Promised to nobody, by plane", "Bps", "What further floors may take.",
          (("max by (plane) (matrixlink_plane_headroom_bytes_per_second)", "{{plane}}"),)),
    Panel("Busiest switches", "share", "", (("topk(10, max by (switch) (matrixlink_switch_utilisation_ratio))", "{{switch}}"),)),
    Panel("Busiest slices", "Bps", "",
          (("topk(10, max by (slice, plane) (matrixlink_slice_sent_bytes_per_second))", "{{slice}} {{plane}}"),)),
    Panel("Dropped, by plane", "Bps", "Sent into ports that carry nothing.",
          (("max by (plane) (matrixlink_plane_dropped_bytes_per_second)", "{{plane}}"),)),
    Panel("Probes that fail", "share", "Silent faults show here first.",
          (("sum(rate(matrixlink_probes_failed_total[$__rate_interval])) / sum(rate(matrixlink_probes_sent_total[$__rate_interval]))", "failed"),)),
    Panel("Tables repaired, links held down", "per second", "",
          (("sum(rate(matrixlink_table_drifts_total[$__rate_interval]))", "tables found otherwise"),
           ("sum(rate(matrixlink_links_damped_total[$__rate_interval]))", "links damped"))),
)  # fmt: skip
INSTANCES = (
    Panel("Instances by state", "count", "", (("max by (state) (matrixcompute_instances)", "{{state}}"),)),
    Panel("Degraded, stuck, operations", "count", "",
          (("max(matrixcompute_instances_degraded)", "degraded"), ("max(matrixcompute_instances_stuck)", "stuck"),
           ("max(matrixcompute_operations_open)", "operations under way"))),
    Panel("Wait for nodes", "s", "Emulated, from being asked for to being committed.",
          ((quantile(0.5, "matrixcompute_instance_queue_seconds"), "p50"), (quantile(0.95, "matrixcompute_instance_queue_seconds"), "p95"))),
    Panel("Recoveries, by part", "s", "Emulated; what a median recovery spends where.",
          ((quantile(0.5, "matrixcompute_instance_recovery_seconds", "part"), "{{part}}"),)),
    Panel("Time to first token", "s", "Emulated.",
          ((quantile(0.5, "vllm:time_to_first_token_seconds", "model_name"), "{{model_name}} p50"),
           (quantile(0.9, "vllm:time_to_first_token_seconds", "model_name"), "{{model_name}} p90"))),
    Panel("Time to first token, all of it", "s", "Emulated.",
          (("sum by (le) (increase(vllm:time_to_first_token_seconds_bucket[$__rate_interval]))", "{{le}}"),), "heatmap"),
    Panel("Time per output token", "s", "Emulated.",
          ((quantile(0.9, "vllm:request_time_per_output_token_seconds", "model_name"), "{{model_name}} p90"),)),
    Panel("Tokens", "tokens/s", "", ((rate("vllm:prompt_tokens_total", "model_name"), "{{model_name}} prompt"),
                                     (rate("vllm:generation_tokens_total", "model_name"), "{{model_name}} generated"))),
    Panel("Requests", "count", "", (("max by (model_name) (vllm:num_requests_running)", "{{model_name}} running"),
                                    ("max by (model_name) (vllm:num_requests_waiting)", "{{model_name}} waiting"))),
    Panel("Context cache hits", "share", "By tokens.",
          (("sum by (model_name) (rate(vllm:external_prefix_cache_hits_total[$__rate_interval])) / "
            "sum by (model_name) (rate(vllm:external_prefix_cache_queries_total[$__rate_interval]))", "{{model_name}}"),)),
    Panel("KV memory of the decode pool", "share", "", (("max by (model_name) (vllm:kv_cache_usage_perc)", "{{model_name}}"),)),
)  # fmt: skip
PROCESSES = (
    Panel("Answers", "count", "1 while Prometheus reaches it.", (('up{job=~".*cloudmatrix.*"}', "{{instance}}"),)),
    Panel("Who leads", "count", "", (("cloudmatrix_leads", "{{instance}}"),)),
    Panel("Requests", "per second", "", ((rate("cloudmatrix_http_requests_total", "instance, method"), "{{instance}} {{method}}"),)),
    Panel("Answers with an error of ours", "per second", "",
          ((rate("cloudmatrix_http_requests_total", "instance", '{status=~"5.."}'), "{{instance}}"),)),
    Panel("Time to the first byte", "s", "Of the wall.",
          ((quantile(0.95, "cloudmatrix_http_request_seconds", "instance"), "{{instance}} p95"),)),
    Panel("Watchers that fail", "per second", "",
          ((rate("cloudmatrix_watcher_failures_total", "instance, watcher"), "{{instance}} {{watcher}}"),)),
    Panel("Kubernetes API: requests", "per second", "Of the embedded one, or of a real one.",
          ((rate("apiserver_request_total", "verb"), "{{verb}}"),)),
    Panel("Kubernetes API: refusals and errors", "per second", "",
          ((rate("apiserver_request_total", "code", '{code=~"[45].."}'), "{{code}}"),)),
    Panel("Kubernetes API: time to answer", "s", "Of the wall; p95, watches left out.",
          ((quantile(0.95, "apiserver_request_duration_seconds", "verb", '{verb!="WATCH"}'), "{{verb}} p95"),)),
    Panel("Kubernetes API: objects and watches", "count", "",
          (("sum by (resource) (apiserver_storage_objects)", "{{resource}}"),
           ("sum by (resource) (apiserver_longrunning_requests)", "{{resource}} watched"))),
    Panel("Kubernetes API: webhooks", "s", "p95 of calls, by what they do.",
          ((quantile(0.95, "apiserver_admission_webhook_admission_duration_seconds", "type, rejected"),
            "{{type}} rejected={{rejected}}"),)),
)  # fmt: skip
DASHBOARDS: dict[str, tuple[str, tuple[Panel, ...]]] = {
    "machine": ("CloudMatrix: machine", MACHINE),
    "fabric": ("CloudMatrix: fabric", FABRIC),
    "instances": ("CloudMatrix: instances and serving", INSTANCES),
    "processes": ("CloudMatrix: processes", PROCESSES),
}


def printed(name: str) -> str:
    """One dashboard as Grafana imports it."""
    title, panels = DASHBOARDS[name]
    made = (
        dashboard.Dashboard(title)
        .uid(f"cloudmatrix-{name}")
        .tags(["cloudmatrix"])
        .refresh("10s")
        .time("now-30m", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .readonly()
        .with_variable(dashboard.DatasourceVariable("source").label("Prometheus").type("prometheus"))
    )
    for panel in panels:
        made = made.with_panel(_panel(panel))
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


def _panel(panel: Panel) -> Any:
    kinds: dict[str, Any] = {"series": timeseries.Panel, "figure": stat.Panel, "heatmap": heatmap.Panel}
    made = kinds[panel.kind]().title(panel.title).description(panel.says).unit(UNITS[panel.unit]).datasource(SOURCE)
    made = made.span(WIDTH).height(HEIGHT)
    for letter, (query, legend) in zip("ABCDEF", panel.queries, strict=False):
        asked = prometheus.Dataquery().ref_id(letter).expr(query).legend_format(legend).datasource(SOURCE)
        made = made.with_target(asked.format(PromQueryFormat.HEATMAP) if panel.kind == "heatmap" else asked)
    return made
