"""Patterns as transfers between ranks, given as pairs of rank numbers."""

from __future__ import annotations

import numpy as np

from matrixlink.contract.communicators import Pattern
from matrixlink.forwarding.clos_shape import Ints
from matrixlink.forwarding.paths import Floats


def transfers(
    pattern: Pattern, ranks: int, *, shift: int | None = None, holders: int | None = None, seed: int = 0
) -> tuple[Ints, Ints]:
    """(sources, targets) among `ranks` ranks; no rank sends to itself. By default the first half are holders."""
    each = np.arange(ranks)
    if pattern == Pattern.ALL_TO_ALL:
        source, target = np.repeat(each, ranks), np.tile(each, ranks)
    elif pattern == Pattern.RING:
        source, target = each, np.roll(each, -1)
    elif pattern == Pattern.PERMUTATION:
        turned = np.roll(each, -shift) if shift else np.random.default_rng(seed).permutation(ranks)
        source, target = each, turned
    elif pattern == Pattern.INCAST:
        source, target = each[1:], np.zeros(max(ranks - 1, 0), np.int64)
    else:
        current = min(holders or ranks // 2, ranks - 1)
        target = each[current:]
        source = (target - current) % max(current, 1)
    other = source != target
    return source[other], target[other]


def ceilings(sources: Ints, offered_gbps: float | None) -> Floats:
    """The most that each transfer is offered: a rank's offer, divided evenly over its transfers."""
    if offered_gbps is None:
        return np.full(len(sources), np.inf)
    return offered_gbps / np.bincount(sources)[sources].astype(float)
