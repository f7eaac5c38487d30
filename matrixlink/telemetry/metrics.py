"""MatrixLink's own series for Prometheus. Labels are planes, switches, projects and slices, never single ports: a
supernode has six thousand of those; they are in `/v1/telemetry`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from matrixlink.contract.slices import TelemetryView
from matrixlink.link_health.fault_localisation import FaultLocaliser
from matrixlink.link_health.link_state import LinkStateTracker
from matrixlink.slices.slice_controller import SliceController
from matrixlink.telemetry.views import Telemetry

SLICES_MAX = 256
"""Of slices, the busiest so many have series of their own."""
SERIES = (
    ("sent_gbps", "GB/s sent"),
    ("received_gbps", "GB/s received"),
    ("dropped_gbps", "GB/s sent into ports that carry nothing"),
    ("utilisation", "Part of the capacity that the busier direction takes"),
    ("headroom_gbps", "GB/s that are promised to nobody"),
)


class LinkMetrics:
    """A collector: asked at every scrape."""

    def __init__(
        self,
        slice_controller: SliceController,
        telemetry: Telemetry,
        conditions: LinkStateTracker,
        diagnosis: FaultLocaliser,
        reported: Counter[str],
    ) -> None:
        self._slice_controller = slice_controller
        self._telemetry = telemetry
        self._conditions = conditions
        self._diagnosis = diagnosis
        self._reported = reported

    def collect(self) -> Iterator[Metric]:
        for by, labels in (("plane", ["plane"]), ("switch", ["switch"]), ("project", ["project", "plane"]),
                           ("slice", ["slice", "project", "plane"])):  # fmt: skip
            views = sorted(self._telemetry.by(by), key=lambda view: -(view.sent_gbps + view.received_gbps))
            yield from _family(by, labels, views[:SLICES_MAX] if by == "slice" else views)
        yield from self._links()
        yield CounterMetricFamily("matrixlink_probes_sent", "Probes that agents reported.", value=self._diagnosis.sent)
        yield CounterMetricFamily("matrixlink_probes_failed", "Of these, the failed.", value=self._diagnosis.failed)
        drifts = self._reported["drifts"]
        yield CounterMetricFamily("matrixlink_table_drifts", "Tables found otherwise than programmed.", value=drifts)
        damped = self._conditions.counters["Damped"]
        yield CounterMetricFamily("matrixlink_links_damped", "Times a link was held down.", value=damped)

    def _links(self) -> Iterator[Metric]:
        """How many links are below their rate, and why."""
        found = GaugeMetricFamily("matrixlink_links_below", "Links below their rate.", labels=["plane", "reason"])
        with self._slice_controller.store.reading() as session:
            rows = self._slice_controller.store.links(session)
            below = Counter((str(row.built["plane"]), row.reason) for row in rows if row.reason)
        for (plane, reason), count in sorted(below.items()):
            found.add_metric([plane, reason], count)
        yield found


def _family(by: str, labels: list[str], views: list[TelemetryView]) -> Iterator[Metric]:
    for series, text in SERIES:
        found = GaugeMetricFamily(f"matrixlink_{by}_{series}", f"{text}, by {by}.", labels=labels)
        for view in views:
            value = getattr(view, series)
            if value is not None:
                found.add_metric([_label(view, label, by) for label in labels], value)
        yield found


def _label(view: TelemetryView, label: str, by: str) -> str:
    return view.name if label == by and by != "project" else str(getattr(view, label) or "")
