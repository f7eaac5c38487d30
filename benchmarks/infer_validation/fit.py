"""Recompute the fitted constants and write them: `python -m benchmarks.infer_validation.fit [--write]`.

Rows, unknowns and method are in `infer_workload.experiments.validation`. Without `--write` the new values are printed
and the file is not changed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from infer_workload.experiments.validation.fit import PRIORS, UNKNOWNS, Fit, solve

FILE = Path(__file__).parents[2] / "infer_workload/timing/fitted.yaml"


def format_fit(fit: Fit) -> str:
    """The text of the file: each value with its uncertainty, and the correlations between values."""
    names = ", ".join(row.name for row in fit.rows)
    priors = "; ".join(f"{prior.name} {prior.value:g} +- {prior.sigma:g} ({prior.source})" for prior in PRIORS)
    lines = [
        "# Written by `python -m benchmarks.infer_validation.fit --write`; do not edit.",
        f"# {len(UNKNOWNS)} constants by least squares from {len(fit.rows)} published rows ({names})",
        f"# and {len(PRIORS)} priors: {priors}.",
        "# `sigma` is one standard deviation. Every other figure is a prediction.",
    ]
    for unknown in UNKNOWNS:
        value, sigma = fit.values[unknown.name], fit.sigmas[unknown.name]
        lines.append(
            f'{unknown.name}: {{value: {value:.5g}, unit: "{unknown.unit}", kind: fitted, sigma: {sigma:.2g}, '
            f'source: "{unknown.meaning}"}}'
        )
    deviations = np.sqrt(np.diag(fit.covariance))
    for unknown, row in zip(UNKNOWNS, fit.covariance / np.outer(deviations, deviations), strict=True):
        lines.append(f"# correlation of {unknown.name}: {' '.join(f'{value:+.2f}' for value in row)}")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    text = format_fit(solve())
    if "--write" in arguments:
        FILE.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main(sys.argv[1:])
