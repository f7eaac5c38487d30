"""Choose the cheapest rule for the floor that would have been sufficient, by a backtest over the load of the last hour.

A rule is a forecast of the load, how long the highest forecast is held, and a headroom. Each is replayed over the
recorded load: members that it asks for serve after the start time and are paid for from the first second, members that
it releases are gone at once, and load beyond what serves waits. The cheapest rule within the error budget is followed;
none asks for more than the highest load so far. A short history says little, so each rule starts from a prior miss rate
that fits its caution: the steeper the load has ever risen, the longer its peaks have to be held.

The constants were chosen on the seeded traces of `python -m benchmarks autoscaling`, with recorded traces considered
too: see decisions 592 and 820.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np

from matrixcompute.autoscaling.forecast import SAMPLES_MIN, Loads, forecasts, means

HOLDS_S = (60.0, 120.0, 300.0, 600.0, 1200.0, 2400.0)
"""How long the highest forecast is held."""
HEADROOMS = (0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6)
CLIMB_S, CLIMB_T_MIN = 180.0, 4.0
"""The window for a climb, and the ratio of its slope to the slope's error from which it is clear."""
BUDGET = 0.004
"""The share of the load of one role that may miss its objective."""
PRIOR_S = 600.0
"""The weight of the prior miss rate of a rule, as seconds of history."""
NOISE_MISSED, NOISE_HEADROOM = 0.01, 0.05
"""Prior for noise: the share missed without headroom, and the headroom that divides it by e."""
RETURN_MISSED, RETURN_HOLD_S = 0.1, 900.0
"""Prior for a peak that returns: the share missed without holding peaks, and the hold time that divides it by e."""
STEEP_RISE = 0.5
"""The rise within a start time, as a share of the highest load, from which that prior counts in full; it is quadratic
in the rise, so half of it counts a fourth."""
SEASON_MISSED, SEASON_NOISE = 0.01, 3.0
"""Prior of a seasonal rule, which holds no peaks: the most it misses of a returning peak, and the factor on noise."""


@dataclass(frozen=True)
class Sizing:
    """The constraints on the size of a pool, in nodes and seconds."""

    start_s: float
    over_s: float
    """The window over which the load is averaged."""
    allowed_s: float = 0.0
    """How long work may wait."""
    stays_s: float = 0.0
    """How long a released member is still paid for, until its requests finish."""
    block: int = 1
    least: int = 1


def floor(loads: Loads, sizing: Sizing, tick_s: float) -> int | None:
    """Nodes needed for the load until a member that is requested now serves, in whole blocks and at least
    `sizing.least`; None with fewer than SAMPLES_MIN samples. `loads`: (time in s, load in nodes)."""
    if len(loads) < SAMPLES_MIN:
        return None
    at, load = _resample(loads, tick_s)
    level = means(at, load, sizing.over_s)
    highest = np.maximum.accumulate(level)
    forecasts_made = list(forecasts(at, load, level, sizing.start_s + tick_s + sizing.over_s / 2))
    padded_forecasts = np.array(
        [np.concatenate([highest[:first], forecast[first:]]) for first, forecast in forecasts_made]
    )
    peaks = np.stack(list(_running_maxima(padded_forecasts, [round(hold_s / tick_s) for hold_s in HOLDS_S])), axis=1)
    rule_levels = np.minimum(peaks[:, :, None, :] * np.array(HEADROOMS)[:, None], highest)
    members = np.maximum(np.ceil(rule_levels / sizing.block - 1e-9) * sizing.block, sizing.least).reshape(-1, len(at))
    rise = float((level + _running_max(-level, ceil(sizing.start_s / tick_s) + 2)).max() / max(1e-9, highest[-1]))
    missed = _backtest_miss_rates(load, level, members, sizing, tick_s)
    miss_rates = _expected_miss_rates(
        [first for first, _ in forecasts_made], missed, len(at) * tick_s, min(1.0, (rise / STEEP_RISE) ** 2)
    )
    paid = _mean_paid_nodes(members[:, max(first for first, _ in forecasts_made) :], sizing, tick_s)
    within_budget = miss_rates <= BUDGET
    best = int(np.argmin(np.where(within_budget, paid, np.inf)) if within_budget.any() else np.argmin(miss_rates))
    return max(int(members[best, -1]), _climb_floor(at, load, level, sizing, tick_s))


def _expected_miss_rates(begin: list[int], missed: np.ndarray, seen_s: float, steep: float) -> np.ndarray:
    """The share of the load that each rule is expected to miss: what it missed in the backtest, blended with its prior.
    A forecast with a nonzero first index is seasonal, and knows when a peak returns."""
    noise = NOISE_MISSED * np.exp((1 - np.array(HEADROOMS)) / NOISE_HEADROOM)
    returns = steep * RETURN_MISSED * np.exp(-np.array(HOLDS_S) / RETURN_HOLD_S)
    before = np.array([
        np.minimum(returns, SEASON_MISSED)[:, None] + SEASON_NOISE * noise if first else returns[:, None] + noise
        for first in begin
    ]).reshape(-1)  # fmt: skip
    return (missed * seen_s + before * PRIOR_S) / (seen_s + PRIOR_S)


def _mean_paid_nodes(members: np.ndarray, sizing: Sizing, tick_s: float) -> np.ndarray:
    """The mean number of nodes paid for, draining ones included."""
    released = np.maximum(0.0, -np.diff(members, axis=1)).sum(axis=1)
    return members.mean(axis=1) + released * sizing.stays_s / (members.shape[1] * tick_s)


def _backtest_miss_rates(
    load: np.ndarray, level: np.ndarray, members: np.ndarray, sizing: Sizing, tick_s: float
) -> np.ndarray:
    """The share of the load that each rule would have served too late. Load above the highest seen by then cannot be
    foreseen by any rule, and does not count."""
    ahead = ceil(sizing.start_s / tick_s)
    serving = -_running_max(-members, ahead + 1)[:, :-1]
    most = np.maximum.accumulate(level)
    highest_known = np.concatenate([np.full(ahead + 1, most[0]), most])[1 : len(load)]
    arrived = np.minimum(load[1:] if sizing.allowed_s else level[1:], highest_known)
    missed = np.zeros(len(members))
    if sizing.allowed_s:
        waits_s = np.zeros(len(members))  # of one node
        for moment, more in enumerate(arrived):
            waits_s = np.maximum(0.0, waits_s + (more - serving[:, moment]) * tick_s)
            missed += np.where(waits_s > sizing.allowed_s * serving[:, moment], more, 0.0)
    else:
        missed += np.where(arrived > serving + 1e-9, arrived, 0.0).sum(axis=1)
    return missed / max(1e-9, float(load[1:].sum()))


def _climb_floor(at: np.ndarray, load: np.ndarray, level: np.ndarray, sizing: Sizing, tick_s: float) -> int:
    """Members for where a clear climb leads while the load is at its highest ever, which the backtest cannot judge; 0
    otherwise."""
    count = min(len(at), round(CLIMB_S / tick_s))
    if len(at) > count and level[-1] < level[:-count].max():
        return 0
    x, y = at[-count:] - at[-1], load[-count:]
    slope, intercept = np.polyfit(x, y, 1)
    error = float(np.std(y - (intercept + slope * x)) / max(1e-9, np.std(x)) / np.sqrt(count))
    if slope < CLIMB_T_MIN * error:
        return 0
    needs = intercept + slope * (sizing.start_s + tick_s)
    return int(ceil(needs / sizing.block - 1e-9) * sizing.block)


def _resample(loads: Loads, tick_s: float) -> tuple[np.ndarray, np.ndarray]:
    """Resample to one sample per tick, aligned to the last one."""
    at, load = (np.array(column) for column in zip(*loads, strict=True))
    grid = np.arange(at[-1], at[0] - tick_s / 2, -tick_s)[::-1]
    return grid, load[np.clip(np.searchsorted(at, grid + tick_s / 2) - 1, 0, None)]


def _running_max(values: np.ndarray, count: int) -> np.ndarray:
    """The running maximum over the last `count` values of each row, or over as many as there are."""
    return next(_running_maxima(values, (count,)))


def _running_maxima(values: np.ndarray, counts: Iterable[int]) -> Iterator[np.ndarray]:
    """The same for each of `counts`, in ascending order: by doubling, each from the one before."""
    maximum, width = values, 1
    for count in counts:
        while width < min(count, values.shape[-1]):
            step = min(width, count - width)
            wider = maximum.copy()
            np.maximum(maximum[..., step:], maximum[..., :-step], out=wider[..., step:])
            maximum, width = wider, width + step
        yield maximum
