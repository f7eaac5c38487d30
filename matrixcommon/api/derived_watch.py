"""Watches of views without rows of their own, which are derived from others': the state is computed again after commits
and at every bookmark, once for all who watch the same, and each is sent the differences."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from matrixcommon.api.list_params import ListParams
from matrixcommon.api.watch_stream import BOOKMARK_PERIOD_WALL_S, event, joined_chunks
from matrixcommon.model.errors import Gone
from matrixcommon.model.resource_model import ApiModel
from matrixcommon.persistence.change_feed import WatchQueue
from matrixcommon.persistence.database_session import Database

PAUSE_WALL_S = 0.0005
"""For each view, the pause before the state is computed again: some twice what it takes to make the view."""

Bodies = dict[str, dict[str, Any]]
"""Views by project and name, as a reader is shown them."""


@dataclass(frozen=True)
class _State:
    """All views at one moment of the loop, and the number of the newest change then."""

    rv: int
    at: float
    bodies: Bodies


class _DerivedStates:
    """The newest state, for all watches that show the same."""

    def __init__(self, params: ListParams, records: Database, views: Callable[[], Iterable[ApiModel]]) -> None:
        self._params = params
        self._records = records
        self._views = views
        self._queue = WatchQueue(records)
        self._state = _State(-1, 0.0, {})
        self._sent: tuple[Bodies, Bodies, list[bytes]] = {}, {}, []
        """The last two states whose differences were rendered, and the pieces."""
        self.period_s = records.clock.loop_s(BOOKMARK_PERIOD_WALL_S)

    def notify(self) -> None:
        """Something was committed."""
        self._queue.notify()

    async def changed(self, since: _State) -> None:
        """Return when another state may be due: after a commit, and after a while, since some views depend on time."""
        await self._queue.changed(since.rv, max(0.0, since.at + self.period_s - asyncio.get_running_loop().time()))

    def present(self, listed: bool = False) -> _State:
        """The newest state; `listed`: as a list would show it, with all that depends on time and on other replicas."""
        now, rv = asyncio.get_running_loop().time(), self._state.rv
        if listed or self._records.may_have_changed(None, rv):
            rv = self._records.latest()
        valid_s = self._records.clock.loop_s(self._pause_wall_s) if listed else 0.9 * self.period_s
        if rv != self._state.rv or now - self._state.at > valid_s:
            shown = (self._params.show(view.wire()) for view in self._views())
            bodies = {f"{body.get('project', '')}/{body['name']}": body for body in shown if body is not None}
            self._state = _State(rv, now, bodies)
            self._queue.pause(self._pause_wall_s)
        return self._state

    @property
    def _pause_wall_s(self) -> float:
        return min(len(self._state.bodies) * PAUSE_WALL_S, BOOKMARK_PERIOD_WALL_S / 2)

    def differences(self, before: _State, after: _State) -> list[bytes]:
        """The events that lead from one state to another, in pieces; rendered once for all who are sent the same."""
        was, now, pieces = self._sent
        if was is not before.bodies or now is not after.bodies:
            pieces = [*joined_chunks(_difference_events(before.bodies, after.bodies, after.rv))]
            self._sent = before.bodies, after.bodies, pieces
        return pieces


async def derived_changes(
    params: ListParams, records: Database, views: Callable[[], Iterable[ApiModel]]
) -> AsyncIterator[bytes]:
    states = records.shared_by_watches(params.watched, lambda: _DerivedStates(params, records, views))
    shown = states.present(listed=True)
    if params.resource_version is None:
        for piece in joined_chunks(_difference_events({}, shown.bodies, shown.rv)):
            yield piece
    elif params.resource_version != shown.rv:
        gone = Gone(
            f"this is derived from other resources, without a history: it is at {shown.rv} now, and what it was at "
            f"{params.resource_version} is not known; watch it without resourceVersion to start with its present state"
        )
        yield event("ERROR", shown.rv, json.dumps(gone.problem()))
        return
    yield event("BOOKMARK", shown.rv, "{}")
    while True:
        await states.changed(shown)
        now = states.present()
        for piece in states.differences(shown, now):
            yield piece
        shown = now
        yield event("BOOKMARK", shown.rv, "{}")


def _difference_events(before: Bodies, after: Bodies, rv: int) -> Iterator[bytes]:
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if now is None:
            yield event("DELETED", rv, json.dumps(was))
        elif was != now:
            yield event("ADDED" if was is None else "MODIFIED", rv, json.dumps(now))
