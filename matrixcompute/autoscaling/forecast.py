"""Forecasts of the highest load until a member that is started now serves.

The load stays; it continues the trend of the last minutes, with or without the highest load so far as a cap; it returns
to its recent peak, or to a high quantile of recent load; it repeats what it did one period ago, if it is periodic. None
has a margin: `backtest` judges rules that are made of them. Times without samples teach nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

HISTORY_S = 3600.0
SMOOTHED_S = 30.0
TRENDS_S = (120.0, 300.0)
PEAKS_S = (300.0, 1200.0)
QUANTILES, QUANTILES_S = (0.9, 0.97), 1200.0
"""The quantiles that are used as forecasts, over this many seconds of load."""
PERIODS_S = (120.0, 1500.0)
PERIODS_MIN = 1.5
"""The range of periods to look for, and how many of one must have been seen: enough for the second rise of the load."""
CORRELATION_MIN = 0.5
"""The correlation with the load one period ago below which the load is not periodic."""
SAMPLES_MIN = 20
"""The samples that a forecast needs; with fewer there is none."""

Loads = Sequence[tuple[float, float]]


def smoothed(loads: Loads, now: float, over_s: float = SMOOTHED_S) -> float:
    """The mean of the samples of the last `over_s`, or the last sample if there are none. `loads` is not empty."""
    recent = [load for at, load in loads if at > now - over_s] or [loads[-1][1]]
    return sum(recent) / len(recent)


def highest_mean(loads: Loads, since_s: float, over_s: float = SMOOTHED_S) -> float:
    """The highest mean over `over_s` within the last `since_s`."""
    at, load = (np.array(column) for column in zip(*loads, strict=True))
    return float(means(at, load, over_s)[at > at[-1] - since_s].max())


def forecasts(at: np.ndarray, load: np.ndarray, level: np.ndarray, ahead_s: float) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each forecast with the index of the first sample for which it can be made."""
    yield 0, level
    highest = np.maximum.accumulate(level)
    for trend_s in TRENDS_S:
        trend = level + np.maximum(0.0, _slopes(at, load, trend_s)) * ahead_s
        yield 0, trend
        yield 0, np.minimum(trend, highest)
    for peak_s in PEAKS_S:
        yield 0, _window_max(at, level, peak_s)
    for quantile in QUANTILES:
        yield 0, _window_quantile(at, level, QUANTILES_S, quantile)
    if period_s := _period_s(at, level):
        season = _max_ahead(at, level, ahead_s)[0][np.searchsorted(at, at - period_s)]
        yield int(np.searchsorted(at, at[0] + period_s)), season


def _period_s(at: np.ndarray, level: np.ndarray) -> float:
    """The period (s) with the highest autocorrelation; 0 if the load is not periodic."""
    if len(at) < 4 or at[-1] - at[0] < PERIODS_MIN * PERIODS_S[0]:
        return 0.0
    step = float(np.median(np.diff(at)))
    grid = np.arange(at[0], at[-1] + step / 2, step)
    values = np.interp(grid, at, level)
    values -= values.mean()
    lags = np.arange(int(PERIODS_S[0] / step), int(min(PERIODS_S[1], (at[-1] - at[0]) / PERIODS_MIN) / step) + 1)
    if len(lags) < 3 or not values.any():
        return 0.0
    squares = values * values
    correlation = np.array([_autocorrelation(values, squares, int(lag)) for lag in lags])
    peaks = np.flatnonzero((correlation[1:-1] >= correlation[:-2]) & (correlation[1:-1] >= correlation[2:])) + 1
    peaks = peaks[correlation[peaks] > CORRELATION_MIN]
    if not len(peaks):
        return 0.0
    first = next(peak for peak in peaks if correlation[peak] > 0.95 * correlation[peaks].max())
    return float(lags[first] * step)


def _autocorrelation(values: np.ndarray, squares: np.ndarray, lag: int) -> float:
    """The correlation of the values with themselves `lag` samples earlier."""
    total = np.add.reduce
    scale = np.sqrt(total(squares[lag:]) * total(squares[:-lag]))
    return float(total(values[lag:] * values[:-lag]) / max(1e-12, scale))


def _window_starts(at: np.ndarray, over_s: float) -> np.ndarray:
    """For each sample, the index of the first one within `over_s` before it."""
    return np.searchsorted(at, at - over_s, side="right")


def means(at: np.ndarray, load: np.ndarray, over_s: float) -> np.ndarray:
    sums = np.concatenate([[0.0], np.cumsum(load)])
    first, end = _window_starts(at, over_s), np.arange(1, len(at) + 1)
    return (sums[end] - sums[first]) / (end - first)


def _slopes(at: np.ndarray, load: np.ndarray, over_s: float) -> np.ndarray:
    """The slope per second of a least-squares line through the samples within `over_s` before each one."""
    moment = at - at[0]
    first, end = _window_starts(at, over_s), np.arange(1, len(at) + 1)
    count = end - first

    def total(values: np.ndarray) -> np.ndarray:
        sums = np.concatenate([[0.0], np.cumsum(values)])
        return sums[end] - sums[first]

    spread = count * total(moment * moment) - total(moment) ** 2
    slope = count * total(moment * load) - total(moment) * total(load)
    return np.where(spread > 1e-6, slope / np.maximum(spread, 1e-6), 0.0)


def _max_ahead(at: np.ndarray, level: np.ndarray, ahead_s: float) -> tuple[np.ndarray, int]:
    """For each sample the maximum within `ahead_s` after it, and for how many samples that time is over."""
    end = np.searchsorted(at, at + ahead_s, side="right")
    return _range_max(level, np.arange(len(at)), end), int(np.searchsorted(at, at[-1] - ahead_s, side="right"))


def _window_max(at: np.ndarray, level: np.ndarray, over_s: float) -> np.ndarray:
    return _range_max(level, _window_starts(at, over_s), np.arange(1, len(at) + 1))


def _window_quantile(at: np.ndarray, level: np.ndarray, over_s: float, quantile: float) -> np.ndarray:
    count = np.arange(1, len(at) + 1) - _window_starts(at, over_s)
    width = int(count.max())
    ordered = np.sort(sliding_window_view(np.concatenate([np.full(width - 1, -np.inf), level]), width), axis=1)
    for_each = np.arange(len(at))
    ordered[ordered == -np.inf] = 0.0
    return ordered[for_each, width - 1 - ((1 - quantile) * count).astype(int)]


def _range_max(level: np.ndarray, first: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The maximum of each range; ranges may overlap and differ in length. By doubling."""
    tables = np.zeros((len(level).bit_length(), len(level)))
    tables[0] = level
    for power in range(1, len(tables)):
        count, half = len(level) - 2**power + 1, tables[power - 1]
        np.maximum(half[:count], half[2 ** (power - 1) :][:count], out=tables[power, :count])
    powers = np.log2(np.maximum(1, end - first)).astype(int)
    return np.maximum(tables[powers, first], tables[powers, end - 2**powers])
