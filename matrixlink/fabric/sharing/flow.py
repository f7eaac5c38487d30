"""A flow: traffic that takes a fixed path of links and requests a share of each.

A path names links by any hashable key; each direction of a cable is a separate link. Rates are GB/s, sizes bytes, times
nanoseconds (1 GB/s moves one byte per nanosecond), so nothing needs scaling. Numbers may be floats or Fractions; with
Fractions every result of this package is exact.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction

Number = float | Fraction
"""A rate, size or time: float in the services, Fraction where an exact result is wanted."""


@dataclass(frozen=True, slots=True)
class Flow:
    """From the first link of `links` to the last. It gets at least `floor` and at most `ceiling`; what is left of a
    link is shared by `weight`. `size` bytes from `start` on only matter to the timeline."""

    links: tuple[Hashable, ...]
    weight: Number = 1
    floor: Number = 0
    ceiling: Number = math.inf
    size: Number = 0
    start: Number = 0
