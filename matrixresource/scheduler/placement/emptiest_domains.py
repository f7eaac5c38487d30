"""The domains with the most whole free nodes, from the index."""

from __future__ import annotations

from matrixresource.scheduler.model.bitmasks import low_bits
from matrixresource.scheduler.model.state import LedgerState


def emptiest_domains(ledger: LedgerState, size: int, most: int) -> list[int]:
    """The first node of each of the cabinets or supernodes (`size` nodes each) with the most whole free nodes, up to
    `most` of them, the best first."""
    index, shape = ledger.index, ledger.shape
    found: list[int] = []
    if size != shape.nodes or shape.cabinets == 1:
        sizes = index.present_counts
        while sizes and len(found) < most:
            free = sizes.bit_length() - 1
            sizes ^= 1 << free
            found += [supernode * size for supernode in low_bits(index.supernodes_by_whole[free], most - len(found))]
        return found
    for free in range(shape.nodes, -1, -1):
        for supernode in low_bits(index.supernodes_by_cabinet[free], most):
            if len(found) >= most:
                return found
            first = supernode * shape.cabinets
            here = low_bits(index.cabinets_by_whole[supernode][free], most - len(found))
            found += [(first + cabinet) * size for cabinet in here]
    return found
