"""MatrixLink's own Prometheus metrics. Labels are planes, switches, projects and slices, never single ports: a
supernode has six thousand of those; they are in `/v1/telemetry`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from matrixcommon.model.planes import Plane
from matrixcommon.telemetry.metric import Label, Metric
from matrixlink.contract.telemetry import TelemetryView
from matrixlink.link_health.fault_localisation import FaultLocaliser
from matrixlink.link_health.link_state import LinkStateTracker
from matrixlink.slices.slice_controller import SliceController
from matrixlink.telemetry.views import Telemetry

SLICES_MAX = 256
"""The number of slices, the busiest ones, that have series of their own."""
PROJECTS_MAX = 256
"""The number of projects, the busiest ones on each plane, that have series."""
BYTES_PER_GB = 1e9

PLANE = Label("plane", "network plane", tuple(plane.value for plane in Plane))
SWITCH = Label("switch", "L1 or L2 switch, RDMA leaf or spine, VPC gateway", per_supernode=640)
PROJECT = Label("project", "who has the slices", values_max=PROJECTS_MAX)
SLICE = Label("slice", "the busiest slices", values_max=SLICES_MAX)
BY: dict[str, tuple[Label, ...]] = {
    "plane": (PLANE,), "switch": (SWITCH,), "project": (PROJECT, PLANE), "slice": (SLICE, PROJECT, PLANE),
}  # fmt: skip
SERIES = (
    ("sent_gbps", "sent_bytes_per_second", "bytes/s", "Rate sent"),
    ("received_gbps", "received_bytes_per_second", "bytes/s", "Rate received"),
    ("dropped_gbps", "dropped_bytes_per_second", "bytes/s", "Sent into ports that carry nothing"),
    ("utilisation", "utilisation_ratio", "ratio", "Part of the capacity that the busier direction takes"),
    ("headroom_gbps", "headroom_bytes_per_second", "bytes/s", "Promised to nobody"),
)
"""A field of the view, the suffix of its metric's name, its unit, and its meaning."""
TELEMETRY = {
    (by, field): Metric(
        f"matrixlink_{by}_{ending}", "gauge", unit, f"{says}, by {by}.", labels,
        together=SLICE if by == "slice" else None, stability="stable" if by == "plane" else "alpha",
    )
    for by, labels in BY.items()
    for field, ending, unit, says in SERIES
}  # fmt: skip
PROBES = Metric("matrixlink_probes_sent_total", "counter", "probes", "Probes that agents reported.", stability="stable")
LOST = Metric("matrixlink_probes_failed_total", "counter", "probes", "Of these, the failed.", stability="stable")
DRIFTS = Metric("matrixlink_table_drifts_total", "counter", "tables", "Tables found otherwise than programmed.")
DAMPED = Metric("matrixlink_links_damped_total", "counter", "times", "Times a link was held down.")
BELOW = Metric(
    "matrixlink_links_below", "gauge", "links", "Links below their rate.",
    (PLANE, Label("reason", "why", ("PortDown", "LanesLost", "ProbeLost", "ProbeSlow", "Damped"))), stability="stable",
)  # fmt: skip
METRICS = (*TELEMETRY.values(), PROBES, LOST, DRIFTS, DAMPED, BELOW)


class LinkMetrics:
    """A collector, called at every scrape."""

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

    def collect(self) -> Iterator[Family]:
        most = {"slice": SLICES_MAX, "project": PROJECTS_MAX}
        for by in BY:
            views = sorted(self._telemetry.by(by), key=lambda view: -(view.sent_gbps + view.received_gbps))
            yield from _families(by, views[: most.get(by)])
        yield self._links()
        counts = (
            (PROBES, self._diagnosis.sent),
            (LOST, self._diagnosis.failed),
            (DRIFTS, self._reported["drifts"]),
            (DAMPED, self._conditions.counters["Damped"]),
        )
        for metric, count in counts:
            family = metric.family()
            family.add_metric([], count)
            yield family

    def _links(self) -> Family:
        """How many links are below their rate, by reason."""
        family = BELOW.family()
        with self._slice_controller.store.reading() as session:
            rows = self._slice_controller.store.links(session)
            below = Counter((str(row.built["plane"]), row.reason) for row in rows if row.reason)
        for (plane, reason), count in sorted(below.items()):
            family.add_metric([plane, reason], count)
        return family


def _families(by: str, views: list[TelemetryView]) -> Iterator[Family]:
    for field, _, unit, _ in SERIES:
        family = TELEMETRY[by, field].family()
        for view in views:
            value = getattr(view, field)
            if value is not None:
                scale = BYTES_PER_GB if unit == "bytes/s" else 1.0
                family.add_metric([_label(view, label.name, by) for label in BY[by]], value * scale)
        yield family


def _label(view: TelemetryView, label: str, by: str) -> str:
    return view.name if label == by and by != "project" else str(getattr(view, label) or "")
