"""The cheapest sizes of a pool for a scheduler that knows the future load: the baseline for autoscalers.

A dynamic programme over sizes in time slots of equal length: a member is paid for while it exists, adding one costs the
time to start and drain it, and a slot with fewer members than it needs costs its price.
"""

from __future__ import annotations

import numpy as np


def cheapest_sizes(
    least: np.ndarray, slot_s: float, change_s: float, step: int = 1, price_s: np.ndarray | None = None
) -> np.ndarray:
    """The members in each slot of `slot_s` seconds, a multiple of `step`. `least`: what each slot needs, in steps. In
    member-seconds: `change_s`, the cost of adding a member that later leaves, and `price_s`, the cost of each slot with
    fewer than it needs (None: never fewer)."""
    most = int(least.max())
    sizes = np.arange(1, most + 1)
    growth_cost = step * change_s
    prices = np.full(len(least), np.inf) if price_s is None else price_s
    too_few = sizes < least[:, None]
    paid = sizes * step * slot_s + np.where(too_few, prices[:, None], 0.0)
    cost = paid[0]
    predecessors = np.zeros((len(least), most), dtype=int)
    for slot in range(1, len(least)):
        shrunk, shrunk_from = _running_min(cost[::-1])
        shrunk, shrunk_from = shrunk[::-1], most - 1 - shrunk_from[::-1]
        grown, grown_from = _running_min(cost - sizes * growth_cost)
        grown = grown + sizes * growth_cost
        predecessors[slot] = np.where(shrunk <= grown, shrunk_from, grown_from)
        cost = np.minimum(shrunk, grown) + paid[slot]
    plan = np.zeros(len(least), dtype=int)
    plan[-1] = int(np.argmin(cost))
    for slot in range(len(least) - 1, 0, -1):
        plan[slot - 1] = predecessors[slot][plan[slot]]
    return sizes[plan] * step


def _running_min(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The running minimum, and its index."""
    least = np.minimum.accumulate(values)
    new = np.concatenate([[True], values[1:] < least[:-1]])
    return least, np.maximum.accumulate(np.where(new, np.arange(len(values)), 0))
