"""Metric: the single declaration of each metric that a process exports to Prometheus.

A declaration has the exported name, the unit, a help text, and labels, each with a bound: its possible values or their
maximum number. Instruments and families are made only from declarations, so `/metrics` returns what the reference page
(docs/reference/metrics.md) lists. Values are in base units (seconds, bytes, ratios from 0 to 1), and names end in the
unit; names of counters end in `_total`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

disable_created_metrics()  # else each counter exports a second series, which no Prometheus text format reads as one

Kind = Literal["counter", "gauge", "histogram"]
Stability = Literal["stable", "alpha"]
"""stable: name, unit and labels do not change within a major version; alpha: they may change with any version."""

OTHER = "_OTHER"
"""The label value for everything outside its bound, as in OpenTelemetry's conventions."""


@dataclass(frozen=True)
class Label:
    """A label and its bound: `values` if they are a closed list, else at most `values_max` values per process, or
    `per_supernode` values for each supernode that the process knows of."""

    name: str
    says: str
    values: tuple[str, ...] = ()
    values_max: int = 0
    per_supernode: int = 0

    def __post_init__(self) -> None:
        if sum(bool(bound) for bound in (self.values, self.values_max, self.per_supernode)) != 1:
            raise ValueError(f"label {self.name}: give exactly one of values, values_max and per_supernode")

    def bound(self, supernodes: int = 1) -> int:
        """The maximum number of values in one process."""
        return len(self.values) or self.values_max or self.per_supernode * supernodes

    def taken(self, value: str) -> str:
        """The value, or OTHER if it is not in a closed list."""
        return value if not self.values or value in self.values else OTHER


@dataclass(frozen=True)
class Metric:
    """One metric by its exported name. `unit` is the unit of its value; `together` bounds the combinations of label
    values if they are fewer than the product; `buckets` are a histogram's upper bounds in `unit`."""

    name: str
    kind: Kind
    unit: str
    says: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()
    stability: Stability = "alpha"
    together: Label | None = None

    @property
    def base(self) -> str:
        """The name for the client library, which adds a counter's `_total` itself."""
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name

    @property
    def label_names(self) -> list[str]:
        return [label.name for label in self.labels]

    def series_max(self, supernodes: int = 1) -> int:
        """The maximum number of label combinations in one process. Each is one series; for a histogram, one per bucket
        plus two."""
        if self.together is not None:
            return self.together.bound(supernodes)
        return prod(label.bound(supernodes) for label in self.labels)

    def counter(self, registry: CollectorRegistry) -> Counter:
        return Counter(self.base, self.says, self.label_names, registry=registry)

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        return Gauge(self.name, self.says, self.label_names, registry=registry)

    def histogram(self, registry: CollectorRegistry) -> Histogram:
        return Histogram(self.name, self.says, self.label_names, registry=registry, buckets=self.buckets)

    def family(self) -> Any:
        """An empty family for a collector that runs at every scrape; fill it with `add_metric(label values, value)`."""
        made = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
        return made[self.kind](self.base, self.says, labels=self.label_names)

    def read(self, registry: CollectorRegistry, value: Callable[[], float]) -> None:
        """Export a metric without labels whose value is read from `value()` at each scrape."""
        registry.register(_ValueCollector(self, value))

    def exported(self) -> tuple[str, ...]:
        """The names of its samples."""
        parts = ("_bucket", "_sum", "_count") if self.kind == "histogram" else ("",)
        return tuple(f"{self.name}{part}" for part in parts)


class _ValueCollector(Collector):
    """A collector of one value, read at every scrape."""

    def __init__(self, metric: Metric, value: Callable[[], float]) -> None:
        self._metric, self._value = metric, value

    def collect(self) -> Iterator[Any]:
        family = self._metric.family()
        family.add_metric([], float(self._value()))
        yield family
