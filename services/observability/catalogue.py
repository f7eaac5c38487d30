"""Every metric of every process, from the declarations beside the code that updates them."""

from __future__ import annotations

from collections.abc import Iterator

from infer_workload.serving.metrics import METRICS as INFER
from matrixcommon.telemetry.metric import Metric
from matrixlink.telemetry.metrics import METRICS as LINK
from services.chassis.metrics import METRICS as EVERY
from services.compute.metrics import METRICS as COMPUTE
from services.console.gateway.metrics import METRICS as CONSOLE
from services.kube.metrics import METRICS as KUBE
from services.resource.metrics import METRICS as RESOURCE

EVERYWHERE = "every process but kube and console"
CATALOGUE: dict[str, tuple[Metric, ...]] = {
    EVERYWHERE: EVERY,
    "resource": RESOURCE,
    "link": LINK,
    "compute": COMPUTE,
    "infer": INFER,
    "console": CONSOLE,
    "kube": KUBE,
}
"""By the process that exports them."""


def metrics_of(process: str) -> tuple[Metric, ...]:
    """The metrics that a process exports."""
    return CATALOGUE[process] if process in ("console", "kube") else (*EVERY, *CATALOGUE.get(process, ()))


def every_metric() -> Iterator[Metric]:
    for metrics in CATALOGUE.values():
        yield from metrics


def by_sample() -> dict[str, Metric]:
    """Each metric by its sample names, which are the names in queries."""
    return {name: metric for metric in every_metric() for name in metric.exported()}
