"""MemberFailures: which events of allocations show that a member has just failed, so that repair begins at once.

Any change of an allocation schedules a pass soon, and changes that come together share one; a failure must not wait for
that. Only a member that was healthy before counts: later events, during its repair, are handled like any other.
"""

from __future__ import annotations

from typing import Any

from matrixcommon.api.client import WatchEvent
from matrixcommon.model.resource_key import key_of


class MemberFailures:
    """Call `observe` for every event, and `pop_new_failure` when a pass begins."""

    def __init__(self) -> None:
        self._failed_by_allocation: dict[str, set[str]] = {}
        """The failed members by allocation; allocations without any have no entry."""
        self._new_failure = False

    def observe(self, event: WatchEvent | None) -> bool:
        """Observe an event. Returns whether a member that was healthy has failed; False after an interruption of the
        watch (None)."""
        if event is None:
            return False
        key = key_of(event.view["project"], event.view["name"])
        before = self._failed_by_allocation.pop(key, set())
        failed = set() if event.type == "DELETED" else _failed_nodes(event.view)
        if failed:
            self._failed_by_allocation[key] = failed
        new_failure = not failed <= before
        self._new_failure = self._new_failure or new_failure
        return new_failure

    def pop_new_failure(self) -> bool:
        """Returns whether there was such an event since the last call."""
        new_failure, self._new_failure = self._new_failure, False
        return new_failure


def _failed_nodes(allocation: dict[str, Any]) -> set[str]:
    """The members that are lost or unhealthy themselves, whatever the state of their cabinet."""
    return {
        member["node"]
        for member in allocation.get("members", ())
        if member.get("agent") == "Lost" or member.get("health") == "Unhealthy"
    }
