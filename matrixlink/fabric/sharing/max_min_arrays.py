"""The fair rates of `sharing.share` for a hundred thousand flows, in rounds over whole arrays.

Each link would fill at some level if all its flows rose together. A link whose level is the lowest for every flow on it
is a bottleneck whatever happens elsewhere, since levels of other links only rise. All such links close in one round,
however far apart, and their flows are fixed. Regular traffic (all-to-all with one path rule) takes a handful of rounds,
hashed paths a hundred. A ceiling is treated as a link of the flow's own.

Results agree with the exact ones to 1e-9 relative; a tie missed through rounding only costs one more round.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from matrixlink.fabric.sharing.max_min import ROUNDING, Overcommitted
from matrixlink.fabric.sharing.traffic import Floats, Traffic, scaled_weights

LEVEL_TOLERANCE = 1e-12
"""Levels this close, relatively, are equal."""


def fair_rates(traffic: Traffic, keys: Sequence[Hashable] | None = None) -> Floats:
    """GB/s of each flow. Raises Overcommitted with the links' `keys`, or else their numbers."""
    if not traffic.floor.any():
        return _FillingRounds(traffic, traffic.capacity, traffic.ceiling).run()
    booked = check_floors(traffic, keys)
    left = np.maximum(traffic.capacity - booked, 0.0)
    return traffic.floor + _FillingRounds(traffic, left, traffic.ceiling - traffic.floor).run()


def check_floors(traffic: Traffic, keys: Sequence[Hashable] | None = None) -> Floats:
    """GB/s of floors on each link. Raises Overcommitted if they exceed a capacity."""
    booked = sum_by_link(traffic, traffic.floor)
    over = np.flatnonzero(booked > traffic.capacity + ROUNDING * np.maximum(traffic.capacity, booked))
    if len(over):
        named: dict[Hashable, int] = {keys[int(n)] if keys else int(n): int(n) for n in over}
        short = sorted(named, key=str)
        raise Overcommitted(
            short,
            [
                {"link": str(key), "capacityGbps": float(traffic.capacity[at]), "floorsGbps": float(booked[at])}
                for key, at in ((key, named[key]) for key in short)
            ],
        )
    return booked


def sum_by_link(traffic: Traffic, values: Floats) -> Floats:
    """The sum over each link of a value per flow: its load, if the values are rates."""
    sums = np.bincount(traffic.links, np.repeat(values, traffic.lengths), len(traffic.capacity))
    return sums.astype(float, copy=False)


class _FillingRounds:
    """One run. Its arrays shrink to the flows still rising; `link` has an entry per flow and link of its path."""

    def __init__(self, traffic: Traffic, capacity: Floats, ceiling: Floats) -> None:
        self.rate = np.minimum(ceiling, np.inf)
        over_links = traffic.lengths > 0
        self.id = np.flatnonzero(over_links)
        self.length = traffic.lengths[over_links]
        self.link = traffic.links
        self.left = capacity.copy()
        weight = None if (traffic.weight == 1).all() else scaled_weights(traffic.weight)
        self.weight = None if weight is None else weight[over_links]
        limit = ceiling if weight is None else ceiling / weight
        self.limit = None if np.isinf(ceiling).all() else limit[over_links]

    def run(self) -> Floats:
        while len(self.id):
            first = np.cumsum(self.length) - self.length
            level, busy = self._levels()
            at = level[self.link]
            lowest: Floats = np.minimum.reduceat(at, first)
            if self.limit is not None:
                np.minimum(lowest, self.limit, out=lowest)
            below = np.repeat(lowest, self.length)
            open_still = np.bincount(self.link[below < at * (1 - LEVEL_TOLERANCE)], minlength=len(level)) > 0
            closed = busy & ~open_still
            fixed: NDArray[np.bool_] = np.logical_or.reduceat(closed[self.link], first)
            if self.limit is not None:
                fixed |= self.limit <= lowest
            self._fix(fixed, lowest)
        return self.rate

    def _levels(self) -> tuple[Floats, NDArray[np.bool_]]:
        """The level at which each link fills, infinite if nothing rises on it; and on which links something rises."""
        count = np.bincount(self.link, minlength=len(self.left))
        busy = count > 0
        each = None if self.weight is None else np.repeat(self.weight, self.length)
        pull = count if each is None else np.bincount(self.link, each, len(self.left))
        level = np.full(len(self.left), np.inf)
        np.divide(np.maximum(self.left, 0.0), pull, out=level, where=busy)
        return level, busy

    def _fix(self, fixed: NDArray[np.bool_], lowest: Floats) -> None:
        level = lowest[fixed]
        rate = level if self.weight is None else level * self.weight[fixed]
        if self.limit is not None:
            rate = np.minimum(rate, self.rate[self.id[fixed]])  # the ceiling itself, not ceiling / weight * weight
        self.rate[self.id[fixed]] = rate
        entries = np.repeat(fixed, self.length)
        taken = np.repeat(rate, self.length[fixed])
        self.left -= np.bincount(self.link[entries], taken, len(self.left))
        rising = ~fixed
        self.link, self.id, self.length = self.link[~entries], self.id[rising], self.length[rising]
        self.weight = None if self.weight is None else self.weight[rising]
        self.limit = None if self.limit is None else self.limit[rising]
