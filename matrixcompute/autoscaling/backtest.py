"""Which rule for the floor would have been the cheapest that was enough: rules are judged by the load of the last hour.

A rule is a guess of the load to come, for how long the highest of its guesses counts, and a headroom. Each is replayed
over what came: members that it asks for serve after the start time and are paid for from the first second, those that
it lets go are gone at once, what is over what serves waits. Of the rules that miss no more than their budget the
cheapest is followed; none asks for more than the most that came. A short history says little, so each rule begins with
odds that fit its caution, and the steeper the load ever rose the longer what was there has to be kept.

The numbers here were chosen on the seeded traces of `python -m benchmarks autoscaling`, after a look at recorded ones
too: decisions 592 and 820 say what that settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np

from matrixcompute.autoscaling.forecast import SAMPLES_MIN, Loads, guesses, means

HOLDS_S = (60.0, 120.0, 300.0, 600.0, 1200.0, 2400.0)
"""For how long the highest guess counts."""
HEADROOMS = (0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6)
CLIMB_S, PLAIN = 180.0, 4.0
"""A climb is plain where its slope over so long is so many times its error."""
BUDGET = 0.004
"""The share of the load that may miss its objective, of one role."""
PRIOR_S = 600.0
"""What is thought of a rule before it was judged counts as much as so long a history."""
NOISE_MISSED, NOISE_HEADROOM = 0.01, 0.05
"""What a rule without headroom is thought to miss, and the headroom that makes that e times less."""
RETURN_MISSED, RETURN_HOLD_S = 0.1, 900.0
"""The same of one that holds nothing: what was there comes back."""
STEEP = 0.5
"""Who saw the load rise by so much of its highest within a start has to fear that; of half as much a fourth of it."""
SEASON_MISSED, SEASON_NOISE = 0.01, 3.0
"""One that follows a season holds nothing and misses no more than that, and so many times the noise."""


@dataclass(frozen=True)
class Sizing:
    """How a pool can be sized: in nodes and seconds."""

    start_s: float
    over_s: float
    """Load counts as its mean over so long."""
    allowed_s: float = 0.0
    """How long work may wait."""
    stays_s: float = 0.0
    """What is let go is paid for until what it has is finished."""
    block: int = 1
    least: int = 1


def floor(loads: Loads, sizing: Sizing, tick_s: float) -> int | None:
    """Nodes to have for what comes until a member that is asked for now serves, in whole blocks and no fewer than
    `sizing.least`; None where too little is known to judge by. `loads`: when (s) and how much, in nodes."""
    if len(loads) < SAMPLES_MIN:
        return None
    at, load = _regular(loads, tick_s)
    level = means(at, load, sizing.over_s)
    highest = np.maximum.accumulate(level)
    found = list(guesses(at, load, level, sizing.start_s + tick_s + sizing.over_s / 2))
    made = np.array([np.concatenate([highest[:first], guess[first:]]) for first, guess in found])
    peaks = np.stack(list(_most_of_each(made, [round(hold_s / tick_s) for hold_s in HOLDS_S])), axis=1)
    asked = np.minimum(peaks[:, :, None, :] * np.array(HEADROOMS)[:, None], highest)
    members = np.maximum(np.ceil(asked / sizing.block - 1e-9) * sizing.block, sizing.least).reshape(-1, len(at))
    rise = float((level + _most_of(-level, ceil(sizing.start_s / tick_s) + 2)).max() / max(1e-9, highest[-1]))
    missed = _missed(load, level, members, sizing, tick_s)
    odds = _odds([first for first, _ in found], missed, len(at) * tick_s, min(1.0, (rise / STEEP) ** 2))
    paid = _paid(members[:, max(first for first, _ in found) :], sizing, tick_s)
    fitting = odds <= BUDGET
    best = int(np.argmin(np.where(fitting, paid, np.inf)) if fitting.any() else np.argmin(odds))
    return max(int(members[best, -1]), _climbing(at, load, level, sizing, tick_s))


def _odds(begin: list[int], missed: np.ndarray, seen_s: float, steep: float) -> np.ndarray:
    """The share that each rule is thought to miss: what it missed in that time, and what was thought before. A guess
    that has a beginning is a season, which knows when what was there comes back."""
    noise = NOISE_MISSED * np.exp((1 - np.array(HEADROOMS)) / NOISE_HEADROOM)
    returns = steep * RETURN_MISSED * np.exp(-np.array(HOLDS_S) / RETURN_HOLD_S)
    before = np.array([
        np.minimum(returns, SEASON_MISSED)[:, None] + SEASON_NOISE * noise if first else returns[:, None] + noise
        for first in begin
    ]).reshape(-1)  # fmt: skip
    return (missed * seen_s + before * PRIOR_S) / (seen_s + PRIOR_S)


def _paid(members: np.ndarray, sizing: Sizing, tick_s: float) -> np.ndarray:
    """Nodes on the mean, with those that drain."""
    let_go = np.maximum(0.0, -np.diff(members, axis=1)).sum(axis=1)
    return members.mean(axis=1) + let_go * sizing.stays_s / (members.shape[1] * tick_s)


def _missed(load: np.ndarray, level: np.ndarray, members: np.ndarray, sizing: Sizing, tick_s: float) -> np.ndarray:
    """The share of the load that each rule would have served too late. Beyond all that had come until then nobody
    foresees anything, so that counts for no rule."""
    ahead = ceil(sizing.start_s / tick_s)
    serving = -_most_of(-members, ahead + 1)[:, :-1]
    most = np.maximum.accumulate(level)
    known = np.concatenate([np.full(ahead + 1, most[0]), most])[1 : len(load)]
    came = np.minimum(load[1:] if sizing.allowed_s else level[1:], known)
    missed = np.zeros(len(members))
    if sizing.allowed_s:
        waits_s = np.zeros(len(members))  # of one node
        for moment, more in enumerate(came):
            waits_s = np.maximum(0.0, waits_s + (more - serving[:, moment]) * tick_s)
            missed += np.where(waits_s > sizing.allowed_s * serving[:, moment], more, 0.0)
    else:
        missed += np.where(came > serving + 1e-9, came, 0.0).sum(axis=1)
    return missed / max(1e-9, float(load[1:].sum()))


def _climbing(at: np.ndarray, load: np.ndarray, level: np.ndarray, sizing: Sizing, tick_s: float) -> int:
    """Members for where a plain climb leads while more comes than ever: no rule was judged by that."""
    count = min(len(at), round(CLIMB_S / tick_s))
    if len(at) > count and level[-1] < level[:-count].max():
        return 0
    x, y = at[-count:] - at[-1], load[-count:]
    slope, there = np.polyfit(x, y, 1)
    error = float(np.std(y - (there + slope * x)) / max(1e-9, np.std(x)) / np.sqrt(count))
    if slope < PLAIN * error:
        return 0
    needs = there + slope * (sizing.start_s + tick_s)
    return int(ceil(needs / sizing.block - 1e-9) * sizing.block)


def _regular(loads: Loads, tick_s: float) -> tuple[np.ndarray, np.ndarray]:
    """One sample a tick, the last one at its own time."""
    at, load = (np.array(column) for column in zip(*loads, strict=True))
    grid = np.arange(at[-1], at[0] - tick_s / 2, -tick_s)[::-1]
    return grid, load[np.clip(np.searchsorted(at, grid + tick_s / 2) - 1, 0, None)]


def _most_of(values: np.ndarray, count: int) -> np.ndarray:
    """The most of the last `count` of each row, or of as many as there are."""
    return next(_most_of_each(values, (count,)))


def _most_of_each(values: np.ndarray, counts: Iterable[int]) -> Iterator[np.ndarray]:
    """The same for each of these, the fewest first: by doubling, each from the one before."""
    found, width = values, 1
    for count in counts:
        while width < min(count, values.shape[-1]):
            step = min(width, count - width)
            wider = found.copy()
            np.maximum(found[..., step:], found[..., :-step], out=wider[..., step:])
            found, width = wider, width + step
        yield found
