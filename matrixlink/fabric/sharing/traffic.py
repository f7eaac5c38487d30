"""Traffic: many flows over many links as arrays, where one object per flow would be too much.

It is equivalent to a list of `Flow` and a mapping of links. Paths are a sparse incidence matrix (CSR): the links of
flow f are `links[starts[f]:starts[f + 1]]`, indices into `capacity`. A link occurs at most once in a path. Units are
those of `flow.py`: GB/s, bytes, nanoseconds. Everything is float; exact results come from `sharing.share`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from matrixcommon.model.errors import InvalidField

Floats = NDArray[np.float64]
LARGEST_WEIGHT_EXPONENT = 500
"""A power of two, the unit of `scaled`: in the middle of the exponent range, so that the sum of many does not overflow
either."""


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """`capacity` has one entry per link, `starts` one per flow plus one, the other arrays one per flow."""

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
    """Traffic from a matrix of paths, a row per flow, padded with -1. A single number applies to all flows."""
    rows = np.atleast_2d(np.asarray(paths, np.int32))
    current = rows >= 0
    starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(current.sum(1), out=starts[1:])
    return validated_traffic(np.asarray(capacity, float), starts, rows[current], weight, floor, ceiling, size, start)


def validated_traffic(
    capacity: Floats, starts: NDArray[np.int64], links: NDArray[np.int32], *each: ArrayLike
) -> Traffic:
    """Validated traffic; InvalidField names the first invalid flow."""
    flows = len(starts) - 1
    weight, floor, ceiling, size, start = (
        np.ascontiguousarray(np.broadcast_to(np.asarray(values, float), flows)) for values in each
    )
    outside = (links < 0) | (links >= len(capacity))
    if outside.any():
        where = int(np.searchsorted(starts, int(np.argmax(outside)), "right")) - 1
        raise InvalidField("there is no such link", field=f"flows[{where}].links")
    _raise_if_any(~(weight > 0) | np.isinf(weight), "weight", "a weight must be above 0 and finite")
    _raise_if_any(~((floor >= 0) & (floor <= ceiling)), "floor", "a floor must be at least 0 and at most the ceiling")
    _raise_if_any((np.diff(starts) == 0) & np.isinf(ceiling), "links", "a flow without links needs a ceiling")
    _raise_if_any(~((size >= 0) & (start >= 0)), "size", "size and start must be at least 0")
    return Traffic(np.ascontiguousarray(capacity), starts, links, weight, floor, ceiling, size, start)


def scaled_weights(weight: Floats) -> Floats:
    """The same weights in another unit, a power of two, so that a capacity divided by the smallest weight stays finite.
    Rates only depend on ratios of weights, and come out bit-identical."""
    _, exponent = np.frexp(weight.max(initial=0.0))
    return np.ldexp(weight, LARGEST_WEIGHT_EXPONENT - int(exponent))


def _raise_if_any(wrong: NDArray[np.bool_], name: str, text: str) -> None:
    if wrong.any():
        raise InvalidField(text, field=f"flows[{int(np.argmax(wrong))}].{name}")
