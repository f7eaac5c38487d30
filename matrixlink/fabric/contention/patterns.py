"""Who sends how much to whom in each traffic pattern."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Literal

Pattern = Literal["all-to-all", "permutation", "ring", "incast", "pull"]


def demands(
    pattern: Pattern, members: Sequence[str], gbps: float, targets: Collection[str] = ()
) -> Iterator[tuple[str, str, float]]:
    """(source, target, GB/s) when each source offers `gbps`; nobody sends to itself.

    all-to-all: each to all others evenly; permutation: each to one, halfway round; ring: each to the next; incast: all
    to the single node of `targets`, by default the first member; pull: each member to all of `targets` evenly.
    """
    if pattern == "pull":
        yield from _pull_demands(members, sorted(targets), gbps)
        return
    count = len(members)
    if count < 2:
        return
    if pattern == "incast":
        sink = next((target for target in targets if target in members), members[0])
        yield from ((member, sink, gbps) for member in members if member != sink)
        return
    steps = {"all-to-all": range(1, count), "permutation": [count // 2], "ring": [1]}[pattern]
    for at, member in enumerate(members):
        for step in steps:
            yield member, members[(at + step) % count], gbps / len(steps)


def _pull_demands(sources: Sequence[str], targets: Sequence[str], gbps: float) -> Iterator[tuple[str, str, float]]:
    for source in sources:
        others = [target for target in targets if target != source]
        yield from ((source, target, gbps / len(others)) for target in others)
