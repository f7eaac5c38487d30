"""Traffic: many flows over many links as arrays, for what is too large for one object per flow.

It says the same as a list of `Flow` and a mapping of links. Paths are kept as a sparse incidence (CSR): the links of
flow f are `links[starts[f]:starts[f + 1]]`, numbers into `capacity`. A link occurs at most once in a path. Units are
those of `flow.py`: GB/s, bytes, nanoseconds. Everything is float; the exact answers stay with `sharing.share`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from matrixcommon.model.errors import InvalidField

Floats = NDArray[np.float64]
LARGEST_WEIGHT_EXPONENT = 500
"""Of two, in the unit of `scaled`: halfway up, so that the sum of many does not overflow either."""


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """`capacity` has one entry per link, `starts` one per flow and one more, the other arrays one per flow."""

    capacity: Floats
    starts: NDArray[np.int64]
    links: NDArray[np.int32]
    weight: Floats
    floor: Floats
    ceiling: Floats
    size: Floats
    start: Floats

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)


def traffic(
    capacity: ArrayLike,
    paths: ArrayLike,
    *,
    weight: ArrayLike = 1.0,
    floor: ArrayLike = 0.0,
    ceiling: ArrayLike = math.inf,
    size: ArrayLike = 0.0,
    start: ArrayLike = 0.0,
) -> Traffic:
    """Traffic from a matrix of paths, a row per flow, filled up with -1. One number stands for all flows alike."""
    rows = np.atleast_2d(np.asarray(paths, np.int32))
    current = rows >= 0
    starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(current.sum(1), out=starts[1:])
    return checked(np.asarray(capacity, float), starts, rows[current], weight, floor, ceiling, size, start)


def checked(capacity: Floats, starts: NDArray[np.int64], links: NDArray[np.int32], *each: ArrayLike) -> Traffic:
    """Traffic whose every number makes sense; InvalidField names the first flow that does not."""
    flows = len(starts) - 1
    weight, floor, ceiling, size, start = (
        np.ascontiguousarray(np.broadcast_to(np.asarray(values, float), flows)) for values in each
    )
    outside = (links < 0) | (links >= len(capacity))
    if outside.any():
        where = int(np.searchsorted(starts, int(np.argmax(outside)), "right")) - 1
        raise InvalidField("there is no such link", field=f"flows[{where}].links")
    _refuse(~(weight > 0) | np.isinf(weight), "weight", "a weight is above 0 and finite")
    _refuse(~((floor >= 0) & (floor <= ceiling)), "floor", "a floor is at least 0 and at most the ceiling")
    _refuse((np.diff(starts) == 0) & np.isinf(ceiling), "links", "a flow over no link needs a ceiling")
    _refuse(~((size >= 0) & (start >= 0)), "size", "size and start are at least 0")
    return Traffic(np.ascontiguousarray(capacity), starts, links, weight, floor, ceiling, size, start)


def scaled(weight: Floats) -> Floats:
    """The same weights in another unit, a power of two, so that a capacity divided by the smallest weight there is
    stays a number. What flows get depends on the ratios of weights alone, and comes out the same to the bit."""
    _, exponent = np.frexp(weight.max(initial=0.0))
    return np.ldexp(weight, LARGEST_WEIGHT_EXPONENT - int(exponent))


def _refuse(wrong: NDArray[np.bool_], name: str, text: str) -> None:
    if wrong.any():
        raise InvalidField(text, field=f"flows[{int(np.argmax(wrong))}].{name}")
