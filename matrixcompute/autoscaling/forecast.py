"""The most that the load may be until a member that starts now serves.

Three guesses: it stays, or it continues as in the last two or five minutes. Each is judged by what it would have
said at every moment of the last hour: the margin that covers most of what came then is added to it, and the guess that
needs the least in all is taken. Where nothing has a trend the margin is the noise of the load; where there is a trend
the margin is small. Nothing is learnt from a time without a measure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

KEPT_S = 3600.0
SMOOTHED_S = 30.0
COVERED = 0.9
"""The share of past moments that the margin covers."""
TRENDS_S = (120.0, 300.0)
TIMES_MEAN_MAX = 4.0
"""A forecast is never more than so many times the mean of what it is made of (as AIBrix limits its own)."""
SAMPLES_MIN = 8
"""Moments to judge by; before, the load may rise by a third."""
UNKNOWN_RISE = 1 / 3

Loads = Sequence[tuple[float, float]]


def smoothed(loads: Loads, now: float, over_s: float = SMOOTHED_S) -> float:
    """The mean of the last samples; there is at least one."""
    recent = [load for at, load in loads if at > now - over_s] or [loads[-1][1]]
    return sum(recent) / len(recent)


def forecast(loads: Loads, ahead_s: float, over_s: float = SMOOTHED_S) -> float | None:
    """The load to be ready for within `ahead_s`, in means over `over_s`; None where nothing is known."""
    if not loads:
        return None
    at, load = (np.array(column) for column in zip(*loads, strict=True))
    level = _means(at, load, over_s)
    most, known = _most_within(at, level, ahead_s)
    if known < SAMPLES_MIN:
        return float(level[-1] * (1 + UNKNOWN_RISE))
    guesses = [level, *(level + np.maximum(0.0, _slopes(at, load, trend_s)) * ahead_s for trend_s in TRENDS_S)]
    covering = [guess + np.quantile((most - guess)[:known], COVERED) for guess in guesses]
    least = min(covering, key=lambda guess: float(guess[:known].mean()))
    return max(float(level[-1]), min(float(least[-1]), TIMES_MEAN_MAX * float(load.mean())))


def _since(at: np.ndarray, over_s: float) -> np.ndarray:
    """For each moment the place of the first one within `over_s` before it."""
    return np.searchsorted(at, at - over_s, side="right")


def _means(at: np.ndarray, load: np.ndarray, over_s: float) -> np.ndarray:
    sums = np.concatenate([[0.0], np.cumsum(load)])
    first, end = _since(at, over_s), np.arange(1, len(at) + 1)
    return (sums[end] - sums[first]) / (end - first)


def _slopes(at: np.ndarray, load: np.ndarray, over_s: float) -> np.ndarray:
    """Per second, of the straight line nearest to the samples within `over_s` before each moment."""
    moment = at - at[0]
    first, end = _since(at, over_s), np.arange(1, len(at) + 1)
    count = end - first

    def total(values: np.ndarray) -> np.ndarray:
        sums = np.concatenate([[0.0], np.cumsum(values)])
        return sums[end] - sums[first]

    spread = count * total(moment * moment) - total(moment) ** 2
    slope = count * total(moment * load) - total(moment) * total(load)
    return np.where(spread > 1e-6, slope / np.maximum(spread, 1e-6), 0.0)


def _most_within(at: np.ndarray, level: np.ndarray, ahead_s: float) -> tuple[np.ndarray, int]:
    """For each moment the most within `ahead_s` after it, and for how many of them that time is over."""
    end = np.searchsorted(at, at + ahead_s, side="right")
    most = level.copy()
    for step in range(1, int((end - np.arange(len(at))).max(initial=1))):
        inside = np.arange(len(at) - step)[np.arange(step, len(at)) < end[: len(at) - step]]
        most[inside] = np.maximum(most[inside], level[inside + step])
    return most, int(np.searchsorted(at, at[-1] - ahead_s, side="right"))
