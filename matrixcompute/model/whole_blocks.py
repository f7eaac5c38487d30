"""Which members of an instance form whole blocks, if its placement requires those. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from matrixresource.contract.allocations import Block, MemberView


def whole_blocks(members: Sequence[MemberView], blocks: Sequence[Block]) -> set[str]:
    """The nodes of as many of these members as form whole blocks, lowest ranks first. Pure."""
    kept, cell = sorted(members, key=lambda each: (each.rank or 0, each.node)), 1
    for level in ("cabinet", "supernode"):
        size = next((each.nodes for each in blocks if each.level == level), 1)
        if size > 1:
            kept = [each for domain in _by(level, kept).values() for each in _cut(domain, size, cell)]
            cell = size
    return {each.node for each in kept}


def _by(level: str, members: Sequence[MemberView]) -> dict[str, list[MemberView]]:
    found = defaultdict(list)
    for each in members:
        found[each.cabinet if level == "cabinet" else each.cabinet.partition("-")[0]].append(each)
    return found


def _cut(members: Sequence[MemberView], size: int, cell: int) -> list[MemberView]:
    """The largest multiple of `size` of these members, lowest ranks first, taken from each cabinet in groups of
    `cell`."""
    cells = [
        cabinet[at : at + cell] for cabinet in _by("cabinet", members).values() for at in range(0, len(cabinet), cell)
    ]
    return [each for some in cells for each in some][: len(members) // size * size]
