"""Damping: a port that keeps going down is held down until it has been quiet for a while.

Each time a port goes down its penalty grows; in between, it halves every half-life. Above the suppress threshold the
port is held down whatever it reports, so that routes stop going back and forth; below the reuse threshold its reports
count again. The scheme and its terms are RFC 2439's (BGP route flap damping, sections 4.2 to 4.5); a port that loses
lanes counts half, like a route that only changes its attributes there. A penalty never exceeds what decays within
`hold_max_s`. The values are for links that flap in minutes, not routes that flap in hours, and are settings: the
incumbent's own rule counts five RoCE link-downs a day (Ascend/mind-cluster), which is too slow for routing decisions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

DOWN_PENALTY, DEGRADED_PENALTY = 1000.0, 500.0
"""RFC 2439, figure 2: a withdrawal counts 1, a change of attributes half."""


@dataclass(frozen=True, slots=True)
class Damping:
    """How penalties grow, decay and take effect. Durations are emulated seconds."""

    half_life_s: float = 120.0
    suppress: float = 2500.0
    """Three losses in quick succession."""
    reuse: float = 750.0
    hold_max_s: float = 900.0

    @property
    def ceiling(self) -> float:
        """The largest penalty: it decays to the reuse threshold within `hold_max_s`."""
        return self.reuse * 2 ** (self.hold_max_s / self.half_life_s)

    def decayed(self, penalty: float, age_s: float) -> float:
        """What is left of a penalty after that time."""
        return float(penalty * 2 ** (-max(0.0, age_s) / self.half_life_s))

    def grown(self, penalty: float, age_s: float, by: float) -> float:
        """The penalty after one more loss."""
        return min(self.decayed(penalty, age_s) + by, self.ceiling)

    def suppressed_for_s(self, penalty: float) -> float:
        """How long until a penalty has decayed to the reuse threshold."""
        return 0.0 if penalty <= self.reuse else self.half_life_s * math.log2(penalty / self.reuse)
