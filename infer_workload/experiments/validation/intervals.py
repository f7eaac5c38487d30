"""The 90 % interval of a prediction: it should contain the published value nine times out of ten.

Its width has three sources. The fitted constants are uncertain, by the covariance of the fit. The published figure is
uncertain, by the row's `sigma`. And inputs are uncertain: each one with a `range`, in the files of constants or in the
row itself, may lie anywhere in it. When a general input changes, the fit is solved again (to first order), so that the
fitted rows stay matched. Contributions are added in quadrature, upwards and downwards separately; a range counts as a
uniform distribution from its nominal value to its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from infer_workload.experiments.validation.fit import RELATIVE_STEP, UNKNOWNS, Fit, Vector, residuals, with_values
from infer_workload.experiments.validation.published import Published
from infer_workload.experiments.validation.settings import A2, on_a2
from infer_workload.timing.calibration import MACHINE, Calibration, entries

DEVIATIONS_90 = 1.645
"""Standard deviations on each side of the mean that contain 90 % of a normal distribution."""


@dataclass(frozen=True)
class Interval:
    """A prediction and the interval in which the published value should lie."""

    predicted: float
    low: float
    high: float

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high


def ranges(machine: str = MACHINE) -> list[tuple[str, float, float]]:
    """Return the uncertain constants that are not fitted: (name, low, high)."""
    fitted = {unknown.name for unknown in UNKNOWNS}
    found = []
    for name, entry in entries(machine).items():
        if "range" in entry and name not in fitted:
            low, high = entry["range"]
            found.append((name, float(low), float(high)))
    return found


@dataclass(frozen=True)
class ShiftedInput:
    """One general input moved to one end of its range, and the calibration with the fit solved again for it."""

    name: str
    calibration: Calibration


def shift_inputs(fit: Fit) -> list[ShiftedInput]:
    """Return the shifted calibrations for both ends of every range of the fitted machine."""
    found = []
    before = residuals(fit.rows, fit.calibration)
    for name, *ends in ranges():
        for end in ends:
            moved = _changed(fit.calibration, name, end)
            drift = residuals(fit.rows, moved) - before
            values = np.array(list(fit.values.values())) - fit.covariance @ fit.jacobian.T @ drift
            low, high = (np.array([getattr(each, side) for each in UNKNOWNS]) for side in ("low", "high"))
            found.append(ShiftedInput(name, with_values(moved, np.clip(values, low, high))))
    return found


def interval(row: Published, fit: Fit, moves: Sequence[ShiftedInput]) -> Interval:
    """Return the model's prediction of `row` with its 90 % interval."""
    nominal = row.predicted(_machine_calibration(row, fit.calibration))
    slopes = _slopes(row, fit)
    variance = float(slopes @ fit.covariance @ slopes) + (row.sigma * nominal) ** 2
    ends: dict[str, list[float]] = {}
    if row.machine == MACHINE:
        for move in moves:
            ends.setdefault(move.name, []).append(row.predicted(move.calibration) - nominal)
    else:
        for name, *limits in ranges(row.machine):
            ends[name] = [
                row.predicted(_machine_calibration(row, fit.calibration, **{name: end})) - nominal for end in limits
            ]
    for name, (_, low, high, _) in row.inputs.items():
        placed = _machine_calibration(row, fit.calibration)
        ends[f"row: {name}"] = [row.predicted(placed, **{name: end}) - nominal for end in (low, high)]
    up = sum(max(0.0, *both) ** 2 / 3.0 for both in ends.values())
    down = sum(min(0.0, *both) ** 2 / 3.0 for both in ends.values())
    return Interval(
        nominal, nominal - DEVIATIONS_90 * sqrt(variance + down), nominal + DEVIATIONS_90 * sqrt(variance + up)
    )


def _slopes(row: Published, fit: Fit) -> Vector:
    found = []
    for name, value in fit.values.items():
        nudge = RELATIVE_STEP * abs(value) or RELATIVE_STEP
        both = [
            row.predicted(_machine_calibration(row, _changed(fit.calibration, name, value + side * nudge)))
            for side in (1.0, -1.0)
        ]
        found.append((both[0] - both[1]) / (2.0 * nudge))
    return np.array(found)


def _machine_calibration(row: Published, calibration: Calibration, **changes: float) -> Calibration:
    """Return the constants of the row's machine."""
    return on_a2(calibration, **changes) if row.machine == A2 else calibration


def _changed(calibration: Calibration, name: str, value: float) -> Calibration:
    changes: dict[str, Any] = {name: value}
    return replace(calibration, **changes)
