"""ReadinessUpdater: record at once, from the watch of allocations, that an instance has fewer ready members.

Clients act on the condition Ready of an instance, its Kubernetes resource or the console. What to do about a loss is
decided in the next pass over all instances, but the loss itself is known earlier, and Ready must show it at once.
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
from matrixcompute.reconcilers.findings import is_instance_error
from matrixcompute.reconcilers.member_failures import MemberFailures
from matrixcompute.store.store import ComputeStore, InstanceRow
from matrixresource.contract.allocations import AllocationView

log = logging.getLogger(__name__)


class ReadinessUpdater:
    """Call `observe` for every event, `pop_new_failure` when a pass over all instances begins, and `mark_observed` with
    the allocations that it recorded."""

    def __init__(self, store: ComputeStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._failures = MemberFailures()
        self._observed_versions: dict[str, int] = {}
        """The version of each allocation in the last pass: events up to that version are not new."""

    def mark_observed(self, allocations: Mapping[str, AllocationView]) -> None:
        self._observed_versions = {key: int(each.etag.strip('"') or 0) for key, each in allocations.items()}

    def pop_new_failure(self) -> bool:
        """Returns whether any member has failed since the last call."""
        return self._failures.pop_new_failure()

    def observe(self, event: WatchEvent | None) -> bool:
        """Take an event. Returns whether a member has just failed, or an instance has lost all its nodes, so that the
        next pass must not wait. After an interruption of the watch (None) the next pass finds out."""
        revoked = event is not None and self._revoked(event)
        return self._failures.observe(event) or revoked

    def _revoked(self, event: WatchEvent) -> bool:
        key = key_of(event.view["project"], event.view["name"])
        if event.rv <= self._observed_versions.get(key, 0):
            return False
        ready = 0 if event.type == "DELETED" else _count_ready(event.view)
        with self._store.reading() as session:
            instance = session.get(InstanceRow, key)
            if instance is None or instance.ready_nodes <= ready:
                return False
        try:
            return self._update_instance(
                key, None if event.type == "DELETED" else AllocationView.from_stored(event.view)
            )
        except Exception as error:
            if not is_instance_error(error):
                raise
            log.exception("news of an instance are passed over", extra={"instance": key})  # the next pass reports it
            return False

    def _update_instance(self, key: str, allocation: AllocationView | None) -> bool:
        """Record the allocation. Returns whether it was revoked: it is gone or releasing, and the instance did not ask
        for that."""
        with self._store.transaction() as session:
            instance = session.get(InstanceRow, key)
            if instance is None:
                return False
            slices = tuple(ObservedSlice.from_stored(each) for each in instance.slices or ())
            self._store.observe(session, instance, Observed(allocation, slices), None, self._clock.now())
            return instance.state in HOLDING and (allocation is None or allocation.state == "Releasing")


def _count_ready(view: dict[str, Any]) -> int:
    """The number of ready members in an allocation's view, which is not parsed: for most events this is all we need."""
    roles = ((member["role"], member["ready"]) for member in view.get("members", ()))
    return ready_members(view["state"], view["bound"], view.get("power", "On"), roles)
