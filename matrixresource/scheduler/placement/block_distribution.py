"""How many members each cabinet gets, in cells and blocks, so as to save what is scarce: whole nodes for spares, or
nodes that are not the gang's own.

Within a supernode every further cell costs at least as much as the one before, so taking the cheapest is optimal.
Between supernodes that is not so: spares can only be where members are, and the first block opens a supernode to them.
There every division is considered (`DIVISIONS_MAX` bounds that) or, with very many supernodes, only those over the most
promising.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import lcm

DIVISIONS_MAX = 20_000  # steps in which divisions are compared
SETS_TRIED_MAX = 8  # sets of promising supernodes tried when there are too many divisions


@dataclass(frozen=True, slots=True)
class CabinetCapacity:
    """A cabinet, in nodes: `members_max` members it may have, of which `present` are there and stay; `whole` ones that
    are to be saved, and how many further members it can take on `partly_used` nodes."""

    members_max: int
    whole: int
    partly_used: int
    present: int = 0


class SupernodeCells:
    """The cells of one supernode in the order in which they are taken: the cheapest, then where members are, then in
    the cabinet with the most room. `whole_left` is the number of whole nodes left, by the number of members."""

    def __init__(self, rooms: dict[int, CabinetCapacity], cabinet_block: int, step: int, most: int) -> None:
        self.cabinet_block = cabinet_block
        self.start = {cabinet: -(-room.present // cabinet_block) * cabinet_block for cabinet, room in rooms.items()}
        self.is_possible = all(self.start[cabinet] <= room.members_max for cabinet, room in rooms.items())
        least = sum(self.start.values())
        cells = sorted(
            (
                used_whole_nodes(room, count + cabinet_block) - used_whole_nodes(room, count),
                not room.present,
                -room.members_max,
                cabinet,
            )
            for cabinet, room in rooms.items()
            for count in range(self.start[cabinet], room.members_max - cabinet_block + 1, cabinet_block)
        )
        self.order = [cabinet for *_, cabinet in cells]
        first = sum(used_whole_nodes(room, self.start[cabinet]) for cabinet, room in rooms.items())
        used = list(accumulate((cost for cost, *_ in cells), initial=first))
        whole = sum(room.whole for room in rooms.values())
        reach = min(most, least + cabinet_block * len(cells))
        self.whole_left = {
            count: whole - used[(count - least) // cabinet_block] if count else 0
            for count in range(-(-least // step) * step, reach + 1, step)
        }
        self.members_min = least
        self.whole_left_max = max((left for count, left in self.whole_left.items() if count), default=0)

    def members(self, count: int) -> dict[int, int]:
        """Members by cabinet, for a count that `whole_left` covers."""
        found = dict(self.start)
        for cabinet in self.order[: (count - self.members_min) // self.cabinet_block]:
            found[cabinet] += self.cabinet_block
        return {cabinet: members for cabinet, members in found.items() if members}


def used_whole_nodes(room: CabinetCapacity, members: int) -> int:
    """The fewest whole nodes that this many members use up."""
    return max(0, members - room.present - room.partly_used)


def distribute(
    rooms: dict[int, CabinetCapacity],
    wanted: int,
    spares: int | None,
    *,
    cabinet_block: int,
    supernode_block: int,
    most: int,
    cabinets: int,
) -> dict[int, int] | None:
    """Members by cabinet, `wanted` in all, that leave `spares` whole nodes in the supernodes they use, or None.

    If `spares` is None, as many as possible are left. `most` is the limit for one supernode, which has `cabinets`
    cabinets.
    """
    step = lcm(cabinet_block, supernode_block)
    by_supernode: dict[int, dict[int, CabinetCapacity]] = {}
    for cabinet, room in rooms.items():
        by_supernode.setdefault(cabinet // cabinets, {})[cabinet] = room
    rows = [SupernodeCells(cabinet_rooms, cabinet_block, step, most) for cabinet_rooms in by_supernode.values()]
    if wanted % step or any(not row.is_possible or not row.whole_left for row in rows):
        return None
    rows = [row for row in rows if max(row.whole_left)]  # the others get neither members nor spares
    if sum(max(row.whole_left) for row in rows) < wanted:
        return None
    if spares is not None and sum(max(row.whole_left.values()) for row in rows) < spares:
        return None
    if (wanted // step + 1) * sum(len(row.whole_left) for row in rows) <= DIVISIONS_MAX:
        return _members(rows, _divide_optimally(rows, wanted, spares))
    for candidates in [rows] if spares is None else _candidate_sets(rows, wanted):
        counts = _divide_greedily(candidates, wanted, spares, step)
        if counts is not None:
            return _members(candidates, counts)
    return None


def _members(rows: list[SupernodeCells], counts: list[int] | None) -> dict[int, int] | None:
    if counts is None:
        return None
    return {cabinet: n for row, c in zip(rows, counts, strict=True) for cabinet, n in row.members(c).items()}


def _candidate_sets(rows: list[SupernodeCells], wanted: int) -> Iterator[list[SupernodeCells]]:
    """Sets of supernodes that hold everybody: those with members already, and the most promising of the others."""
    bound = [row for row in rows if row.members_min]
    order = sorted(
        (row for row in rows if not row.members_min), key=lambda row: (-row.whole_left_max, -max(row.whole_left))
    )
    room, tried = sum(max(row.whole_left) for row in bound), 0
    if room >= wanted:
        yield bound
    for count, row in enumerate(order, 1):
        room += max(row.whole_left)
        if room >= wanted and tried < SETS_TRIED_MAX:
            tried += 1
            yield bound + order[:count]


def _divide_greedily(rows: list[SupernodeCells], wanted: int, spares: int | None, step: int) -> list[int] | None:
    """The same for many supernodes, by the cheapest steps; with spares, every one of the supernodes gets members."""
    counts = [next((count for count in row.whole_left if count or spares is None), 0) for row in rows]
    steps = sorted(
        (row.whole_left[count] - row.whole_left[count + step], number)
        for number, row in enumerate(rows)
        for count in row.whole_left
        if count >= counts[number] and count + step in row.whole_left
    )
    missing = wanted - sum(counts)
    if missing < 0 or missing // step > len(steps):
        return None
    for _, number in steps[: missing // step]:
        counts[number] += step
    left = sum(row.whole_left[count] for row, count in zip(rows, counts, strict=True))
    return counts if spares is None or left >= spares else None


def _divide_optimally(rows: list[SupernodeCells], wanted: int, spares: int | None) -> list[int] | None:
    """Members for each supernode: enough left for the spares, then as few supernodes as possible."""
    best: list[dict[int, tuple[int, int, int]]] = [
        {0: (0, 0, 0)}
    ]  # by members: (left, minus supernodes, members of the last)
    for row in rows:
        reached: dict[int, tuple[int, int, int]] = {}
        for before, (left, fewer, _) in best[-1].items():
            for count, here in row.whole_left.items():
                total = before + count
                if total > wanted:
                    break
                after = (left + here if spares is None else min(left + here, spares), fewer - (count > 0))
                if total not in reached or reached[total][:2] < after:
                    reached[total] = (*after, count)
        best.append(reached)
    if wanted not in best[-1] or (spares is not None and best[-1][wanted][0] < spares):
        return None
    counts: list[int] = []
    for reached in reversed(best[1:]):
        counts.append(reached[wanted][2])
        wanted -= counts[-1]
    return counts[::-1]
