"""How a pair of endpoints spreads its traffic over sub-planes and L2 chips: in proportion to what both ends have left.

Both the code that writes a slice's routes and the code that computes what they carry take the weights from here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def stripe_weights(left: Floats, ends: Floats) -> tuple[Floats, Floats]:
    """The weight of each sub-plane (... x sub-planes) and of each L2 chip (... x sub-planes x chips) for a pair.

    `left`: the lesser share of both nodes' cables to each chip (... x sub-planes x chips); `ends`: that of both
    endpoints' own links (... x sub-planes). Weights add up to 1, or to 0 if nothing is left.
    """
    planes = np.minimum(left.mean(axis=-1), ends)
    total = planes.sum(axis=-1)
    weight = planes / np.where(total > 0, total, 1)[..., None]
    sums = left.sum(axis=-1)
    each = left * (weight / np.where(sums > 0, sums, 1))[..., None]
    return weight, each
