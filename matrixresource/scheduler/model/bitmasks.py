"""Bit masks of dies and nodes."""

from __future__ import annotations

from matrixresource.scheduler.model.free_capacity_index import EVEN, WORD, WORD_BITS


def dies_for(dies: int, size: int) -> int:
    """The dies of the lowest `size` free NPUs."""
    pairs = dies & dies >> 1 & EVEN
    if pairs.bit_count() == size:
        return pairs * 3
    return lowest(pairs, size) * 3


def lowest(mask: int, wanted: int) -> int:
    """The lowest `wanted` bits of a mask."""
    over = mask.bit_count() - wanted
    if not over:
        return mask
    if wanted <= over:
        rest = mask
        for _ in range(wanted):
            rest &= rest - 1
        return mask ^ rest
    for _ in range(over):
        mask ^= 1 << mask.bit_length() - 1
    return mask


def part_dies(dies: int, npus: float) -> int:
    """The dies of a part: whole NPUs, or one die, preferably of an NPU that is already broken up."""
    if npus >= 1:
        return dies_for(dies, int(npus))
    pairs = dies & dies >> 1 & EVEN
    single = dies & ~(pairs * 3)
    return single & -single if single else pairs & -pairs


def low_bits(mask: int, limit: int) -> list[int]:
    """The positions of the lowest bits, at most `limit`."""
    found: list[int] = []
    base = 0
    while mask and len(found) < limit:
        some = mask & WORD  # a wide mask in pieces: arithmetic takes time proportional to the width of the numbers
        while some and len(found) < limit:
            low = some & -some
            found.append(base + low.bit_length() - 1)
            some ^= low
        base += WORD_BITS
        mask >>= WORD_BITS
    return found
