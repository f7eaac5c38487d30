"""Whether a slice's members are nodes of its allocation, asked of MatrixResource.

What was found is believed for a few seconds, and a slice is never refused on a belief: before that MatrixResource is
asked again. While it does not answer, slices are admitted as they are asked for: their floors are MatrixLink's own to
promise, and MatrixCompute asks for slices only of what it has reserved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import InvalidField, Unavailable
from matrixresource.client import ResourceClient

BELIEVED_S = 5.0
BELIEFS_MAX = 10_000


class ReservedNodes:
    """Fills the port `Allocations`. `counters` says how often MatrixResource was asked, and how often it was away."""

    def __init__(self, resource: ResourceClient, clock: Clock) -> None:
        self._resource = resource
        self._clock = clock
        self._believed: dict[str, tuple[float, frozenset[str]]] = {}
        self.counters: Counter[str] = Counter()

    async def present(self) -> frozenset[str]:
        """The keys of all allocations there are, as MatrixResource says now. Raises Unavailable while it is away."""
        return frozenset(each.key for each in await self._resource.allocations())

    async def check(self, allocation: str, members: Sequence[str]) -> None:
        """Raises InvalidField for an allocation that is not there, or a member outside of it."""
        at, nodes = self._believed.get(allocation, (0.0, frozenset()))
        if self._clock.now() - at < BELIEVED_S and nodes.issuperset(members):
            return
        try:
            self.counters["asked"] += 1
            found = await self._resource.find_allocation(allocation)
        except Unavailable:
            self.counters["away"] += 1
            return
        if found is None:
            raise InvalidField(f"there is no allocation named {allocation[:80]!r}", field="allocation")
        nodes = frozenset(member.node for member in found.members)
        if len(self._believed) >= BELIEFS_MAX:
            self._believed.clear()
        self._believed[allocation] = (self._clock.now(), nodes)
        for place, member in enumerate(members):
            if member not in nodes:
                raise InvalidField(f"{member} is no node of allocation {allocation}", field=f"members[{place}]")
