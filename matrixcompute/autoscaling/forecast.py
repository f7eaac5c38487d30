"""What the load may be when a member that starts now serves: its trend, and the rises it has shown before.

The trend alone would be right only on average. The rises of the past over as long a time say how far above it the load
has gone; a share of them is to be covered. Nothing is learnt from a time without a measure.
"""

from __future__ import annotations

from collections.abc import Sequence

KEPT_S = 3600.0
SMOOTHED_S = 60.0
COVERED = 0.9
"""The share of past rises that the forecast covers."""
TIMES_MEAN_MAX = 4.0
"""A forecast is never more than so many times the mean of what it is made of (as AIBrix limits its own)."""
SAMPLES_MIN = 4

Loads = Sequence[tuple[float, float]]


def smoothed(loads: Loads, now: float, over_s: float = SMOOTHED_S) -> float:
    """The mean of the last samples; there is at least one."""
    recent = [load for at, load in loads if at > now - over_s] or [loads[-1][1]]
    return sum(recent) / len(recent)


def forecast(loads: Loads, now: float, ahead_s: float) -> float | None:
    """The load to be ready for within `ahead_s`; None while too little is known."""
    if len(loads) < SAMPLES_MIN:
        return None
    level = smoothed(loads, now)
    slope = _slope([each for each in loads if each[0] > now - max(2 * ahead_s, 2 * SMOOTHED_S)])
    expected = max(0.0, level + max(0.0, slope) * ahead_s)
    expected = max(expected, level + _rise(loads, ahead_s))
    mean = sum(load for _, load in loads) / len(loads)
    return max(level, min(expected, TIMES_MEAN_MAX * mean))


def _slope(loads: Loads) -> float:
    """Of the straight line nearest to them, per second."""
    count = len(loads)
    if count < SAMPLES_MIN:
        return 0.0
    middle_at, middle = sum(at for at, _ in loads) / count, sum(load for _, load in loads) / count
    spread = sum((at - middle_at) ** 2 for at, _ in loads)
    return sum((at - middle_at) * (load - middle) for at, load in loads) / spread if spread else 0.0


def _rise(loads: Loads, ahead_s: float) -> float:
    """How far the load has risen above where it was, within `ahead_s`, in all but few of the times before."""
    rises, end, count = [], 0, len(loads)
    for start in range(count):
        end = max(end, start)
        while end + 1 < count and loads[end + 1][0] <= loads[start][0] + ahead_s:
            end += 1
        if end + 1 == count:
            break
        rises.append(max(load for _, load in loads[start : end + 1]) - loads[start][1])
    if len(rises) < SAMPLES_MIN:
        return 0.0
    return sorted(rises)[min(len(rises) - 1, int(COVERED * len(rises)))]
