"""LossNews: which news of allocations tell that a member has just failed, so that who repairs looks at once.

Any change of an allocation has the reconciler look soon, several that come together once. A failure is not to wait for
that. Only who was well before counts: the news that follow, while it is repaired, are as any other.
"""

from __future__ import annotations

from typing import Any

from matrixcommon.api.client import WatchEvent
from matrixcommon.model.resource_key import key_of


class LossNews:
    """`take` with every event, `look` when looking begins."""

    def __init__(self) -> None:
        self._failed: dict[str, set[str]] = {}
        """The members that have failed, by allocation; of those without any there is nothing here."""
        self._new = False

    def take(self, event: WatchEvent | None) -> bool:
        """Whether it tells of a member that was well until now. After a break of the watch (None) nobody knows."""
        if event is None:
            return False
        key = key_of(event.view["project"], event.view["name"])
        before = self._failed.pop(key, set())
        failed = set() if event.type == "DELETED" else _failed(event.view)
        if failed:
            self._failed[key] = failed
        new = not failed <= before
        self._new = self._new or new
        return new

    def look(self) -> bool:
        """Whether any such news came since the last look."""
        new, self._new = self._new, False
        return new


def _failed(allocation: dict[str, Any]) -> set[str]:
    """The members that are broken by what they say of themselves, whatever holds for others of their cabinet."""
    return {
        member["node"]
        for member in allocation.get("members", ())
        if member.get("agent") == "Lost" or member.get("health") == "Unhealthy"
    }
