"""Check against MatrixResource that a slice's members are nodes of its allocation.

Answers are cached for a few seconds, but a slice is never refused from the cache: MatrixResource is asked again first.
While it does not answer, slices are admitted unchecked: their floors are MatrixLink's own promises, and MatrixCompute
requests slices only of nodes that it has reserved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import InvalidField, Unavailable
from matrixresource.client import ResourceClient

CACHED_S = 5.0
CACHED_MAX = 10_000


class ReservedNodes:
    """Implements the port `Allocations`. `counters` has how often MatrixResource was asked, and did not answer."""

    def __init__(self, resource: ResourceClient, clock: Clock) -> None:
        self._resource = resource
        self._clock = clock
        self._cache: dict[str, tuple[float, frozenset[str]]] = {}
        self.counters: Counter[str] = Counter()

    async def present(self) -> frozenset[str]:
        """The keys of all allocations at MatrixResource now. Raises Unavailable if it does not answer."""
        return frozenset(each.key for each in await self._resource.allocations())

    async def check(self, allocation: str, members: Sequence[str]) -> None:
        """Raise InvalidField if the allocation does not exist or a member is not a node of it."""
        at, nodes = self._cache.get(allocation, (0.0, frozenset()))
        if self._clock.now() - at < CACHED_S and nodes.issuperset(members):
            return
        try:
            self.counters["asked"] += 1
            found = await self._resource.find_allocation(allocation)
        except Unavailable:
            self.counters["away"] += 1
            return
        if found is None:
            raise InvalidField(f"allocation {allocation[:80]!r} does not exist", field="allocation")
        nodes = frozenset(member.node for member in found.members)
        if len(self._cache) >= CACHED_MAX:
            self._cache.clear()
        self._cache[allocation] = (self._clock.now(), nodes)
        for place, member in enumerate(members):
            if member not in nodes:
                raise InvalidField(f"{member} is not a node of allocation {allocation}", field=f"members[{place}]")
