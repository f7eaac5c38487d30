"""Least-squares fit of the few constants that no source gives.

The unknowns are fitted to the operator tables, the decode row at 50 ms and both prefill rows, each weighted by its
uncertainty, and to prior knowledge of the unknowns (`PRIORS`, treated as further rows). There are fewer unknowns than
rows. The intervals in `intervals` derive from the covariance of the solution under those weights. The solver is
Levenberg-Marquardt with derivatives by central differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infer_workload.experiments.validation.published import FITTED, PUBLISHED, Published
from infer_workload.timing.calibration import Calibration, load_calibration

Vector = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Unknown:
    """A constant to fit: its starting value and physical bounds."""

    name: str
    start: float
    low: float
    high: float
    unit: str
    meaning: str


UNKNOWNS: tuple[Unknown, ...] = (
    Unknown("exchange_start_us", 15.0, 2.1, 20.0, "us an exchange",
            "start of a fused dispatch or combine: no less than a remote write (2.1 us, P), no more than X's smallest"),
    Unknown("dispatch_issue_us", 0.3, 0.0, 2.1, "us a token on all vector cores",
            "quantising, addressing and writing a token's copies: no more than one remote write after the other"),
    Unknown("exchange_growth_us", 0.05, 0.0, 1.0, "us a token and doubling of the ranks beyond 8",
            "more peers, more of them in other nodes"),
    Unknown("vector_gbps", 300.0, 20.0, 1600.0, "GB/s a die",
            "what vector operators move, one rate for all: no more than HBM gives"),
    Unknown("launch_us", 5.0, 0.0, 20.0, "us an operator",
            "start and end of an operator on all cores"),
    Unknown("sequence_skew", 1.5, 0.2, 2.5, "standard deviation of the logarithm",
            "how uneven one stream of text loads the experts"),
)  # fmt: skip


@dataclass(frozen=True)
class Prior:
    """Prior knowledge of an unknown; one more row of the fit."""

    name: str
    value: float
    sigma: float
    source: str


PRIORS: tuple[Prior, ...] = (
    Prior("launch_us", 5.0, 2.0, "assumed: task start, tail and synchronisation on the device, 3 to 7 us"),
    Prior("sequence_skew", 1.683, 0.15, "X: 20 % of experts above the mean, the hottest about 30 times it"),
)

FITTED_ROWS: tuple[Published, ...] = tuple(row for row in PUBLISHED if row.role == FITTED)
RELATIVE_STEP = 0.02
"""Relative step of the central differences: the drawn imbalance is smooth only on that scale."""


class NoSolution(ArithmeticError):
    """The fit does not converge, or is underdetermined."""


@dataclass(frozen=True)
class Fit:
    """A solution: the fitted calibration, the covariance of the unknowns, and the Jacobian of the weighted
    residuals."""

    calibration: Calibration
    covariance: Vector
    jacobian: Vector
    rows: tuple[Published, ...]

    @property
    def values(self) -> dict[str, float]:
        return {unknown.name: getattr(self.calibration, unknown.name) for unknown in UNKNOWNS}

    @property
    def sigmas(self) -> dict[str, float]:
        return dict(zip(self.values, map(float, np.sqrt(np.diag(self.covariance))), strict=True))


def residuals(rows: Sequence[Published], calibration: Calibration) -> Vector:
    """Return the error of each row and prior in units of its uncertainty."""
    of_rows = [(row.predicted(calibration) / row.value - 1.0) / row.sigma for row in rows]
    of_priors = [(getattr(calibration, prior.name) - prior.value) / prior.sigma for prior in PRIORS]
    return np.array(of_rows + of_priors)


def with_values(calibration: Calibration, values: Vector) -> Calibration:
    fitted: Mapping[str, Any] = {unknown.name: float(value) for unknown, value in zip(UNKNOWNS, values, strict=True)}
    return replace(calibration, **fitted)


def solve(
    rows: Sequence[Published] = FITTED_ROWS, start: Calibration | None = None, calibration: Calibration | None = None
) -> Fit:
    """Fit the constants to those rows, starting from `start` or from the default values.

    Raises NoSolution if there are not more rows and priors than unknowns, or if the fit does not converge.
    """
    current = calibration or load_calibration()
    if len(UNKNOWNS) >= len(rows) + len(PRIORS):
        raise NoSolution(f"{len(UNKNOWNS)} unknowns need more than {len(rows)} rows and {len(PRIORS)} priors")
    begin = [getattr(start, each.name) if start else each.start for each in UNKNOWNS]
    at, damping = np.array(begin), 1e-3
    low, high = np.array([each.low for each in UNKNOWNS]), np.array([each.high for each in UNKNOWNS])
    error = residuals(rows, with_values(current, at))
    for _ in range(60):
        slopes = jacobian(rows, current, at)
        normal = slopes.T @ slopes
        while damping < 1e9:
            step = -np.linalg.solve(normal + damping * np.diag(np.diag(normal)), slopes.T @ error)
            tried = np.clip(at + np.clip(step, -0.3 * abs(at), 0.3 * abs(at)), low, high)
            found = residuals(rows, with_values(current, tried))
            if found @ found < error @ error:
                break
            damping *= 4.0
        else:
            return Fit(with_values(current, at), np.linalg.inv(normal), slopes, tuple(rows))
        gained, at, error, damping = error @ error - found @ found, tried, found, damping / 4.0
        if gained < 1e-7:
            slopes = jacobian(rows, current, at)
            return Fit(with_values(current, at), np.linalg.inv(slopes.T @ slopes), slopes, tuple(rows))
    raise NoSolution("the fit does not converge")


def jacobian(rows: Sequence[Published], calibration: Calibration, at: Vector) -> Vector:
    """Return the derivatives of the residuals, a column for each unknown."""
    columns = []
    for index, value in enumerate(at):
        nudge = np.zeros_like(at)
        nudge[index] = RELATIVE_STEP * abs(value) or RELATIVE_STEP
        above = residuals(rows, with_values(calibration, at + nudge))
        below = residuals(rows, with_values(calibration, at - nudge))
        columns.append((above - below) / (2.0 * nudge[index]))
    return np.array(columns).T


def leave_one_out(fit: Fit) -> list[tuple[Published, float]]:
    """Return each fitted row with the model's prediction of it when fitted to the other rows. Raises NoSolution."""
    found = []
    for row in fit.rows:
        others = [other for other in fit.rows if other is not row]
        found.append((row, row.predicted(solve(others, start=fit.calibration).calibration)))
    return found
