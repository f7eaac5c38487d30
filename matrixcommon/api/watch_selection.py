"""The selection of a filtered watch: the reader is told of resources that enter it, change within it, and leave it.

As with Kubernetes' selectors, a resource that no longer matches is DELETED for this reader, though it still exists, and
one that begins to match is ADDED. That requires knowing which resources the reader has. A reader that started with the
present state has what was sent; one that resumes at a number has what matched then. Most of that has usually not
changed since and is known; for resources that changed before the watch was resumed it is not, and then the reader is
sent a possibly superfluous DELETED rather than none
(docs/decisions/0968-a-filtered-watch-reports-what-leaves-its-selection.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from matrixcommon.api.list_params import ListParams
from matrixcommon.persistence.database_session import Change

Identity = tuple[str, str]
"""Project and name, as views show them."""


class Selection:
    """The selection of one watch. Who may see a resource never changes in its lifetime; only filter matches do."""

    def __init__(self, params: ListParams) -> None:
        self._params = params
        self._has: set[Identity] = set()
        """The resources that the reader certainly has."""
        self._known_after = 0
        """For changes after this number it is certain that the reader has only the resources in `_has`."""
        self._settled: set[Identity] = set()
        """Resources with a change up to that number, about which the reader's state is certain since then."""

    def add(self, body: dict[str, Any]) -> None:
        """Record that the reader was sent a resource."""
        self._has.add(_identity(body))

    def resume(self, rv: int, views: Iterable[Any], latest: Callable[[], int]) -> None:
        """Resume for a reader that has what matched at `rv`. `latest` returns the number of the newest change; it is
        called after the views were made, because changes that another replica commits meanwhile are uncertain too."""
        for view in views:
            if version_of(view) <= rv and (body := self._params.show(view.wire())) is not None:
                self.add(body)
        self._known_after = latest()

    def event_for(self, change: Change) -> tuple[str, dict[str, Any]] | None:
        """The type and view of the event that the reader gets for a change, or None. If it may no longer see the
        resource, the view has only project and name."""
        identity = _identity(change.view)
        seen = seen_in(change, self._params)
        had = self._was_sent(identity, change.rv)
        if change.rv <= self._known_after:
            self._settled.add(identity)
        if seen is not None and change.type != "DELETED" and self._params.matches(seen):
            self._has.add(identity)
            return change.type if had is None else "MODIFIED" if had else "ADDED", seen
        self._has.discard(identity)
        if had or (had is None and seen is not None):
            return "DELETED", seen or {"project": identity[0], "name": identity[1]}
        return None

    def _was_sent(self, identity: Identity, rv: int) -> bool | None:
        """Whether the reader had the resource before the change of that number; None if unknown."""
        if identity in self._has:
            return True
        return False if rv > self._known_after or identity in self._settled else None


class InitialState:
    """The state that a reader started with, if another replica wrote while it was being read: some of the changes that
    follow are in it already."""

    def __init__(self, versions: dict[Identity, int], up_to: int) -> None:
        """`versions`: of all resources that were read, matching or not; `up_to`: no later change is in the state."""
        self._versions = versions
        self.up_to = up_to

    def includes(self, change: Change) -> bool:
        """Whether a change, of all in order, has nothing to tell the reader."""
        if change.rv > self.up_to:
            return False
        identity = _identity(change.view)
        version = self._versions.get(identity)
        if version is None:  # not there, or no longer: what it was before it is added is unknown to the reader
            if change.type != "ADDED":
                return True
            self._versions[identity] = change.rv
            return False
        if change.rv > version and change.type == "DELETED":
            del self._versions[identity]
        return change.rv <= version


def seen_in(change: Change, params: ListParams) -> dict[str, Any] | None:
    """The view of a change as the caller may see it, or None; decided once for all who see the same."""
    viewer = params.viewer
    if viewer not in change.rendered:
        change.rendered[viewer] = params.seen(change.view)
    seen: dict[str, Any] | None = change.rendered[viewer]
    return seen


def version_of(view: Any) -> int:
    """The number of a view's newest change; 0 if it has none."""
    return int(view.etag.strip('"') or 0)


def identity_of(view: Any) -> Identity:
    """Which resource a view is of."""
    return str(getattr(view, "project", "") or ""), view.name


def _identity(body: dict[str, Any]) -> Identity:
    return str(body.get("project") or ""), body["name"]
