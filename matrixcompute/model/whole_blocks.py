"""Which members of an instance form whole blocks, if its placement requires those. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from matrixresource.contract.allocations import MemberView
from matrixresource.contract.requested_capacity import Block


def whole_blocks(members: Sequence[MemberView], blocks: Sequence[Block]) -> set[str]:
    """The nodes of as many of these members as form whole blocks, lowest ranks first. Pure."""
    kept, group_size = sorted(members, key=lambda each: (each.rank or 0, each.node)), 1
    for level in ("cabinet", "supernode"):
        size = next((each.nodes for each in blocks if each.level == level), 1)
        if size > 1:
            kept = [
                each
                for domain in _group_by_level(level, kept).values()
                for each in _take_whole(domain, size, group_size)
            ]
            group_size = size
    return {each.node for each in kept}


def _group_by_level(level: str, members: Sequence[MemberView]) -> dict[str, list[MemberView]]:
    found = defaultdict(list)
    for each in members:
        found[each.cabinet if level == "cabinet" else each.cabinet.partition("-")[0]].append(each)
    return found


def _take_whole(members: Sequence[MemberView], size: int, group_size: int) -> list[MemberView]:
    """The largest multiple of `size` of these members, lowest ranks first, taken from each cabinet in groups of
    `group_size`."""
    groups = [
        cabinet[at : at + group_size]
        for cabinet in _group_by_level("cabinet", members).values()
        for at in range(0, len(cabinet), group_size)
    ]
    return [each for group in groups for each in group][: len(members) // size * size]
