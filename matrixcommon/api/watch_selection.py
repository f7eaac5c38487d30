"""What a filtered watch selects: its reader hears of what enters the selection, changes in it, and leaves it.

As of Kubernetes' selectors: a resource that no longer matches is DELETED for this reader, though it is there, and one
that comes to match is ADDED. That takes knowing which resources the reader has. One who began with the present state
has what was sent; one who resumes at a number has what matched then. Where that number is not far back, most of it is
unchanged and still known; of what changed before the watch was resumed it is not, and the reader is told rather too
often than too seldom that it has gone (docs/decisions/0968-a-filtered-watch-reports-what-leaves-its-selection.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from matrixcommon.api.list_params import ListParams
from matrixcommon.persistence.database_session import Change

Identity = tuple[str, str]
"""Project and name, as views show them."""


class Selection:
    """Of one watch. Whom a resource is visible to never changes while it lives: only what filters match does."""

    def __init__(self, params: ListParams) -> None:
        self._params = params
        self._has: set[Identity] = set()
        """What the reader has."""
        self._known_after = 0
        """What is changed first after this number, and is not among those, the reader does not have."""
        self._met: set[Identity] = set()
        """What was changed up to there, and is known from then on."""

    def add(self, body: dict[str, Any]) -> None:
        """The reader has been sent it."""
        self._has.add(_identity(body))

    def resume(self, rv: int, views: Iterable[Any], latest: Callable[[], int]) -> None:
        """The reader has what matched at `rv`. `latest`: the number of the newest change, asked after the views were
        made: what another replica commits meanwhile is in doubt too."""
        for view in views:
            if version_of(view) <= rv and (body := self._params.show(view.wire())) is not None:
                self.add(body)
        self._known_after = latest()

    def event_for(self, change: Change) -> tuple[str, dict[str, Any]] | None:
        """Type and view of the event that the reader gets of a change; None where it gets none. Where it may not see
        the resource any more, no more of it than what it is called."""
        item = json.loads(change.body)
        identity = _identity(item)
        seen = self._params.seen(item)
        had = self._had(identity, change.rv)
        if change.rv <= self._known_after:
            self._met.add(identity)
        if seen is not None and change.type != "DELETED" and self._params.matches(seen):
            self._has.add(identity)
            return change.type if had is None else "MODIFIED" if had else "ADDED", seen
        self._has.discard(identity)
        if had or (had is None and seen is not None):
            return "DELETED", seen or {"project": identity[0], "name": identity[1]}
        return None

    def _had(self, identity: Identity, rv: int) -> bool | None:
        """Whether the reader has it before the change of that number; None where nobody knows."""
        if identity in self._has:
            return True
        return False if rv > self._known_after or identity in self._met else None


def version_of(view: Any) -> int:
    """The number of a view's newest change; 0 where it has none."""
    return int(view.etag.strip('"') or 0)


def _identity(body: dict[str, Any]) -> Identity:
    return str(body.get("project") or ""), body["name"]
