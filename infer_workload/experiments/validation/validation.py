"""The whole validation as one value: each published figure beside its prediction, with interval and errors.

`validate` predicts with the constants in the files, computes intervals from a new fit, leaves out each fitted row in
turn, and predicts from published efficiencies alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from infer_workload.experiments.validation.ablations import Effect, effects
from infer_workload.experiments.validation.fit import PRIORS, UNKNOWNS, Fit, leave_one_out, solve
from infer_workload.experiments.validation.intervals import Interval, interval, shift_inputs
from infer_workload.experiments.validation.published import FITTED, NOT_PREDICTED, PREDICTED, PUBLISHED
from infer_workload.experiments.validation.settings import A2, decode_timing, on_a2
from infer_workload.timing.calibration import Calibration, load_calibration


@dataclass(frozen=True)
class FigureComparison:
    """One published figure and the model's prediction."""

    section: str
    name: str
    unit: str
    published: float
    predicted: float
    low: float
    high: float
    role: str
    source: str
    without_fit: float

    @property
    def error(self) -> float:
        return self.predicted / self.published - 1.0

    @property
    def inside(self) -> bool:
        """Whether the published value lies inside the interval."""
        return self.low <= self.published <= self.high


@dataclass(frozen=True)
class LeaveOneOut:
    """A fitted row as predicted by a fit to the other rows."""

    name: str
    unit: str
    published: float
    predicted: float

    @property
    def error(self) -> float:
        return self.predicted / self.published - 1.0


@dataclass(frozen=True)
class Validation:
    """Everything `matrixctl experiment validate` prints."""

    figures: list[FigureComparison]
    left_out: list[LeaveOneOut]
    fit: Fit
    ablations: list[Effect]
    attention_cores: int
    """Matrix cores that the model assigns to the attention stream at batch 96 and 4K; 16 in the paper."""

    def errors(self, role: str) -> list[float]:
        return [abs(each.error) for each in self.figures if each.role == role]

    def summary(self) -> dict[str, float]:
        """Return mean and worst errors by role, shares inside the interval, and errors of leave-one-out and without
        fit."""
        predicted = [each for each in self.figures if each.role == PREDICTED]
        counted = [each for each in self.figures if each.role in (FITTED, PREDICTED)]
        bare = [abs(each.without_fit / each.published - 1.0) for each in counted]
        out = [abs(each.error) for each in self.left_out]
        return {
            "predicted": len(predicted),
            "predicted_mean_error": _mean(self.errors(PREDICTED)),
            "predicted_worst_error": max(self.errors(PREDICTED)),
            "predicted_inside_interval": _mean([float(each.inside) for each in predicted]),
            "fitted": len(counted) - len(predicted),
            "fitted_worst_error": max(self.errors(FITTED)),
            "inside_interval": _mean([float(each.inside) for each in counted]),
            "left_out_mean_error": _mean(out),
            "left_out_worst_error": max(out),
            "without_fit_mean_error": _mean(bare),
            "without_fit_worst_error": max(bare),
        }

    def document(self) -> dict[str, Any]:
        """Return everything as a JSON document."""
        return {
            "figures": [
                {**vars(each), "error": each.error, "inside_interval": each.inside} for each in self.figures
            ],
            "left_out": [{**vars(each), "error": each.error} for each in self.left_out],
            "fit": [
                {
                    "name": each.name, "value": self.fit.values[each.name], "sigma": self.fit.sigmas[each.name],
                    "unit": each.unit, "meaning": each.meaning, "low": each.low, "high": each.high,
                }
                for each in UNKNOWNS
            ],
            "priors": [vars(each) for each in PRIORS],
            "rows": len(self.fit.rows),
            "ablations": [{**vars(each), "gain": each.gain} for each in self.ablations],
            "not_predicted": dict(NOT_PREDICTED),
            "attention_cores": {"published": 16, "predicted": self.attention_cores},
            "summary": self.summary(),
        }  # fmt: skip


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def without_fit(calibration: Calibration) -> Calibration:
    """Return the calibration from published numbers alone: starting and issuing take no time, and vector operators run
    at the rate of HBM."""
    changes: dict[str, Any] = {
        "exchange_start_us": 0.0, "dispatch_issue_us": 0.0, "exchange_growth_us": 0.0, "launch_us": 0.0,
        "vector_gbps": calibration.hbm_gbps * calibration.memory_efficiency,
        "sequence_skew": next(prior.value for prior in PRIORS if prior.name == "sequence_skew"),
    }  # fmt: skip
    return replace(calibration, **changes)


def validate() -> Validation:
    """Compare the model with all published figures. Raises NoSolution if a fold of the fit does not converge."""
    current = load_calibration()
    bare, fit = without_fit(current), solve(start=current)
    moves = shift_inputs(fit)
    figures = []
    for row in PUBLISHED:
        sure: Interval = interval(row, fit, moves)
        placed, unfitted = (on_a2(each) if row.machine == A2 else each for each in (current, bare))
        figures.append(
            FigureComparison(
                row.section,
                row.name,
                row.unit,
                row.value,
                row.predicted(placed),
                sure.low,
                sure.high,
                row.role,
                row.source,
                row.predicted(unfitted),
            )
        )
    folds = [LeaveOneOut(row.name, row.unit, row.value, predicted) for row, predicted in leave_one_out(fit)]
    cores = decode_timing(320, current).attention_cores(48, 48 * 4224)
    return Validation(figures, folds, fit, effects(current), cores)
