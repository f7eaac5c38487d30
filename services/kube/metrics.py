"""Metrics of the embedded Kubernetes API, under the names of a real one, so that rules and dashboards made for it work:
requests and their duration, watches, objects by kind, webhooks.

Custom kinds are counted by name up to the limit of the label; further ones are counted as `_OTHER`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from matrixcommon.telemetry.metric import OTHER, Label, Metric
from matrixcontainer.kubeapi.auth.authorizer import Attributes
from matrixcontainer.kubeapi.registry.core import Core

KINDS_MAX = 150
VERBS = {
    "get": "GET", "list": "LIST", "watch": "WATCH", "create": "POST", "update": "PUT", "patch": "PATCH",
    "delete": "DELETE", "deletecollection": "DELETECOLLECTION",
}  # fmt: skip
"""The verb of authorization, and its name in upstream's metrics."""

VERB = Label("verb", "verb of the request, as upstream writes it", values=(*VERBS.values(), OTHER))
RESOURCE = Label(
    "resource", "plural of the kind with its group; empty for non-resource requests", values_max=KINDS_MAX + 2
)
CODE = Label("code", "HTTP status code", values_max=40)
TYPE = Label("type", "mutating webhooks admit", values=("admit", "validating"))
OPERATION = Label("operation", "operation admitted", values=("CREATE", "UPDATE", "DELETE", "CONNECT", OTHER))
REJECTED = Label("rejected", "whether the webhook refused, or did not answer", values=("true", "false"))
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

REQUESTS = Metric("apiserver_request_total", "counter", "requests", "Requests answered.", (VERB, RESOURCE, CODE))
DURATION = Metric(
    "apiserver_request_duration_seconds",
    "histogram",
    "seconds (wall)",
    "Time from a request's head to its answer; for a watch, to the head of the answer.",
    (VERB,),
    buckets=SECONDS,
)
WATCHES = Metric("apiserver_longrunning_requests", "gauge", "watches", "Open watches.", (RESOURCE,))
OBJECTS = Metric("apiserver_storage_objects", "gauge", "objects", "Objects stored, by kind.", (RESOURCE,))
WEBHOOKS = Metric(
    "apiserver_admission_webhook_admission_duration_seconds",
    "histogram",
    "seconds (wall)",
    "Duration of calls of admission webhooks.",
    (TYPE, OPERATION, REJECTED),
    buckets=SECONDS,
)
WATCH_LAG = Metric(
    "cloudmatrix_kube_watch_lag_seconds",
    "gauge",
    "seconds (wall)",
    "Age of the oldest change that an open watch has not received.",
    (RESOURCE,),
)
METRICS = (REQUESTS, DURATION, WATCHES, OBJECTS, WEBHOOKS, WATCH_LAG)


class KubeMetrics(Collector):
    """Counts the requests and objects of an API: `api.observe(KubeMetrics(core))`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._resource_labels: set[str] = set()
        self._series: dict[tuple[str, str, int], tuple[Any, Any]] = {}
        self._registry = CollectorRegistry()
        self._requests, self._duration = REQUESTS.counter(self._registry), DURATION.histogram(self._registry)
        self._webhooks = WEBHOOKS.histogram(self._registry)
        self._registry.register(self)

    def record_request(self, attributes: Attributes, code: int, seconds: float) -> None:
        verb, resource = VERBS.get(attributes.verb, OTHER), self._resource(attributes)
        if (series := self._series.get((verb, resource, code))) is None:  # `labels` locks and converts what it is given
            series = self._requests.labels(verb, resource, str(code)), self._duration.labels(verb)
            self._series[verb, resource, code] = series
        requests, duration = series
        requests.inc()
        duration.observe(seconds)

    def record_admission(self, kind: str, operation: str, rejected: bool, seconds: float) -> None:
        self._webhooks.labels(kind, OPERATION.taken(operation), str(rejected).lower()).observe(seconds)

    def render(self) -> bytes:
        return bytes(generate_latest(self._registry))

    def collect(self) -> Iterator[Any]:
        """Watches and objects, counted at scrape time."""
        store = self._core.store
        watches, objects, lags = WATCHES.family(), OBJECTS.family(), WATCH_LAG.family()
        open_watches: dict[str, int] = {}
        stored: dict[str, int] = {}
        lag_s: dict[str, float] = {}
        for storage in sorted({each.storage for each in self._core.registry.all()}):
            label = self._resource_label(storage)
            stored[label] = stored.get(label, 0) + store.count(storage)
            open_watches[label] = open_watches.get(label, 0) + len(store.log(storage).waiters)
            lag_s[label] = max(lag_s.get(label, 0.0), store.log(storage).max_lag_s(store.now()))
        for label, count in stored.items():
            if count:
                objects.add_metric([label], count)
        for label, count in open_watches.items():
            if count:
                watches.add_metric([label], count)
                lags.add_metric([label], lag_s[label])
        yield watches
        yield objects
        yield lags

    def _resource(self, attributes: Attributes) -> str:
        """The label of a request's resource; OTHER if it is not served, as clients could invent any number of names."""
        if not attributes.resource:
            return ""
        registry = self._core.registry
        served = registry.derived("metrics", lambda: {(each.group, each.plural) for each in registry.all()})
        if (attributes.group, attributes.resource) not in served:
            return OTHER
        return self._resource_label(
            f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
        )

    def _resource_label(self, storage: str) -> str:
        if storage not in self._resource_labels:
            if len(self._resource_labels) >= KINDS_MAX:
                return OTHER
            self._resource_labels.add(storage)
        return storage
