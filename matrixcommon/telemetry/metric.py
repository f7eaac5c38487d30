"""Metric: the one declaration of each series that a process exports to Prometheus.

A declaration has the exported name, the unit, what it says, and its labels, each with a bound: the values it can take,
or how many of them there can be. Instruments and families are made from declarations and from nothing else, so what
`/metrics` answers is what the reference page (docs/reference/metrics.md) lists. Names are in base units (seconds,
bytes, ratios from 0 to 1) and end in them; counters end in `_total`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

disable_created_metrics()  # a second series for each counter, that no text format of Prometheus reads as one

Kind = Literal["counter", "gauge", "histogram"]
Stability = Literal["stable", "alpha"]
"""stable: name, unit and labels stay for as long as the major version; alpha: they may change with any version."""

OTHER = "_OTHER"
"""The value of a label for what lies beyond its bound, as OpenTelemetry's conventions write it."""


@dataclass(frozen=True)
class Label:
    """A label and its bound: `values` where they are a closed list, else at most `at_most` of them in one process, or
    `per_supernode` for each supernode it knows of."""

    name: str
    says: str
    values: tuple[str, ...] = ()
    at_most: int = 0
    per_supernode: int = 0

    def __post_init__(self) -> None:
        if sum(bool(bound) for bound in (self.values, self.at_most, self.per_supernode)) != 1:
            raise ValueError(f"label {self.name}: exactly one of values, at_most and per_supernode is its bound")

    def bound(self, supernodes: int = 1) -> int:
        """The most values it has in one process."""
        return len(self.values) or self.at_most or self.per_supernode * supernodes

    def taken(self, value: str) -> str:
        """The value, or OTHER where a closed list does not have it."""
        return value if not self.values or value in self.values else OTHER


@dataclass(frozen=True)
class Metric:
    """One metric by its exported name. `unit` is what its value counts; `together` is the most combinations of its
    labels' values, where that is less than their product; `buckets` are a histogram's upper bounds in `unit`."""

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
        """The name as the client library wants it: it adds a counter's `_total` itself."""
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name

    @property
    def label_names(self) -> list[str]:
        return [label.name for label in self.labels]

    def series_max(self, supernodes: int = 1) -> int:
        """The most combinations of labels in one process; each is one series, of a histogram one per bucket and two."""
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
        """An empty family for a collector that is asked at every scrape: `add_metric(label values, value)` fills it."""
        made = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
        return made[self.kind](self.base, self.says, labels=self.label_names)

    def read(self, registry: CollectorRegistry, value: Callable[[], float]) -> None:
        """Have a metric without labels show what `value` says at each scrape."""
        registry.register(_Read(self, value))

    def exported(self) -> tuple[str, ...]:
        """The names of its samples."""
        parts = ("_bucket", "_sum", "_count") if self.kind == "histogram" else ("",)
        return tuple(f"{self.name}{part}" for part in parts)


class _Read(Collector):
    """One value, asked for at every scrape."""

    def __init__(self, metric: Metric, value: Callable[[], float]) -> None:
        self._metric, self._value = metric, value

    def collect(self) -> Iterator[Any]:
        family = self._metric.family()
        family.add_metric([], float(self._value()))
        yield family
