"""MemberNews: what the watch of allocations says is written down at once where an instance has fewer ready members.

Whoever reads an instance, its resource in Kubernetes or the console acts on its condition Ready. A look at everything
says what is to be done about a loss; that there is one is known before, and nobody is to be told otherwise meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from matrixcommon.api.client import WatchEvent
from matrixcommon.model.clock import Clock
from matrixcommon.model.resource_key import key_of
from matrixcompute.model.observation import Observed, ObservedSlice, ready_members
from matrixcompute.model.states import HOLDING
from matrixcompute.reconcilers.findings import concerns_one
from matrixcompute.reconcilers.loss_news import LossNews
from matrixcompute.store.store import ComputeStore, InstanceRow
from matrixresource.contract.allocations import AllocationView

log = logging.getLogger(__name__)


class MemberNews:
    """`take` with every event, `look` when looking at everything begins, `looked` with what that has written down."""

    def __init__(self, store: ComputeStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._losses = LossNews()
        self._looked_at: dict[str, int] = {}
        """The newest version of each allocation that a look has seen: events up to there say nothing new."""

    def looked(self, allocations: Mapping[str, AllocationView]) -> None:
        self._looked_at = {key: int(each.etag.strip('"') or 0) for key, each in allocations.items()}

    def look(self) -> bool:
        """Whether any member has failed since the last look."""
        return self._losses.look()

    def take(self, event: WatchEvent | None) -> bool:
        """Whether it tells that a member has just failed, or that an instance was put out of all its nodes, so that
        looking cannot wait. After a break of the watch (None) the next look tells what there is."""
        revoked = event is not None and self._revoked(event)
        return self._losses.take(event) or revoked

    def _revoked(self, event: WatchEvent) -> bool:
        key = key_of(event.view["project"], event.view["name"])
        if event.rv <= self._looked_at.get(key, 0):
            return False
        ready = 0 if event.type == "DELETED" else _ready_in(event.view)
        with self._store.reading() as session:
            instance = session.get(InstanceRow, key)
            if instance is None or instance.ready_nodes <= ready:
                return False
        try:
            return self._write(key, None if event.type == "DELETED" else AllocationView.from_stored(event.view))
        except Exception as wrong:
            if not concerns_one(wrong):
                raise
            log.exception("news of an instance are passed over", extra={"instance": key})  # the next look says so of it
            return False

    def _write(self, key: str, allocation: AllocationView | None) -> bool:
        """Whether it was put out of its nodes: they go, and it has not asked for that."""
        with self._store.transaction() as session:
            instance = session.get(InstanceRow, key)
            if instance is None:
                return False
            slices = tuple(ObservedSlice.from_stored(each) for each in instance.slices or ())
            instance.observe(Observed(allocation, slices), None, self._clock.now())
            return instance.state in HOLDING and (allocation is None or allocation.state == "Releasing")


def _ready_in(view: dict[str, Any]) -> int:
    """As many members as that view of an allocation says are ready: most of what is heard says no more than that."""
    roles = ((member["role"], member["ready"]) for member in view.get("members", ()))
    return ready_members(view["state"], view["bound"], view.get("power", "On"), roles)
