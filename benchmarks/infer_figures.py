"""The timing model's error on each published figure, with fitted figures listed separately.

Other models' errors on the same decode points are in docs/decisions/0300. `matrixctl experiment validate` prints
everything.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import Figure
from infer_workload.experiments.validation.published import FITTED
from infer_workload.experiments.validation.validation import validate

PREDICTED_WITHIN_PERCENT, FITTED_WITHIN_PERCENT = 10.0, 2.0
MEAN_WITHIN_PERCENT = 5.0


def measure() -> Iterator[Figure]:
    found = validate()
    for each in found.figures:
        most = FITTED_WITHIN_PERCENT if each.role == FITTED else PREDICTED_WITHIN_PERCENT
        method = f"{each.role}; published {each.published:g} {each.unit}, model {each.predicted:.4g}; {each.source}"
        yield Figure(f"{each.section}: {each.name}, error", abs(each.error) * 100, "%", method, most)
    now = found.summary()
    for name, what in (
        ("predicted_mean_error", "predicted figures"),
        ("left_out_mean_error", "fitted figures left out"),
    ):
        yield Figure(
            f"{what}, mean error",
            now[name] * 100,
            "%",
            f"{found.fit.rows and len(found.fit.rows)} rows in the fit",
            MEAN_WITHIN_PERCENT,
        )
    yield Figure(
        "published values inside their 90 % interval", now["inside_interval"] * 100, "%", "fitted and predicted"
    )
