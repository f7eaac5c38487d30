"""Solves the five fitted values of `calibration.yaml` from five published points.

Vector work a token, the gap of a layer, the overlap of the two streams and the two expert imbalances are found by
Newton's method so that decode at 4K with batch 96, 24 and 8 and both prefill figures come out. Every other figure is a
prediction. Run `python -m benchmarks.infer_validation.fit` to see the values, and with `--leave-out` what each of the
decode points becomes when another takes its place in the fit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.infer_validation.figures import (
    DECODE_POINTS,
    decode_timing,
    prefill_timing,
    prefill_tokens_per_npu,
    tpot_ms,
)
from infer_workload.timing.calibration import Calibration, load_calibration

NAMES = ("vector_us", "layer_gap_us", "overlap", "decode_imbalance", "prefill_imbalance")
START = (2.0, 70.0, 0.5, 1.8, 1.4)


def solve(decode_points: Sequence[int] = (0, 1, 2), start: Sequence[float] = START) -> Calibration:
    """The calibration that meets those three rows of DECODE_POINTS and both prefill figures exactly.

    Raises ArithmeticError where Newton's method does not settle.
    """
    current = load_calibration()

    def residuals(values: Sequence[float]) -> list[float]:
        trial = _with(current, values)
        timing = decode_timing(320, trial)
        errors = []
        for at in decode_points:
            batch, prompt, output, tpot, _, _ = DECODE_POINTS[at]
            errors.append(tpot_ms(timing, batch, prompt, output) / tpot - 1)
        errors.append(prefill_tokens_per_npu(prefill_timing(32, trial, balanced=True)) / 6688.0 - 1)
        errors.append(prefill_tokens_per_npu(prefill_timing(32, trial, balanced=False)) / 5655.0 - 1)
        return errors

    return _with(current, newton(residuals, list(start)))


def _with(current: Calibration, values: Sequence[float]) -> Calibration:
    fitted: dict[str, Any] = dict(zip(NAMES, values, strict=True))
    return replace(current, **fitted)


def newton(residuals: Callable[[Sequence[float]], list[float]], values: list[float], rounds: int = 60) -> list[float]:
    """A root of `residuals` near `values`, derivatives by differences, steps of at most a fifth of a value."""
    for _ in range(rounds):
        at = residuals(values)
        if max(abs(error) for error in at) < 1e-10:
            return values
        columns = []
        for index, value in enumerate(values):
            nudged = list(values)
            nudged[index] = value * (1 + 1e-6)
            columns.append([(b - a) / (value * 1e-6) for a, b in zip(at, residuals(nudged), strict=True)])
        step = _solved([[column[row] for column in columns] for row in range(len(at))], [-error for error in at])
        largest = max(abs(change) / abs(value) for change, value in zip(step, values, strict=True))
        damping = min(1.0, 0.2 / largest) if largest > 0 else 1.0
        values = [value + damping * change for value, change in zip(values, step, strict=True)]
    raise ArithmeticError("the fit does not settle")


def _solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss with partial pivoting; the systems here are five by five."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for pivot in range(size):
        best = max(range(pivot, size), key=lambda at: abs(rows[at][pivot]))
        rows[pivot], rows[best] = rows[best], rows[pivot]
        for below in range(size):
            if below != pivot:
                factor = rows[below][pivot] / rows[pivot][pivot]
                rows[below] = [a - factor * b for a, b in zip(rows[below], rows[pivot], strict=True)]
    return [rows[at][size] / rows[at][at] for at in range(size)]


def main(arguments: Sequence[str]) -> None:
    current = solve()
    for name in NAMES:
        print(f"{name:20} {getattr(current, name):9.4f}   in the file {getattr(load_calibration(), name):g}")
    if "--leave-out" not in arguments:
        return
    for out, instead in ((0, 3), (0, 4), (1, 3), (1, 4)):
        points = [instead if at == out else at for at in (0, 1, 2)]
        batch, prompt, output, tpot, _, _ = DECODE_POINTS[out]
        try:
            trial = solve(points)
        except ArithmeticError:
            print(f"batch {batch} left out, row {instead} in its place: no solution")
            continue
        error = tpot_ms(decode_timing(320, trial), batch, prompt, output) / tpot - 1
        print(f"batch {batch} left out, row {instead} in its place: {error:+.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])
