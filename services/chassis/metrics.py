"""The metrics of every HTTP service: requests, watchers, and whether it leads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from matrixcommon.telemetry.metric import Label, Metric
from services.chassis.leadership import Leadership
from services.chassis.periodic import Periodic

METHOD = Label("method", "HTTP method", values=("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "_OTHER"))
STATUS = Label("status", "HTTP status code", values_max=40)
WATCHER = Label("watcher", "name of the watcher, a task that runs periodically", values_max=20)

REQUESTS = Metric(
    "cloudmatrix_http_requests_total", "counter", "requests", "Requests served.", (METHOD, STATUS), stability="stable"
)
SECONDS = Metric(
    "cloudmatrix_http_request_seconds",
    "histogram",
    "seconds (wall)",
    "Time from a request's first byte in to its first byte out.",
    (METHOD,),
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    stability="stable",
)
RUNS = Metric("cloudmatrix_watcher_runs_total", "counter", "runs", "Runs of each watcher.", (WATCHER,))
FAILURES = Metric(
    "cloudmatrix_watcher_failures_total",
    "counter",
    "runs",
    "Runs of each watcher that failed.",
    (WATCHER,),
    stability="stable",
)
LEADS = Metric(
    "cloudmatrix_leads",
    "gauge",
    "0 or 1",
    "1 while this replica is the leader, which does the background work.",
    stability="stable",
)
METRICS = (REQUESTS, SECONDS, RUNS, FAILURES, LEADS)


class RequestMetrics:
    """Counts and durations of requests; unusual methods are counted as _OTHER."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests, self._seconds = REQUESTS.counter(registry), SECONDS.histogram(registry)

    def observe_request(self, method: str, status: int, seconds: float) -> None:
        method = METHOD.taken(method)
        self._requests.labels(method, str(status)).inc()
        self._seconds.labels(method).observe(seconds)


class WatcherMetrics(Collector):
    """Runs and failures of each watcher, read at scrape time."""

    def __init__(self, watchers: Sequence[Periodic]) -> None:
        self._watchers = watchers

    def collect(self) -> list[Family]:
        counts: tuple[tuple[Metric, Callable[[Periodic], int]], ...] = (
            (RUNS, lambda watcher: watcher.runs),
            (FAILURES, lambda watcher: watcher.failures),
        )
        families: list[Any] = []
        for metric, count in counts:
            family = metric.family()
            for watcher in self._watchers:
                family.add_metric([watcher.name], count(watcher))
            families.append(family)
        return families


def watcher_metrics(registry: CollectorRegistry, watchers: Sequence[Periodic]) -> None:
    """Export the metrics of a process's watchers, if it has any."""
    if watchers:
        registry.register(WatcherMetrics(watchers))


def leadership_metrics(registry: CollectorRegistry, leadership: Leadership) -> None:
    """Export whether a process leads."""
    LEADS.read(registry, lambda: leadership.generation is not None)
