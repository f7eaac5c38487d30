"""Rates of many flows at one moment, by the faster method available: the kernel in C, or rounds over whole arrays."""

from __future__ import annotations

import numpy as np

from matrixlink.fabric.sharing.max_min_arrays import check_floors, fair_rates
from matrixlink.fabric.sharing.native_kernel import load_kernel
from matrixlink.fabric.sharing.traffic import Floats, Traffic, scaled_weights

ARRAY_FLOWS_MIN = 200_000
"""From this size on, rounds over arrays are tried first: traffic this large is regular, and arrays need less memory."""

WEIGHT_RATIO_MAX = 1e6
"""From this ratio on, a small weight is lost in the kernel's running sums per link; arrays recompute the sums."""


def compute_rates(traffic: Traffic) -> Floats:
    """`fair_rates` by the guarantee-plus-share rule, using the faster method available."""
    library = load_kernel()
    if library is None or len(traffic) >= ARRAY_FLOWS_MIN or _exceeds_weight_ratio(traffic.weight):
        return fair_rates(traffic)
    check_floors(traffic)
    fabric = new_fabric(library, traffic)
    try:
        weight = scaled_weights(traffic.weight)
        library.fabric_fill_all(fabric, traffic.starts, traffic.links, weight, traffic.floor, traffic.ceiling)
        shares: Floats = np.ctypeslib.as_array(library.fabric_shares(fabric), (len(traffic) + 1,))[:-1] + traffic.floor
        return shares
    finally:
        library.fabric_free(fabric)


def _exceeds_weight_ratio(weight: Floats) -> bool:
    return bool(weight.max(initial=0.0) > WEIGHT_RATIO_MAX * weight.min(initial=np.inf))


def new_fabric(library: object, traffic: Traffic) -> int:
    """The kernel's handle for these flows and links; the caller must free it."""
    width = int(traffic.lengths.max(initial=1))
    fabric = library.fabric_new(len(traffic), len(traffic.capacity), width, traffic.capacity)  # type: ignore[attr-defined]
    if not fabric:
        raise MemoryError("no memory for the flows")
    return int(fabric)
