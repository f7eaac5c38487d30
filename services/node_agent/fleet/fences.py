"""Fences: the newest known leader of each client of the emulated hardware; nothing is changed for an older one."""

from __future__ import annotations

from matrixcommon.model.fencing import REQUEST_FENCE, Fence
from services.node_agent.fleet.store import FleetStore

KIND = "leaders"


class FleetFences:
    """The leaders known to the fleet; they survive its process."""

    def __init__(self, store: FleetStore) -> None:
        self._store = store
        self._known: dict[str, int] = store.all(KIND)

    def record_leader(self, fence: Fence) -> None:
        """Record the leader that a request comes from. Raises StaleLeader if a newer one is known."""
        known = self._known.get(fence.name, 0)
        if known > fence.generation:
            raise fence.stale_error(known)
        if known < fence.generation:
            self._store.put(KIND, {fence.name: fence.generation})
            self._known[fence.name] = fence.generation

    def check(self) -> None:
        """Raise StaleLeader if a newer leader than the current request's was recorded since the request arrived."""
        fence = REQUEST_FENCE.get()
        if fence is not None:
            self.record_leader(fence)
